package watcher

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// reader is the applier's end of the pipe, made of plain system calls.
type reader struct {
	*output
	t    *testing.T
	pipe *os.File
	acks *os.File
	end  chan struct{}
}

// newReader opens the FIFOs as the applier does: the pipe first.
func newReader(t *testing.T, cfg config.Pipe) *reader {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(cfg.Path), 0o750))
	for _, path := range []string{cfg.Path, cfg.AckPath} {
		if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	a := &reader{output: newOutput(), t: t, end: make(chan struct{})}
	var err error
	a.pipe, err = os.OpenFile(cfg.Path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	must(t, err)
	eventually(t, "the watcher reads acknowledgements", func() bool {
		a.acks, err = os.OpenFile(cfg.AckPath, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	t.Cleanup(a.close)
	return a
}

// read begins to read the pipe.
func (a *reader) read() *reader {
	go func() {
		defer close(a.end)
		lines := bufio.NewReader(a.pipe)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			a.output.Write([]byte(line))
		}
	}()
	return a
}

// close goes away without a word.
func (a *reader) close() {
	a.pipe.Close()
	a.acks.Close()
}

// say writes one line.
func (a *reader) say(line string) {
	a.t.Helper()
	_, err := a.acks.Write([]byte(line + "\n"))
	must(a.t, err)
}

// hello says one and reads the snapshot that answers it.
func (a *reader) hello(id string) snapshot {
	a.t.Helper()
	a.say(fmt.Sprintf(`{"hello":%q}`, id))
	return a.answer(id)
}

// answer reads the snapshot that answers a hello.
func (a *reader) answer(id string) snapshot {
	a.t.Helper()
	for {
		rec := a.next(a.t)
		if rec.Phase == lifecycle.PhaseBegin && rec.Hello == id {
			return a.rest(a.t, rec)
		}
	}
}

func (a *reader) ack(epoch string, seq uint64) {
	a.t.Helper()
	a.say(fmt.Sprintf(`{"epoch":%q,"seq":%d}`, epoch, seq))
}

// heartbeat waits for one that tells what is wanted.
func (a *reader) heartbeat(what string, ok func(*lifecycle.Record) bool) {
	a.t.Helper()
	var last *lifecycle.Record
	for range 1000 {
		rec := a.any(a.t)
		if rec.Event != lifecycle.Heartbeat {
			continue
		}
		if ok(rec) {
			return
		}
		last = rec
	}
	a.t.Fatalf("no heartbeat tells %s; the last: hits %d, misses %d, skips %d, dropped %d",
		what, *last.BarrierHits, *last.BarrierMisses, *last.BarrierSkips, *last.QueueDropped)
}
