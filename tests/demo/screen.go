package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// screen is what the person sees.
type screen struct {
	out    io.Writer
	pace   time.Duration
	colour bool
	step   int
	dir    string // the story's
}

// Colours of a terminal (ECMA-48).
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func newScreen(out io.Writer, pace time.Duration) *screen {
	return &screen{out: out, pace: pace, colour: isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (s *screen) paint(colour, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (s *screen) line(text string) { fmt.Fprintln(s.out, strings.TrimRight(text, " ")) }

// title begins a step.
func (s *screen) title(text string) {
	s.step++
	s.line("")
	s.line(s.paint(bold, fmt.Sprintf("%d. %s", s.step, text)))
}

// note is a line beside the story.
func (s *screen) note(text string) { s.line(s.paint(dim, "   "+text)) }

// done is a command, or what was done.
func (s *screen) done(text string) { s.line("   " + s.paint(cyan, "> "+text)) }

// saw is what came of it, beside the events.
func (s *screen) saw(text string) { s.line("     " + text) }

// wrong is what should have been otherwise.
func (s *screen) wrong(text string) {
	s.line(s.paint(red, "   ! "+strings.ReplaceAll(text, "\n", "\n     ")))
}

// text is what a program printed. The long name of the story's directory is
// shown as DIR.
func (s *screen) text(text string) {
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if s.dir != "" {
			l = strings.ReplaceAll(l, s.dir, "DIR")
		}
		s.line("     " + l)
	}
}

// events are lines of the event log.
func (s *screen) events(list []world.Event) {
	if len(list) == 0 {
		s.line(s.paint(dim, "     (no event)"))
		return
	}
	s.line(s.paint(dim, fmt.Sprintf("     %4s  %-11s  %-13s  %-17s  %5s  %10s", "seq", "event", "pod", "group", "known", "reconciled")))
	for _, e := range list {
		state, known, reconciled := strings.TrimSpace(e.GroupState+" "+e.Reason), fmt.Sprint(e.Total), fmt.Sprint(e.Reconciled)
		if e.Type == "Removed" {
			state, known, reconciled = "", "", ""
		}
		s.line(fmt.Sprintf("     %4d  %-11s  %-13s  %s  %5s  %10s", e.Seq, e.Type, e.Namespace+"/"+e.Name,
			s.state(fmt.Sprintf("%-17s", state)), known, reconciled))
	}
}

func (s *screen) state(text string) string {
	switch {
	case strings.HasPrefix(text, "Exists"):
		return s.paint(green, text)
	case strings.HasPrefix(text, "Failed"):
		return s.paint(yellow, text)
	}
	return text
}
