package kernel_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envRole makes the test binary play a process of a case.
const envRole = "NRI_RESCTRL_TEST_ROLE"

// realProcess is a worker: each line it gets is an order, each line it gives
// the answer.
type realProcess struct {
	root string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

func (p *realProcess) do(format string, args ...any) string {
	fmt.Fprintf(p.in, format+"\n", args...)
	if !p.out.Scan() {
		panic(failure("the worker ended at " + fmt.Sprintf(format, args...)))
	}
	return p.out.Text()
}

func (p *realProcess) number(format string, args ...any) int {
	answer := p.do(format, args...)
	n, err := strconv.Atoi(answer)
	if err != nil {
		panic(failure(fmt.Sprintf(format, args...) + ": " + answer))
	}
	return n
}

func (p *realProcess) pid() int           { return p.cmd.Process.Pid }
func (p *realProcess) thread() int        { return p.number("thread") }
func (p *realProcess) fork(tid int) int   { return p.number("fork %d", tid) }
func (p *realProcess) orphan(tid int) int { return p.number("orphan %d", tid) }
func (p *realProcess) adopt()             { p.do("adopt") }
func (p *realProcess) all() []int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid()))
	var tids []int
	for _, e := range entries {
		tid, _ := strconv.Atoi(e.Name())
		tids = append(tids, tid)
	}
	return tids
}
func (p *realProcess) busy()          { p.do("busy") }
func (p *realProcess) end(pid int)    { p.do("end %d", pid) }
func (p *realProcess) zombie(pid int) { p.do("zombie %d", pid) }

func (p *realProcess) write(tid int, path, data string) error {
	if e := syscall.Errno(p.number("write %d %s %q", tid, p.root+"/"+path, data)); e != ok {
		return e
	}
	return nil
}

func (p *realProcess) read(path string) string {
	text, err := strconv.Unquote(p.do("read 0 %q", p.root+"/"+path))
	if err != nil {
		panic(failure("read " + path + ": " + err.Error()))
	}
	return text
}

func (p *realProcess) mkdir(path string) error {
	if e := syscall.Errno(p.number("mkdir %d %q", p.pid(), p.root+"/"+path)); e != ok {
		return e
	}
	return nil
}

func (p *realProcess) dropOverride() {
	if answer := p.do("drop %d", p.pid()); answer != "0" {
		panic(failure("drop CAP_DAC_OVERRIDE: " + answer))
	}
}

// play is the other side.
func play() int {
	// The main goroutine begins on the first thread, whose TID is the PID.
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		_ = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	w := &worker{threads: map[int]chan func(){}, children: map[int]*exec.Cmd{}}
	r, pipe, err := os.Pipe()
	if err != nil {
		return 1
	}
	w.alive = r
	leader := make(chan func())
	w.threads[os.Getpid()] = leader
	go func() {
		for line := range orders() {
			fmt.Println(w.obey(line))
		}
		pipe.Close()
		for pid := range w.children {
			w.end(pid)
		}
		os.Exit(0) // the leader may be busy
	}()
	for do := range leader {
		do()
	}
	return 0
}

// orders are the lines of the standard input. The process ends soon after them,
// whatever it is doing: who gave them may be dead.
func orders() <-chan string {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		close(lines)
		time.Sleep(5 * time.Second)
		os.Exit(1)
	}()
	return lines
}

type worker struct {
	threads  map[int]chan func() // by TID: what a thread is to do
	children map[int]*exec.Cmd
	alive    *os.File // the children's standard input: it ends with us
}

// on runs do on a thread.
func (w *worker) on(tid int, do func() string) string {
	thread, ok := w.threads[tid]
	if !ok {
		return "no thread " + strconv.Itoa(tid)
	}
	answer := make(chan string)
	thread <- func() { answer <- do() }
	return <-answer
}

func (w *worker) obey(line string) string {
	var order string
	var n int
	_, _ = fmt.Sscan(line, &order, &n)
	switch order {
	case "thread":
		return strconv.Itoa(w.thread())
	case "fork":
		return w.on(n, w.fork)
	case "orphan":
		return w.on(n, w.orphan)
	case "adopt":
		return number(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	case "write":
		var path, data string
		if _, err := fmt.Sscanf(line, "write %d %s %q", &n, &path, &data); err != nil {
			return err.Error()
		}
		return w.on(n, func() string { return write(path, data) })
	case "read":
		var path string
		_, _ = fmt.Sscanf(line, "read %d %q", &n, &path)
		text, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		return strconv.Quote(string(text))
	case "mkdir":
		var path string
		if _, err := fmt.Sscanf(line, "mkdir %d %q", &n, &path); err != nil {
			return err.Error()
		}
		return w.on(n, func() string { return number(unix.Mkdir(path, 0o755)) })
	case "setuid":
		return number(syscall.Setuid(n)) // all threads
	case "drop":
		return w.on(n, func() string { return number(dropOverride()) })
	case "busy":
		w.threads[os.Getpid()] <- func() {
			// Until the process ends. The pauses are for the kernel: a task that was
			// moved while it ran and is never switched away may count for where it was.
			for pause := (unix.Timespec{Nsec: 1e6}); ; _ = unix.Nanosleep(&pause, nil) {
				for range 1_000_000 {
					runtime.KeepAlive(w)
				}
			}
		}
	case "end":
		w.end(n)
	case "zombie":
		_ = w.children[n].Process.Kill()
		var si unix.Siginfo
		_ = unix.Waitid(unix.P_PID, n, &si, unix.WEXITED|unix.WNOWAIT, nil)
	}
	return "done"
}

func (w *worker) thread() int {
	tid, todo := make(chan int), make(chan func())
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		for do := range todo {
			do()
		}
	}()
	id := <-tid
	w.threads[id] = todo
	return id
}

// fork starts a child on the calling thread.
func (w *worker) fork() string {
	cmd := exec.Command("cat") // until its input ends
	cmd.Stdin = w.alive
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	w.children[cmd.Process.Pid] = cmd
	return strconv.Itoa(cmd.Process.Pid)
}

// orphan starts a shell on the calling thread, which starts a process and ends.
func (w *worker) orphan() string {
	cmd := exec.Command("sh", "-c", "cat <&3 >/dev/null 2>&1 & echo $!")
	cmd.ExtraFiles = []*os.File{w.alive}
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func (w *worker) end(pid int) {
	if cmd := w.children[pid]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(w.children, pid)
	}
}

// write makes one write(2) on the calling thread; it answers with its errno.
func write(path, data string) string {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(data))
		_ = unix.Close(fd)
	}
	return number(err)
}

// number is an errno as the answer to an order.
func number(err error) string {
	if e, is := err.(syscall.Errno); is {
		return strconv.Itoa(int(e))
	}
	return "0"
}

// dropOverride takes CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH from the calling
// thread.
func dropOverride() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	data[0].Permitted &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	return unix.Capset(&header, &data[0])
}
