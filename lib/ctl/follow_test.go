package ctl

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/state"
)

// world is a node's state and event log, written as the applier writes them:
// the row is committed, then the line is appended.
type world struct {
	t         *testing.T
	db        *sql.DB
	statePath string
	logPath   string
	logID     string
	seq       int // of the last committed event
	lines     []string
	exported  int // how many of lines are in the file
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, statePath: filepath.Join(dir, "state.db"), logPath: filepath.Join(dir, "events.jsonl")}
	w.open()
	return w
}

// open makes the state.
func (w *world) open() {
	w.t.Helper()
	s, err := state.Open(w.statePath, state.Options{Node: "n"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.logID, w.seq = s.LogID(), 0
	w.check(s.Close())
	w.db, err = sql.Open("sqlite3", "file:"+w.statePath+"?_journal_mode=WAL")
	w.check(err)
	db := w.db
	w.t.Cleanup(func() { db.Close() })
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// commit makes n events; pods alternate between p0 and p1.
func (w *world) commit(n int) {
	w.t.Helper()
	tx, err := w.db.Begin()
	w.check(err)
	for range n {
		w.seq++
		line := w.line(w.seq)
		_, err := tx.Exec(`INSERT INTO events (seq, time, type, pod_uid, group_state, source, line) VALUES (?, 't', 'AddOrUpdate', 'p', 'Exists', 's', ?)`, w.seq, line)
		w.check(err)
		w.lines = append(w.lines, line)
	}
	w.check(tx.Commit())
}

func (w *world) line(seq int) string {
	return fmt.Sprintf(`{"log":%q,"seq":%d,"type":"AddOrUpdate","pod_uid":"p%d"}`, w.logID, seq, seq%2)
}

// export appends what is committed, but not in the file yet.
func (w *world) export() {
	w.t.Helper()
	for _, line := range w.lines[w.exported:] {
		w.append(line + "\n")
	}
	w.exported = len(w.lines)
}

func (w *world) append(text string) {
	w.t.Helper()
	f, err := os.OpenFile(w.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	w.check(err)
	_, err = f.WriteString(text)
	w.check(errors.Join(err, f.Close()))
}

func (w *world) rename() { w.check(os.Rename(w.logPath, w.logPath+".1")) }

// copytruncate is what logrotate does with that option; the copy is of no interest.
func (w *world) truncate() { w.check(os.Truncate(w.logPath, 0)) }

// following is a follower at work.
type following struct {
	w      *world
	events chan event
	got    []string // "log seq" of every event, in the order of printing
	cancel context.CancelFunc
	done   chan error
	before goleak.Option // the goroutines that are not the follower's
}

// follow starts a follower that looks into the table so often.
func (w *world) follow(look time.Duration, after int64) *following {
	w.t.Helper()
	before := goleak.IgnoreCurrent()
	r, err := state.OpenReader(w.statePath)
	w.check(err)
	ctx, cancel := context.WithCancel(context.Background())
	f := &following{w: w, events: make(chan event), cancel: cancel, done: make(chan error, 1), before: before}
	flw := &follower{
		print: func(e event, _ string) error {
			select {
			case f.events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		flush:  func() error { return nil },
		open:   func() (*state.Reader, error) { return state.OpenReader(w.statePath) },
		path:   w.logPath,
		look:   look,
		log:    slog.New(slog.DiscardHandler),
		reader: r,
	}
	go func() { f.done <- flw.run(ctx, after) }()
	return f
}

// until takes events until one has this seq of the present log.
func (f *following) until(seq int) {
	f.w.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-f.events:
			f.got = append(f.got, fmt.Sprint(e.Log, " ", e.Seq))
			if e.Log == f.w.logID && e.Seq == int64(seq) {
				return
			}
		case err := <-f.done:
			f.w.t.Fatalf("following ended: %v", err)
		case <-deadline:
			f.w.t.Fatalf("event %d did not come; the last of %d are %v", seq, len(f.got), f.got[max(0, len(f.got)-5):])
		}
	}
}

// end stops the follower: what came must be the events from..to of the log.
func (f *following) end(from, to int) {
	f.w.t.Helper()
	f.cancel()
	if err := <-f.done; err != nil {
		f.w.t.Errorf("following ended with %v", err)
	}
	var want []string
	for seq := from; seq <= to; seq++ {
		want = append(want, fmt.Sprint(f.w.logID, " ", seq))
	}
	if !slices.Equal(f.got, want) {
		f.w.t.Errorf("got %d events %v,\nwant %d to %d once each, in order", len(f.got), f.got, from, to)
	}
	f.w.check(f.w.db.Close())
	goleak.VerifyNone(f.w.t, f.before)
}

const never = time.Hour

func TestFollowThroughRotations(t *testing.T) {
	w := newWorld(t)
	w.commit(30)
	w.export()
	f := w.follow(lookEvery, 0)
	f.until(30)
	for round := range 8 {
		w.commit(20)
		w.export()
		// At once, so that lines are lost that nobody has read yet.
		if round%2 == 0 {
			w.rename()
		} else {
			w.truncate()
		}
		if round%3 == 0 {
			f.until(w.seq) // also when nothing is written any more
		}
		w.commit(10)
		w.export()
		if round%3 != 1 {
			f.until(w.seq)
		}
	}
	f.until(w.seq)
	f.end(1, w.seq)
}

func TestFollowWithoutTheTable(t *testing.T) {
	for name, rotate := range map[string]func(*world){"rename": (*world).rename, "copytruncate": (*world).truncate} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.commit(5)
			w.export()
			f := w.follow(10*time.Millisecond, 0)
			f.until(5)
			// Only in the file, so only it can tell them.
			for seq := 6; seq <= 10; seq++ {
				w.append(w.line(seq) + "\n")
			}
			f.until(10)
			rotate(w)
			for seq := 11; seq <= 15; seq++ {
				w.append(w.line(seq) + "\n")
			}
			f.until(15)
			f.end(1, 15)
		})
	}
}

func TestFollowWithoutTheFile(t *testing.T) {
	w := newWorld(t)
	f := w.follow(10*time.Millisecond, 0)
	w.commit(3)
	f.until(3)
	w.commit(2*page + 1)
	f.until(w.seq)
	f.end(1, w.seq)
}

func TestFollowFillsGapsFromTheTable(t *testing.T) {
	w := newWorld(t)
	w.commit(3)
	w.export()
	f := w.follow(never, 0)
	f.until(3)
	w.commit(5) // 4 to 8
	w.append(w.lines[7] + "\n")
	f.until(8)
	w.append(w.lines[5] + "\n" + w.lines[7] + "\n") // a repeat
	w.append(w.line(9) + "\n")
	f.until(9)
	f.end(1, 9)
}

func TestFollowStartsBehindTheTable(t *testing.T) {
	w := newWorld(t)
	w.commit(9)
	w.export()
	f := w.follow(10*time.Millisecond, 7)
	f.until(9)
	w.commit(1)
	w.export()
	f.until(10)
	f.end(8, 10)
}

func TestFollowTornLines(t *testing.T) {
	w := newWorld(t)
	w.commit(2)
	w.export()
	first, last := w.line(3)[:20], w.line(3)[20:]
	w.append(first) // the end of the file is in the middle of a line
	f := w.follow(never, 0)
	f.until(2)
	w.append(last + "\n" + w.line(4)[:10])
	f.until(3)
	w.append(w.line(4)[10:] + "\nno event\n{\"log\":\"other\",\"seq\":9}\n" + w.line(5) + "\n")
	f.until(5)
	f.end(1, 5)
}

func TestFollowANewState(t *testing.T) {
	w := newWorld(t)
	w.commit(4)
	w.export()
	f := w.follow(10*time.Millisecond, 0)
	f.until(4)
	old := f.got
	w.check(w.db.Close())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(w.statePath+suffix, w.statePath+".damaged"+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	w.open()
	w.commit(3)
	w.export()
	f.until(3)
	if !slices.Equal(f.got[:4], old) {
		t.Errorf("the old log's events changed: %v", f.got)
	}
	f.got = f.got[4:]
	f.end(1, 3)
}

func TestFollowOnePodUntilInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit(4)
	w.export()
	conf := filepath.Join(t.TempDir(), "config.toml")
	w.check(os.WriteFile(conf, fmt.Appendf(nil, "state.path = %q\nevents.path = %q\n", w.statePath, w.logPath), 0o600))
	cmd := exec.Command("resctrlctl", "events", "-f", "--json", "--pod", "p1", "--config", conf)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	w.check(err)
	w.check(cmd.Start())
	lines := bufio.NewReader(out)
	next := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	next(w.line(1))
	next(w.line(3))
	w.commit(2)
	w.export()
	next(w.line(5))
	w.check(cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(lines)
	if err := errors.Join(err, cmd.Wait()); err != nil || len(rest) > 0 || stderr.Len() > 0 {
		t.Errorf("ended with %v, %q and %q; want a silent end", err, rest, stderr.String())
	}
}
