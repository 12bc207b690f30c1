package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// patience is how long anything may take that is waited for; it is for a
// machine with more to do than this.
const patience = 60 * time.Second

// Daemon is a started program.
type Daemon struct {
	Name string
	PID  int

	logPath string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it was reaped
	code    int           // valid then; -1 is a signal
}

// StartWatcher starts nri-watcher.
func (w *World) StartWatcher(args ...string) (*Daemon, error) {
	d, err := w.Start(WatcherProgram, args...)
	w.Watcher = d
	return d, err
}

// StartApplier starts resctrl-applier.
func (w *World) StartApplier(args ...string) (*Daemon, error) {
	d, err := w.Start(ApplierProgram, args...)
	w.Applier = d
	return d, err
}

// Start starts a program with this node's configuration; it ends with the
// world at the latest. Both of its outputs are its log.
func (w *World) Start(name string, args ...string) (*Daemon, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, context.Canceled
	}
	d := &Daemon{
		Name: name, ended: make(chan struct{}),
		logPath: filepath.Join(w.Dir, "log", fmt.Sprintf("%s.%d.log", name, len(w.daemons)+1)),
	}
	log, err := os.Create(d.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = w.command(name, args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d.PID = d.cmd.Process.Pid
	go func() {
		d.cmd.Wait()
		d.code = d.cmd.ProcessState.ExitCode()
		close(d.ended)
	}()
	w.daemons = append(w.daemons, d)
	return d, nil
}

func (w *World) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.shop.Program(name), append([]string{"--config", w.ConfigFile()}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = tethered()
	cmd.Dir = w.Dir
	return cmd
}

// Kill is kill -9; it returns when the process has been reaped.
func (d *Daemon) Kill() {
	d.Signal(syscall.SIGKILL)
	<-d.ended
}

// Stop asks it to end and waits; it is killed where it does not. It gives the
// exit code.
func (d *Daemon) Stop() (int, error) {
	d.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		return d.code, nil
	case <-time.After(patience):
		d.Kill()
		return -1, fmt.Errorf("%s (pid %d) does not end after SIGTERM", d.Name, d.PID)
	}
}

// Pause is SIGSTOP.
func (d *Daemon) Pause() { d.Signal(syscall.SIGSTOP) }

// Resume is SIGCONT.
func (d *Daemon) Resume() { d.Signal(syscall.SIGCONT) }

// Signal sends a signal, unless the process has ended.
func (d *Daemon) Signal(s syscall.Signal) {
	select {
	case <-d.ended: // the number may be another's by now
	default:
		d.cmd.Process.Signal(s)
	}
}

// Exit gives the exit code once it has ended by itself.
func (d *Daemon) Exit() (int, error) {
	select {
	case <-d.ended:
		return d.code, nil
	case <-time.After(patience):
		return -1, fmt.Errorf("%s (pid %d) does not end", d.Name, d.PID)
	}
}

// Signaled says whether it has ended by a signal.
func (d *Daemon) Signaled() bool { return !d.Alive() && d.code < 0 }

// Alive says whether it has not ended.
func (d *Daemon) Alive() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// Log is what it has written so far.
func (d *Daemon) Log() string {
	text, err := os.ReadFile(d.logPath)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// confessed finds in its log what no program may ever say.
func (d *Daemon) confessed() error {
	log := d.Log()
	for _, word := range []string{"WARNING: DATA RACE", "\npanic:", "\nfatal error:", "goroutine 1 ["} {
		if at := strings.Index(log, word); at >= 0 {
			return fmt.Errorf("%s (pid %d) said: %s", d.Name, d.PID, log[at:min(len(log), at+4000)])
		}
	}
	return nil
}

// Result is how a program ended.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs a program to its end.
func (w *World) Run(name string, args ...string) (Result, error) {
	return w.RunWith("", name, args...)
}

// RunWith is Run with a standard input.
func (w *World) RunWith(input, name string, args ...string) (Result, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return Result{Code: -1}, context.Canceled
	}
	w.runs.Add(1)
	w.mu.Unlock()
	defer w.runs.Done()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	plain := w.command(name, args...)
	cmd := exec.CommandContext(ctx, plain.Path, plain.Args[1:]...)
	cmd.Env, cmd.SysProcAttr, cmd.Dir = plain.Env, plain.SysProcAttr, plain.Dir
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return Result{Code: -1, Out: out.String(), Err: errs.String()}, errors.Join(fmt.Errorf("run %s: %w", name, err), ctx.Err())
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errs.String()}, nil
}

// Retry runs resctrl-retry once.
func (w *World) Retry(args ...string) (Result, error) { return w.Run(RetryProgram, args...) }

// Ctl runs resctrlctl.
func (w *World) Ctl(args ...string) (Result, error) { return w.Run(CtlProgram, args...) }

// Until asks again and again until ask has no complaint any more. Its last
// complaint is the error when patience is over.
func Until(what string, ask func() error) error { return UntilWithin(patience, what, ask) }

// UntilWithin is Until with a patience of its own.
func UntilWithin(d time.Duration, what string, ask func() error) error {
	deadline := time.Now().Add(d)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		time.Sleep(wait)
	}
}

// Daemons lists all that were started, also those that have ended.
func (w *World) Daemons() []*Daemon {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.daemons)
}
