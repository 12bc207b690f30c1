//go:build linux && amd64

package tracer

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type tracer struct {
	plan    Plan
	report  Report
	pid     int
	pidFile string
	// pending is what is done at the exit of a thread's present call.
	pending map[int]func(*syscall.PtraceRegs)
}

// trace runs argv to its end and gives its exit code.
func (t *tracer) trace(argv []string) (int, error) {
	runtime.LockOSThread() // ptrace is a thread's
	proc, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	t.pid = proc.Pid
	if err := os.WriteFile(t.pidFile, []byte(strconv.Itoa(t.pid)), 0o600); err != nil {
		return 0, err
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(t.pid, &ws, unix.WALL, nil); err != nil {
		return 0, fmt.Errorf("wait for the start: %w", err)
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return 0, fmt.Errorf("ptrace: %w", err)
	}
	for tid := t.pid; ; {
		sig := 0
		if tid != 0 {
			if sig = t.stopped(tid, ws); sig >= 0 {
				if err := unix.PtraceSyscall(tid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
					return 0, fmt.Errorf("go on: %w", err)
				}
			}
		}
		if tid, err = unix.Wait4(-1, &ws, unix.WALL, nil); err != nil {
			if errors.Is(err, unix.EINTR) {
				tid = 0
				continue
			}
			return 0, fmt.Errorf("wait: %w", err)
		}
		if ws.Exited() || ws.Signaled() {
			if tid == t.pid {
				return exitCode(ws), nil
			}
			delete(t.pending, tid)
			tid = 0
		}
	}
}

func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// stopped handles a stop, and gives the signal with which the thread goes on;
// -1: it does not, it was killed.
func (t *tracer) stopped(tid int, ws unix.WaitStatus) int {
	sig := ws.StopSignal()
	switch {
	case sig == unix.SIGTRAP|0x80:
		return t.call(tid)
	case sig == unix.SIGTRAP, sig == unix.SIGSTOP: // exec, clone, a new thread
		return 0
	}
	return int(sig)
}

// callInfo is the beginning of struct ptrace_syscall_info (ptrace(2)).
type callInfo struct {
	op uint8
	_  [87]byte
}

// call handles the entry or the exit of a call.
func (t *tracer) call(tid int) int {
	var info callInfo
	const getSyscallInfo, entry = 0x420e, 1
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	var regs syscall.PtraceRegs
	if errno != 0 || syscall.PtraceGetRegs(tid, &regs) != nil {
		return 0 // killed meanwhile
	}
	if info.op != entry {
		if do := t.pending[tid]; do != nil {
			delete(t.pending, tid)
			do(&regs)
			syscall.PtraceSetRegs(tid, &regs)
		}
		return 0
	}
	if t.plan.Touch {
		for _, path := range touched(tid, &regs) {
			t.report.Touched[path]++
		}
	}
	point, path := pointOf(tid, &regs)
	if point == "" {
		return 0
	}
	t.report.Calls[point]++
	if r := t.plan.Rotate; r.N > 0 && r.Point == point && r.N == t.report.Calls[point] {
		if err := os.Rename(r.From, r.To); err == nil {
			t.report.Rotated = maps.Clone(t.report.Calls)
		}
	}
	if point != t.plan.Point || !t.due() {
		return 0
	}
	t.report.Hit = fmt.Sprintf("%s %d, %s: %s", point, t.report.Calls[point], t.plan.Moment, path)
	return t.fault(tid, &regs)
}

// due says whether the call that was counted last is one to do something to.
func (t *tracer) due() bool {
	n := t.report.Calls[t.plan.Point]
	if t.plan.Moment == Fail {
		return t.plan.N > 0 && n >= t.plan.N && n < t.plan.N+max(1, t.plan.Times)
	}
	return n == t.plan.N
}

func (t *tracer) fault(tid int, regs *syscall.PtraceRegs) int {
	kill := func(*syscall.PtraceRegs) { unix.Kill(t.pid, unix.SIGKILL) }
	switch t.plan.Moment {
	case Before:
		kill(nil)
		return -1
	case After:
		t.pending[tid] = kill
	case Half:
		regs.Rdx /= 2
		syscall.PtraceSetRegs(tid, regs)
		t.pending[tid] = kill
	case Fail:
		regs.Orig_rax = ^uint64(0) // no call
		syscall.PtraceSetRegs(tid, regs)
		t.pending[tid] = func(r *syscall.PtraceRegs) { r.Rax = uint64(-int64(t.plan.Errno)) }
	}
	return 0
}
