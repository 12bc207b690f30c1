package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/lock"
)

func TestExclusion(t *testing.T) {
	t.Parallel()
	locks := lock.New(t.TempDir())
	var inside, most, total atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				unlock, err := locks.Writer(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				total.Add(1)
				inside.Add(-1)
				unlock()
				unlock() // twice is once
			}
		})
	}
	all.Wait()
	if most.Load() != 1 || total.Load() != 800 {
		t.Errorf("%d writers at once, %d turns of 800", most.Load(), total.Load())
	}
}

func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := start(t, "told", dir)
	h.tell("writer")
	h.hears("ok")
	got := make(chan error, 1)
	go func() {
		unlock, err := lock.New(dir).Writer(t.Context())
		if err == nil {
			unlock()
		}
		got <- err
	}()
	waiting(t, dir, "writer.lock")
	h.tell("release")
	h.hears("ok")
	must(t, <-got)
}

// TestKill: the kernel releases what a killed process held, also in the middle
// of its wait.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locks := lock.New(dir)
	for _, what := range []string{"writer", "instance"} {
		h := start(t, "told", dir)
		h.tell(what)
		h.hears("ok")
		h.kill()
	}
	unlock, err := locks.Writer(t.Context())
	must(t, err)
	h := start(t, "told", dir)
	h.tell("writer")
	waiting(t, dir, "writer.lock") // it has the turn
	h.kill()
	unlock()
	unlock, err = locks.Writer(t.Context())
	must(t, err)
	unlock()
	release, err := locks.Instance("applier")
	must(t, err)
	release()
}

// TestNoStarvation: against a writer that asks again at once, whoever has the
// turn is next, in each of 1,000 rounds.
func TestNoStarvation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	greedy := lock.New(dir)
	patient := lock.New(dir)
	var next atomic.Int64 // who has had the lock last: odd is the patient one
	unlock, err := greedy.Writer(t.Context())
	must(t, err)
	for round := range 1000 {
		before := next.Load()
		done := make(chan error, 1)
		go func() {
			unlock, err := patient.Writer(t.Context())
			if err == nil {
				next.Add(1)
				unlock()
			}
			done <- err
		}()
		waiting(t, dir, "writer.lock") // the patient one has the turn
		unlock()
		unlock, err = greedy.Writer(t.Context()) // and the greedy one asks at once
		must(t, err)
		if next.Load() != before+1 {
			t.Fatalf("round %d: the greedy one was first", round)
		}
		must(t, <-done)
	}
	unlock()
}

// TestContention: 1,000 rounds against another process that writes without a
// pause. Every round ends, and both get on.
func TestContention(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locks := lock.New(dir)
	h := start(t, "rounds", dir)
	h.hears("ok") // it has begun
	book := filepath.Join(dir, "book")
	for range 1000 {
		unlock, err := locks.Writer(t.Context())
		must(t, err)
		file, err := os.OpenFile(book, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		must(t, err)
		_, err = file.WriteString("A")
		must(t, err)
		must(t, file.Close())
		unlock()
	}
	h.kill()
	text, err := os.ReadFile(book)
	must(t, err)
	mine, theirs := strings.Count(string(text), "A"), strings.Count(string(text), "B")
	if mine != 1000 || theirs == 0 || mine+theirs != len(text) {
		t.Errorf("%d and %d of %d letters", mine, theirs, len(text))
	}
	longest := 0
	for run := range strings.SplitSeq(strings.Trim(string(text), "B"), "A") {
		longest = max(longest, len(run))
	}
	t.Logf("the other process had %d rounds, at most %d between two of ours", theirs, longest)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"writer.turn", "writer.lock"} {
		dir := t.TempDir()
		locks := lock.New(dir)
		unlock, err := locks.Writer(t.Context()) // makes both files
		must(t, err)
		unlock()
		held, err := os.Open(filepath.Join(dir, name))
		must(t, err)
		must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := locks.Writer(ctx)
			done <- err
		}()
		waiting(t, dir, name)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := locks.Writer(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended ctx: %v", err)
		}
		must(t, held.Close())
		// What waited behind us lets go: the lock is to be had.
		unlock, err = locks.Writer(t.Context())
		must(t, err)
		unlock()
	}
}

