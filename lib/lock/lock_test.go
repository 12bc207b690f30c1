package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/lock"
)

const (
	envHelper = "NRI_RESCTRL_TEST_HELPER"
	envDir    = "NRI_RESCTRL_TEST_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envHelper) {
	case "":
		goleak.VerifyTestMain(m)
	case "told":
		told()
	case "rounds":
		rounds()
	}
}

// helper is this test binary as another process.
type helper struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

func start(t *testing.T, mode, dir string) *helper {
	t.Helper()
	h := &helper{t: t, cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), envHelper+"="+mode, envDir+"="+dir)
	h.cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	must(t, err)
	out, err := h.cmd.StdoutPipe()
	must(t, err)
	h.cmd.Stdin, h.in, h.out = r, w, bufio.NewReader(out)
	must(t, h.cmd.Start())
	r.Close()
	t.Cleanup(h.kill)
	return h
}

func (h *helper) tell(word string) {
	h.t.Helper()
	_, err := fmt.Fprintln(h.in, word)
	must(h.t, err)
}

func (h *helper) hears(want string) {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		h.t.Fatalf("helper said %q, %v, want %q", line, err, want)
	}
}

func (h *helper) kill() {
	_ = h.cmd.Process.Signal(syscall.SIGKILL)
	_ = h.cmd.Wait()
	h.in.Close()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// told takes and releases locks as it is told.
func told() {
	locks := lock.New(os.Getenv(envDir))
	var release func()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var err error
		switch in.Text() {
		case "writer":
			release, err = locks.Writer(context.Background())
		case "instance":
			release, err = locks.Instance("applier")
		case "release":
			release()
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("ok")
	}
}

// rounds is a greedy writer: it asks again in the moment it releases.
func rounds() {
	locks := lock.New(os.Getenv(envDir))
	for {
		unlock, err := locks.Writer(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := note("B"); err != nil {
			fmt.Println(err)
			return
		}
		unlock()
	}
}

// note adds a letter to the book in the lock's directory, in two steps, so that
// two writers at once would be seen.
func note(letter string) error {
	path := filepath.Join(os.Getenv(envDir), "book")
	book, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer book.Close()
	end, err := book.Seek(0, 2)
	if err != nil {
		return err
	}
	_, err = book.WriteAt([]byte(letter), end)
	return err
}

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

// waiting waits until some process waits in the kernel for the lock.
func waiting(t *testing.T, dir, name string) {
	t.Helper()
	for !isWaiting(t, dir, name) {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
}

func isWaiting(t *testing.T, dir, name string) bool {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, name), &st); err != nil {
		return false // not made yet
	}
	text, err := os.ReadFile("/proc/locks")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) {
			return true
		}
	}
	return false
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
