//go:build linux && amd64

// Package tracer runs a program and does something to it at the Nth system
// call of a kind: kills it before the call, or after it, or in the middle of a
// write, or makes the call fail. The program needs no hook for it, and the
// count is of the whole process, whichever of its threads makes the call.
//
// It works by ptrace(2), for linux/amd64, in a process of its own: the
// program's own executable started again. Whoever uses it must call
// RunIfAsked first thing in TestMain.
package tracer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// order is the variable that makes a process a tracer.
const order = "FAULTS_TRACER"

// Moment is when the fault happens.
type Moment string

// The moments.
const (
	Before Moment = "before" // killed, the call was not made
	After  Moment = "after"  // killed, the call was made
	Half   Moment = "half"   // killed, half of what was to be written was written
	Fail   Moment = "fail"   // the call is not made and gives Errno; the program goes on
)

// Plan is what to do. Its zero value only counts.
type Plan struct {
	Point  string        // one of Points
	N      int           // at the Nth call of it, from 1; 0: never
	Moment Moment        //
	Errno  syscall.Errno // of Fail
	Times  int           // of Fail: how many calls in a row fail; 0 is one
	Touch  bool          // list the paths that are changed
	Rotate Rotation
}

// Rotation is somebody else who renames a file right before the Nth call of a
// point.
type Rotation struct {
	Point    string
	N        int // 0: never
	From, To string
}

// Report is what was seen.
type Report struct {
	Calls map[string]int // how often each point was reached
	Hit   string         // the call at which the fault happened; "" when it did not
	// Rotated are the calls made when the rotation happened; nil when it did not.
	Rotated map[string]int
	// Touched are the paths that were made, removed, renamed, changed or opened
	// for writing, as the program named them.
	Touched map[string]int
}

type work struct {
	Plan
	Report string
	Argv   []string
}

// Command makes the command that runs a program under the plan. After it has
// run, Read(report) tells what was seen; its exit code is the program's, or
// 137 where it was killed. Signals are for the process group, which is the
// command's; SIGTERM ends the program, not its tracer. The file report.pid has
// the program's pid.
func Command(p Plan, report, program string, args ...string) (*exec.Cmd, error) {
	text, err := json.Marshal(work{Plan: p, Report: report, Argv: append([]string{program}, args...)})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), order+"="+string(text))
	cmd.Dir = filepath.Dir(report)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// Read reads a report.
func Read(path string) (Report, error) {
	var r Report
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// RunIfAsked becomes a tracer if this process was started as one, and then
// does not return.
func RunIfAsked() {
	text := os.Getenv(order)
	if text == "" {
		return
	}
	os.Unsetenv(order)
	code, err := run(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tracer:", err)
		code = 125
	}
	os.Exit(code)
}

func run(text string) (int, error) {
	var w work
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return 0, err
	}
	// Not ignored: that would be inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	t := &tracer{plan: w.Plan, pidFile: w.Report + ".pid", report: Report{Calls: map[string]int{}, Touched: map[string]int{}}, pending: map[int]func(*syscall.PtraceRegs){}}
	code, err := t.trace(w.Argv)
	out, merr := json.Marshal(t.report)
	return code, errors.Join(err, merr, os.WriteFile(w.Report, out, 0o600))
}
