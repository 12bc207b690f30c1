package nrirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endGrace is how long a workload may take to end when it is asked to; the
// one with children uses it to reap them, everything else ends at once.
const endGrace = 5 * time.Second

// process is a real process of a container.
type process struct {
	pid     int
	control *os.File      // our end of its control socket
	exited  chan struct{} // closed when it was reaped
	ready   chan struct{} // closed when the workload is set up
	state   *os.ProcessState
}

// startProcess starts a workload in a process group of its own, behind the
// gate if asked.
func startProcess(words []string, gated bool, output io.Writer) (*process, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a control socket: %w", err)
	}
	// Ours is polled by the Go runtime, so that Close ends a Read; the
	// workload's is a plain blocking one.
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, fmt.Errorf("make a control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()

	if gated {
		words = append([]string{"gate"}, words...)
	}
	cmd := exec.Command(exe)
	cmd.Args = append([]string{workloadName}, words...)
	// A program built with -race otherwise takes a second to end.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+dir)
	}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Children may hold the output open after the workload was killed.
	cmd.WaitDelay = endGrace
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start workload %v: %w", words, err)
	}
	p := &process{pid: cmd.Process.Pid, control: ours, exited: make(chan struct{}), ready: make(chan struct{})}
	go p.listen()
	go func() {
		cmd.Wait()
		p.state = cmd.ProcessState
		ours.Close()
		close(p.exited)
	}()
	return p, nil
}

// listen waits for the workload to say that it is set up.
func (p *process) listen() {
	n, err := p.control.Read(make([]byte, 1))
	if n == 1 && err == nil {
		close(p.ready)
	}
}

// open opens the gate. A process that is dead already is no failure, as it is
// none for a runtime.
func (p *process) open() { p.control.Write([]byte("g")) }

// alive says whether it has not been reaped.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// end ends the process and all of its process group and waits.
func (p *process) end() error {
	if p.alive() {
		unix.Kill(p.pid, unix.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(endGrace):
		}
	}
	return p.kill()
}

// kill kills the process group and waits for the process.
func (p *process) kill() error {
	// Once the leader was reaped its number may be another's; what it left
	// behind ends with the control socket.
	if p.alive() {
		if err := unix.Kill(-p.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process group %d: %w", p.pid, err)
		}
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(2 * endGrace):
		return fmt.Errorf("process %d does not end after a SIGKILL", p.pid)
	}
}

// waitReady waits until the workload is set up or has ended.
func (p *process) waitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
