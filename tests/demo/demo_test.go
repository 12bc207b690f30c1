package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// built is where the demo and the programs were built for all tests.
var built string

func TestMain(m *testing.M) {
	nrirt.RunWorkload()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	shop, err := world.NewWorkshop(false)
	if err == nil {
		defer shop.Close()
		if err = shop.Build(); err == nil {
			built = shop.Bin
			var out []byte
			if out, err = exec.Command("go", "build", "-o", shop.Program("demo"), ".").CombinedOutput(); err != nil {
				err = fmt.Errorf("build the demo: %w\n%s", err, out)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// staged is a demo with a directory for temporary files of its own.
type staged struct {
	t         *testing.T
	cmd       *exec.Cmd
	tmp, keep string
	out       bytes.Buffer
}

func stage(t *testing.T, args ...string) *staged {
	t.Helper()
	tmp, err := os.MkdirTemp("", "demo-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	s := &staged{t: t, tmp: tmp, keep: t.TempDir()}
	args = append([]string{"--bin", built, "--pace", "0s", "--keep", s.keep}, args...)
	s.cmd = exec.Command(filepath.Join(built, "demo"), args...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return s
}

// play runs it to its end and gives the exit code.
func (s *staged) play() int {
	s.t.Helper()
	var exit *exec.ExitError
	if err := s.cmd.Run(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode()
}

// traces lists what is left behind: files, mounts and processes.
func (s *staged) traces() error {
	var found []string
	entries, err := os.ReadDir(s.tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		found = append(found, filepath.Join(s.tmp, e.Name()))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, s.tmp) {
			found = append(found, "mount "+line)
		}
	}
	procs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return err
	}
	for _, p := range procs {
		dir := filepath.Dir(p)
		environ, _ := os.ReadFile(p) // it may be gone, or another's
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.Contains(string(environ)+string(cmdline), s.tmp) {
			found = append(found, fmt.Sprintf("process %s: %q", filepath.Base(dir), cmdline))
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("left behind:\n%s", strings.Join(found, "\n"))
	}
	return nil
}

func TestDemo(t *testing.T) {
	t.Parallel()
	s := stage(t)
	begin := time.Now()
	if code := s.play(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, &s.out)
	}
	t.Logf("took %s", time.Since(begin).Round(time.Millisecond))
	if err := judge(s.keep); err != nil {
		t.Errorf("%v\n%s", err, &s.out)
	}
	if err := s.traces(); err != nil {
		t.Error(err)
	}
	for want, shown := range map[string]bool{
		"exit code 75": true, "kill -9": true, "resctrlctl status": true, "What to do next": true,
		"What is wrong": false, // status has nothing to complain of
		"\x1b[":         false, // no terminal, no colours
	} {
		if strings.Contains(s.out.String(), want) != shown {
			t.Errorf("%q: want it shown: %v:\n%s", want, shown, &s.out)
		}
	}
	t.Run("tampered", func(t *testing.T) { testJudge(t, s.keep) })
}

// TestDemoWithoutApplier: without the applier there is no story, and the judge
// sees it by what was left.
func TestDemoWithoutApplier(t *testing.T) {
	t.Parallel()
	s := stage(t, "--without", world.ApplierProgram, "--patience", "500ms")
	if code := s.play(); code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, &s.out)
	}
	if err := judge(s.keep); err == nil {
		t.Errorf("the judge has no objection:\n%s", &s.out)
	}
	if err := s.traces(); err != nil {
		t.Error(err)
	}
}

// TestDemoInterrupted: Ctrl-C at the terminal is a SIGINT to the whole process
// group.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	s := interrupt(t, syscall.SIGINT)
	if code := s.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if err := s.traces(); err != nil {
		t.Error(err)
	}
}

// TestDemoKilled: nobody can clean up after a kill -9 but those who watch.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	s := interrupt(t, syscall.SIGKILL)
	if err := world.Until("nothing is left", s.traces); err != nil {
		t.Error(err)
	}
}

// interrupt plays until both daemons run and then sends the signal.
func interrupt(t *testing.T, sig syscall.Signal) *staged {
	t.Helper()
	s := stage(t, "--pace", "1s")
	read, write := io.Pipe()
	s.cmd.Stdout, s.cmd.Stderr = write, write
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		buf := make([]byte, 4096)
		var seen []byte
		done := false
		for {
			n, err := read.Read(buf)
			seen = append(seen, buf[:n]...)
			if !done && bytes.Contains(seen, []byte("Exists")) {
				done = true
				syscall.Kill(-s.cmd.Process.Pid, sig)
			}
			if err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	context.AfterFunc(ctx, func() { syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	s.cmd.Wait()
	write.Close()
	<-sent
	return s
}
