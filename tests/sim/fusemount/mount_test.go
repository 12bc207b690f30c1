package fusemount_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
)

// crashDir makes the test binary mount there, say so and wait to be killed.
const crashDir = "SIM_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		source := sim.NewProcSource("/proc", false)
		model := sim.New(sim.DefaultConfig(), sim.RealClock{}, source)
		_, err := fusemount.New(dir, fusemount.Options{Model: model, Cgroups: sim.NewCgroups(source), Source: source})
		f, ferr := os.Open(filepath.Join(dir, "resctrl/tasks")) // must not keep us from dying
		fmt.Println("mounted", err, ferr)
		_, _ = os.Stdin.Read(make([]byte, 1))
		f.Close()
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// mount mounts a node over the host's processes.
func mount(t *testing.T, change ...func(*sim.Config)) *fusemount.Mount {
	t.Helper()
	cfg := sim.DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	source := sim.NewProcSource("/proc", false)
	m, err := fusemount.New(filepath.Join(t.TempDir(), "node"), fusemount.Options{
		Model: sim.New(cfg, sim.RealClock{}, source), Cgroups: sim.NewCgroups(source),
		Source: source, HostProc: "/proc",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// shell is a process of ours that forks on demand.
type shell struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func startShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, cmd: exec.Command("/bin/sh")}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdin, s.cmd.Stdout, s.in, s.out = inR, outW, inW, bufio.NewScanner(outR)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		_ = s.cmd.Wait()
		inW.Close()
		outR.Close()
	})
	return s
}

// do runs a line and returns what it prints.
func (s *shell) do(line string) string {
	s.t.Helper()
	fmt.Fprintln(s.in, line)
	if !s.out.Scan() {
		s.t.Fatalf("the shell ended at %q", line)
	}
	return s.out.Text()
}

// fork makes the shell start a process that stays; its PID.
func (s *shell) fork() string { s.t.Helper(); return s.do("sleep 1000 & echo $!") }

func (s *shell) pid() string { return fmt.Sprint(s.cmd.Process.Pid) }

func wantErr(t *testing.T, err, want error, what string) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != want {
		t.Fatalf("%s is %q (%v), want %q", path, data, err, want)
	}
}

func write(path, data string) error { return os.WriteFile(path, []byte(data), 0) }

func TestGroupsAndTasks(t *testing.T) {
	t.Parallel()
	m := mount(t)
	group := filepath.Join(m.Resctrl(), "mon_groups", "pod_1")
	tasks := filepath.Join(group, "tasks")
	wantErr(t, os.Mkdir(group, 0o755), nil, "mkdir")
	wantErr(t, os.Mkdir(group, 0o755), syscall.EEXIST, "mkdir again")
	s := startShell(t)
	before := s.fork()
	wantErr(t, write(tasks, s.pid()), nil, "write")
	after := s.fork()
	wantFile(t, tasks, s.pid()+"\n"+after+"\n")
	for pid, want := range map[string]string{before: "res:/\nmon:\n", after: "res:/\nmon:pod_1\n"} {
		wantFile(t, filepath.Join(m.Proc(), pid, "cpu_resctrl_groups"), want)
	}
	wantErr(t, write(tasks, "abc"), syscall.EINVAL, "garbage")
	wantFile(t, filepath.Join(m.Resctrl(), "info/last_cmd_status"), "Task list parsing error pid abc\n")
	wantErr(t, write(filepath.Join(m.Resctrl(), "new"), "x"), syscall.EACCES, "create a file")
	wantErr(t, os.Remove(tasks), syscall.EPERM, "unlink")

	moved := filepath.Join(m.Resctrl(), "mon_groups", "pod_2")
	wantErr(t, unix.Rename(group, moved), nil, "rename")
	wantFile(t, filepath.Join(moved, "tasks"), s.pid()+"\n"+after+"\n")
	wantErr(t, write(tasks, s.pid()), syscall.ENOENT, "write to the old name")
	wantErr(t, unix.Rmdir(moved), nil, "rmdir")
	wantFile(t, filepath.Join(m.Proc(), after, "cpu_resctrl_groups"), "res:/\nmon:\n")
}

func TestStaleDescriptor(t *testing.T) {
	t.Parallel()
	m := mount(t)
	group := filepath.Join(m.Resctrl(), "mon_groups", "a")
	wantErr(t, os.Mkdir(group, 0o755), nil, "mkdir")
	f, err := os.OpenFile(filepath.Join(group, "tasks"), os.O_RDWR|os.O_APPEND|os.O_TRUNC, 0)
	wantErr(t, err, nil, "open")
	defer f.Close()
	wantErr(t, unix.Rmdir(group), nil, "rmdir")
	wantErr(t, os.Mkdir(group, 0o755), nil, "mkdir again")
	_, err = f.Write([]byte("1"))
	wantErr(t, err, syscall.ENODEV, "write")
	_, err = f.Read(make([]byte, 10))
	wantErr(t, err, syscall.ENODEV, "read")
	wantErr(t, m.Model.Unmount(), syscall.EBUSY, "umount with an open descriptor")
}

