package resctrl_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

// The environment variable that lets the tests use this machine's resctrl. They
// make and remove groups, unmount and mount it: it is for a virtual machine.
const envKernel = "NRI_RESCTRL_KERNEL"

const kernelRoot = "/sys/fs/resctrl"

// kernelWorld is the machine that we run on.
func kernelWorld(t *testing.T) *world {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	raw := resctrl.RealOS()
	w := &world{
		T: t, root: kernelRoot, raw: raw, guard: newGuard(t, raw, kernelRoot), kernel: true,
		v61:  strings.HasPrefix(unix.ByteSliceToString(uts.Release[:]), "6.1."),
		tick: func() { <-time.After(100 * time.Millisecond) }, // the kernel's limbo is real time
	}
	data, err := os.ReadFile(kernelRoot + "/info/L3_MON/num_rmids")
	if err == nil {
		w.rmids, err = strconv.Atoi(strings.TrimSpace(string(data)))
		w.must(err)
		if w.rmids < 10 {
			t.Fatalf("%d RMIDs: the cases need 10", w.rmids)
		}
	}
	w.fs = resctrl.New(resctrl.Options{Root: kernelRoot, Prefix: prefix, ProcRoot: "/proc", OS: w.guard})
	w.procs = &real{w: w, helpers: map[int]*helper{}}
	w.mounted = func(on bool) {
		if on {
			w.must(unix.Mount("resctrl", kernelRoot, "resctrl", 0, ""))
		} else {
			w.must(unix.Unmount(kernelRoot, 0))
		}
	}
	w.where = func(tid int) text {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cpu_resctrl_groups", tid))
		w.must(err)
		return groupText(string(data))
	}
	w.sweep()
	t.Cleanup(w.sweep)
	return w
}

// sweep removes every group of the guest.
func (w *world) sweep() {
	for _, dir := range []string{kernelRoot, kernelRoot + "/mon_groups"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if n := e.Name(); e.IsDir() && n != "info" && n != "mon_data" && n != "mon_groups" {
				_ = unix.Rmdir(filepath.Join(dir, n))
			}
		}
	}
}

// real are processes of this machine: helpers, which are this test binary again.
type real struct {
	w       *world
	helpers map[int]*helper
}

// helper is one process that does what it is told on its standard input.
type helper struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

const envHelper = "NRI_RESCTRL_TEST_HELPER"

func (r *real) start() int {
	r.w.Helper()
	h := &helper{cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), envHelper+"=1", "GOMAXPROCS=1")
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.Stderr = os.Stderr
	inR, inW, err := os.Pipe()
	r.w.must(err)
	out, err := h.cmd.StdoutPipe()
	r.w.must(err)
	h.cmd.Stdin, h.in, h.out = inR, inW, bufio.NewReader(out)
	r.w.must(h.cmd.Start())
	inR.Close()
	pid := h.cmd.Process.Pid
	r.helpers[pid] = h
	r.w.Cleanup(func() { r.end(pid) })
	r.say(pid, "ready")
	return pid
}

// say gives a helper one command and reads its numbers.
func (r *real) say(pid int, command string) []int {
	r.w.Helper()
	h := r.helpers[pid]
	_, err := fmt.Fprintln(h.in, command)
	r.w.must(err)
	line, err := h.out.ReadString('\n')
	if err != nil {
		r.w.Fatalf("helper %d, %s: %v", pid, command, err)
	}
	var numbers []int
	for _, f := range strings.Fields(line) {
		n, err := strconv.Atoi(f)
		r.w.must(err)
		numbers = append(numbers, n)
	}
	return numbers
}

func (r *real) clone(pid, n int) []int { return r.say(pid, fmt.Sprintf("clone %d", n)) }
func (r *real) fork(pid int) int       { return r.say(pid, "fork")[0] }
func (r *real) zombie(pid int) int     { return r.say(pid, "zombie")[0] }

func (r *real) end(pid int) {
	h, ok := r.helpers[pid]
	if !ok { // a helper's child, which it reaps
		_ = unix.Kill(pid, unix.SIGKILL)
		for unix.Kill(pid, 0) == nil {
			runtime.Gosched()
		}
		return
	}
	delete(r.helpers, pid)
	_ = unix.Kill(-pid, unix.SIGKILL)
	_ = h.cmd.Wait()
	h.in.Close()
}

// replace ends a process and starts others until one has its id.
func (r *real) replace(pid int) {
	r.w.Helper()
	r.end(pid)
	for range 500 {
		err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0)
		r.w.must(err)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), envHelper+"=sleep", "GOMAXPROCS=1")
		in, err := cmd.StdinPipe()
		r.w.must(err)
		r.w.must(cmd.Start())
		if cmd.Process.Pid == pid {
			r.w.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
			return
		}
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	r.w.Fatalf("no process got the id %d", pid)
}

func (r *real) list(pids ...int) []int {
	var tids []int
	for _, pid := range pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		r.w.must(err)
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			r.w.must(err)
			tids = append(tids, tid)
		}
	}
	return tids
}

func (r *real) put(pid int, group text) { r.w.put(r.list(pid), group) }

// put writes tasks to a group, as somebody else would.
func (w *world) put(tids []int, group text) {
	w.Helper()
	for _, tid := range tids {
		path := filepath.Join(w.groupOf(group), "tasks")
		if err := w.raw.WriteFile(path, []byte(strconv.Itoa(tid))); err != nil && !errors.Is(err, unix.ESRCH) {
			w.Fatal(err)
		}
	}
}

// helperMain is the helper's life.
func helperMain(mode string) {
	switch mode {
	case "none":
		return
	case "sleep":
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		n := 0
		if len(words) > 1 {
			n, _ = strconv.Atoi(words[1])
		}
		switch words[0] {
		case "clone":
			fmt.Println(threads(n))
		case "grow": // n threads, one after another, by a thread of its own
			fmt.Println()
			go threads(n)
		case "fork":
			fmt.Println(child("sleep"))
		case "zombie":
			fmt.Println(child("none"))
		default:
			fmt.Println()
		}
	}
}

// threads starts n threads that stay, and gives their ids.
func threads(n int) string {
	ids := make(chan int)
	var text bytes.Buffer
	for range n {
		go func() {
			runtime.LockOSThread()
			ids <- unix.Gettid()
			_ = unix.Pause()
			select {}
		}()
		fmt.Fprintf(&text, "%d ", <-ids)
	}
	return text.String()
}

// child starts a child that is never reaped; mode none ends at once.
func child(mode string) int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envHelper+"="+mode, "GOMAXPROCS=1")
	r, w, err := os.Pipe()
	if err != nil {
		return 0
	}
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		return 0
	}
	r.Close()
	if mode == "none" {
		_ = w.Close()
		var info unix.Siginfo
		_ = unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
	}
	children = append(children, w)
	return cmd.Process.Pid
}

// children keeps the pipes open that hold a helper's children.
var children []*os.File
