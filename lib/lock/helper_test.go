package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	for n := 0; ; n++ {
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
		if n == 0 {
			fmt.Println("ok")
		}
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