func TestRemount(t *testing.T) {
	t.Parallel()
	m := mount(t)
	group := filepath.Join(m.Resctrl(), "mon_groups", "a")
	wantErr(t, os.Mkdir(group, 0o755), nil, "mkdir")
	wantErr(t, m.UnmountResctrl(), nil, "umount")
	entries, err := os.ReadDir(m.Resctrl())
	if err != nil || len(entries) != 0 {
		t.Fatalf("unmounted root has %v, %v", entries, err)
	}
	wantErr(t, os.Mkdir(filepath.Join(m.Resctrl(), "x"), 0o755), syscall.ENOENT, "mkdir while unmounted")
	wantErr(t, m.Model.Mount(), nil, "mount")
	_, err = os.Stat(group)
	wantErr(t, err, syscall.ENOENT, "the group after the remount")
	wantErr(t, os.Mkdir(group, 0o755), nil, "mkdir")
}

func TestCgroupTree(t *testing.T) {
	t.Parallel()
	m := mount(t)
	s := startShell(t)
	early := s.fork()
	wantErr(t, m.Cgroups.AddCgroup("/kubepods/pod1/c1"), nil, "add cgroup")
	wantErr(t, m.Cgroups.AddProcess("/kubepods/pod1/c1", s.cmd.Process.Pid), nil, "add process")
	late := s.fork()
	dir := filepath.Join(m.Cgroup(), "kubepods/pod1/c1")
	wantFile(t, filepath.Join(dir, "cgroup.procs"), strings.Join([]string{s.pid(), early, late, ""}, "\n"))
	wantFile(t, filepath.Join(dir, "cgroup.threads"), strings.Join([]string{s.pid(), early, late, ""}, "\n"))
	wantFile(t, filepath.Join(m.Proc(), late, "cgroup"), "0::/kubepods/pod1/c1\n")
	wantErr(t, os.Mkdir(filepath.Join(dir, "inner"), 0o755), nil, "mkdir")
	wantErr(t, write(filepath.Join(dir, "inner/cgroup.procs"), late), nil, "move")
	wantFile(t, filepath.Join(dir, "inner/cgroup.procs"), late+"\n")
	wantFile(t, filepath.Join(dir, "cgroup.procs"), s.pid()+"\n"+early+"\n")
	wantErr(t, m.Cgroups.RemoveCgroup("/kubepods/pod1"), syscall.EBUSY, "remove with processes")
	if _, err := os.Stat(filepath.Join(m.Cgroup(), "cgroup.controllers")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(m.Proc(), "sys/kernel/random/boot_id"), m.BootID()+"\n")
	m.SetBootID("another")
	wantFile(t, filepath.Join(m.Proc(), "sys/kernel/random/boot_id"), "another\n")
}

func TestFaults(t *testing.T) {
	t.Parallel()
	m := mount(t)
	m.Faults.Add(fusemount.Fault{Op: "mkdir", Path: "mon_groups/pod_", Errno: syscall.EIO, Times: 1})
	group := filepath.Join(m.Resctrl(), "mon_groups", "pod_1")
	wantErr(t, os.Mkdir(filepath.Join(m.Resctrl(), "mon_groups", "x"), 0o755), nil, "another path")
	wantErr(t, os.Mkdir(group, 0o755), syscall.EIO, "first")
	wantErr(t, os.Mkdir(group, 0o755), nil, "second")
}

// TestCrash: killed, a process leaves no mount, also when it has files of its
// own mount open.
func TestCrash(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "node")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	stdin, err := cmd.StdinPipe()
	wantErr(t, err, nil, "pipe")
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	wantErr(t, err, nil, "pipe")
	wantErr(t, cmd.Start(), nil, "start")
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "mounted <nil> <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "resctrl/tasks")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, cmd.Process.Kill(), nil, "kill")
	_ = cmd.Wait()
	// The guard is a process of its own: wait for it, as long as the test may.
	for {
		if _, err := os.Stat(filepath.Join(dir, "resctrl")); errors.Is(err, syscall.ENOENT) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestUnmountWithCopy: a mount namespace that was made meanwhile has a copy of
// the mount.
func TestUnmountWithCopy(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a mount namespace here")
	}
	m := mount(t)
	cmd := exec.Command("/bin/sh", "-c", "echo up; cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	stdin, err := cmd.StdinPipe()
	wantErr(t, err, nil, "pipe")
	stdout, err := cmd.StdoutPipe()
	wantErr(t, err, nil, "pipe")
	wantErr(t, cmd.Start(), nil, "start")
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	wantErr(t, m.Unmount(), nil, "unmount")
	stdin.Close()
	wantErr(t, cmd.Wait(), nil, "wait")
}

// TestUnmountWhileInUse: a program that still has a file open does not keep
// the test from ending.
func TestUnmountWhileInUse(t *testing.T) {
	t.Parallel()
	if entries, _ := os.ReadDir("/sys/fs/fuse/connections"); os.Geteuid() != 0 && len(entries) == 0 {
		t.Skip("without fusectl an ordinary user cannot end a connection that is in use")
	}
	m := mount(t)
	f, err := os.Open(filepath.Join(m.Resctrl(), "tasks"))
	wantErr(t, err, nil, "open")
	defer f.Close()
	wantErr(t, m.Unmount(), nil, "unmount")
	if _, err := os.Stat(m.Resctrl()); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("still there: %v", err)
	}
}