func TestInstance(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run", "nri-resctrl")
	locks := lock.New(dir)
	release, err := locks.Instance("applier")
	must(t, err)
	path := filepath.Join(dir, "applier.lock")
	_, err = lock.New(dir).Instance("applier")
	var held *lock.HeldError
	if !errors.As(err, &held) || held.PID != os.Getpid() || held.Path != path {
		t.Errorf("a second one: %v", err)
	}
	if want := fmt.Sprintf("%s is held by process %d", path, os.Getpid()); err.Error() != want {
		t.Errorf("text %q, want %q", err, want)
	}
	other, err := locks.Instance("watcher")
	must(t, err)
	other()
	release()
	release()

	h := start(t, "told", dir)
	h.tell("instance")
	h.hears("ok")
	if _, err := locks.Instance("applier"); !errors.As(err, &held) || held.PID != h.cmd.Process.Pid {
		t.Errorf("held by process %d: %v", h.cmd.Process.Pid, err)
	}
	h.tell("release")
	h.hears("ok")
	release, err = locks.Instance("applier")
	must(t, err)
	// A longer number of before must not show behind a shorter one.
	text, err := os.ReadFile(path)
	must(t, err)
	if string(text) != strconv.Itoa(os.Getpid()) {
		t.Errorf("the file says %q", text)
	}
	// A holder that cannot be told.
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := locks.Instance("applier"); !errors.As(err, &held) || held.PID != 0 {
		t.Errorf("held by nobody known: %v", err)
	}
	release()
	for p, want := range map[string]os.FileMode{dir: 0o750 | os.ModeDir, path: 0o600} {
		if st, err := os.Stat(p); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", p, st.Mode(), err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locks := lock.New(dir)
	target := filepath.Join(t.TempDir(), "precious")
	must(t, os.WriteFile(target, []byte("text"), 0o600))
	must(t, os.Symlink(target, filepath.Join(dir, "writer.turn")))
	must(t, os.Symlink(target, filepath.Join(dir, "applier.lock")))
	if _, err := locks.Writer(t.Context()); !errors.Is(err, lock.ErrRefused) {
		t.Errorf("a link: %v", err)
	}
	if _, err := locks.Instance("applier"); !errors.Is(err, lock.ErrRefused) {
		t.Errorf("a link: %v", err)
	}
	if text, _ := os.ReadFile(target); string(text) != "text" {
		t.Errorf("what the link leads to is %q", text)
	}
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo.lock"), 0o600))
	if _, err := locks.Instance("fifo"); !errors.Is(err, lock.ErrRefused) {
		t.Errorf("a FIFO: %v", err)
	}
	// Open to others, they could hold it for ever.
	open := filepath.Join(dir, "open.lock")
	must(t, os.WriteFile(open, nil, 0o600))
	must(t, os.Chmod(open, 0o666))
	release, err := locks.Instance("open")
	must(t, err)
	defer release()
	if st, err := os.Stat(open); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// TestReplaced: the directory was removed and made again while one waited; two
// that lock different files would both be writers.
func TestReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locks := lock.New(dir)
	unlock, err := locks.Writer(t.Context())
	must(t, err)
	got := make(chan func(), 1)
	go func() {
		unlock, err := locks.Writer(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- unlock
	}()
	waiting(t, dir, "writer.lock")
	must(t, os.Remove(filepath.Join(dir, "writer.lock")))
	unlock()
	second := <-got
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := locks.Writer(ctx)
		done <- err
	}()
	waiting(t, dir, "writer.lock") // it is the file of now that is locked
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second()
}
