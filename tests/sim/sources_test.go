package sim_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// TestTIDUsedAgain: another task with the TID is where its parent is.
func TestTIDUsedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	pid := w.script.Spawn()
	tid := w.script.Clone(pid)
	w.want(w.write("mon_groups/m/tasks", fmt.Sprintf("%d,%d", pid, tid)), nil, "write")
	w.want(w.write("tasks", fmt.Sprint(pid)), nil, "write")
	task, _ := w.script.Task(tid)
	task.Start, task.Creator = 0, 0 // a new one
	w.script.Put(task)
	w.wantGroup(tid, "res:/ mon:") // its leader's
	if got := w.read("mon_groups/m/tasks"); got != "" {
		t.Fatalf("the group has %q", got)
	}
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(pid)), nil, "write")
	w.script.Put(sim.Task{TID: pid, PPID: 1})
	w.wantGroup(pid, "res:/ mon:")
}

func TestPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	w.script.Put(sim.Task{TID: 500, PPID: 1, UID: 1000})
	w.script.Put(sim.Task{TID: 501, PPID: 1, UID: 1001})
	by := sim.Caller{TID: 500, UID: 1000}
	w.want(w.WriteFile("mon_groups/m/tasks", []byte("500,501"), by), syscall.EPERM, "somebody else's")
	w.wantStatus("No permission to move task 501\nError while processing task 501\n")
	w.wantGroup(500, "res:/ mon:m")
	w.wantGroup(501, "res:/ mon:")
}

// TestSourceWithoutNotice: what was there before a write does not follow it,
// also where forks are only seen later.
func TestSourceWithoutNotice(t *testing.T) {
	t.Parallel()
	script := sim.NewScript()
	w := &world{t: t, script: script, clock: sim.NewManualClock()}
	w.Model = sim.New(sim.DefaultConfig(), w.clock, quiet{script})
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	pid := script.Spawn()
	before, thread := script.Fork(pid), script.Clone(pid)
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(pid)), nil, "write")
	after, late := script.Fork(pid), script.Clone(pid)
	w.wantGroup(before, "res:/ mon:")
	w.wantGroup(thread, "res:/ mon:")
	w.wantGroup(after, "res:/ mon:m")
	w.wantGroup(late, "res:/ mon:m")
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(thread)), nil, "a thread that is known")
	w.wantGroup(thread, "res:/ mon:m")
	again := script.Clone(pid)
	w.want(w.write("tasks", fmt.Sprint(again)), nil, "a thread that is not")
	w.wantGroup(again, "res:/ mon:")
	w.wantGroup(late, "res:/ mon:m")
}

// quiet hides that the script notifies and who created a task.
type quiet struct{ s *sim.Script }

func (q quiet) Processes() ([]sim.Task, error)        { return hide(q.s.Processes()) }
func (q quiet) Threads(tgid int) ([]sim.Task, error)  { return hide(q.s.Threads(tgid)) }
func (q quiet) Task(tid int) (t sim.Task, found bool) { return q.s.Task(tid) }
func hide(list []sim.Task, err error) ([]sim.Task, error) {
	for i := range list {
		list[i].Creator = 0
	}
	return list, err
}

func TestCgroups(t *testing.T) {
	t.Parallel()
	script := sim.NewScript()
	c := sim.NewCgroups(script)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.AddCgroup("/pods/a/x"))
	shim := script.Spawn()
	pid := script.Fork(shim)
	early := script.Fork(pid)
	must(c.AddProcess("/pods/a", pid))
	child := script.Fork(pid)
	thread := script.Clone(child)
	must(c.MoveProcess("/pods/a/x", child))
	outside := script.Fork(shim)
	script.Exit(pid) // early is an orphan now, and stays
	grandchild := script.Fork(early)
	check := func(path string, deep bool, want ...int) {
		t.Helper()
		got, err := c.Threads(path, deep)
		slices.Sort(want)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s has %v (%v), want %v", path, got, err, want)
		}
	}
	check("/pods/a", false, early, grandchild)
	check("/pods/a", true, early, grandchild, child, thread)
	check("/pods/a/x", true, child, thread)
	if p, err := c.Of(outside); p != "/" || err != nil {
		t.Fatalf("%d is in %q, %v", outside, p, err)
	}
	if err := c.RemoveCgroup("/pods"); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("remove: %v", err)
	}
	zombie, _ := script.Task(early)
	zombie.Zombie = true
	script.Put(zombie)
	script.Exit(grandchild)
	script.Exit(child)
	check("/pods", true)
	must(c.RemoveCgroup("/pods"))
	if _, err := c.Threads("/pods/a", true); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("list: %v", err)
	}
	if err := c.AddProcess("/", 99999); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("add: %v", err)
	}
}

// TestProcSource reads this machine's /proc: a tracked shell and what it forks.
func TestProcSource(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sh", "-c", "exec 3<&0; cat <&3 & echo $!; wait")
	stdin, err := cmd.StdinPipe() // the children's too: they end with it
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer stdin.Close()
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	child, err := strconv.Atoi(line[:max(len(line)-1, 0)])
	if err != nil {
		t.Fatalf("%q", line)
	}
	s := sim.NewProcSource("/proc", false)
	if list, err := s.Processes(); len(list) != 0 || err != nil {
		t.Fatalf("nothing is tracked, and there are %v (%v)", list, err)
	}
	shell := cmd.Process.Pid
	if !s.Track(shell) || s.Track(shell) || s.Track(1<<30) {
		t.Fatal("Track")
	}
	list, err := s.Processes()
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, task := range list {
		if task.TID != shell && (task.TID != child || task.PPID != shell) || task.Start == 0 || task.Zombie {
			t.Fatalf("%+v", task)
		}
	}
	self, ok := s.Task(os.Getpid())
	threads, err := s.Threads(os.Getpid())
	if !ok || err != nil || self.TGID != os.Getpid() || self.UID != uint32(os.Getuid()) || len(threads) < 2 {
		t.Fatalf("%+v, %d threads, %v", self, len(threads), err)
	}
	other := threads[len(threads)-1]
	if task, ok := s.Task(other.TID); !ok || task.TGID != os.Getpid() || task.Start != other.Start {
		t.Fatalf("thread %+v is %+v", other, task)
	}
	if list, err := s.Threads(1 << 30); len(list) != 0 || err != nil {
		t.Fatalf("%v, %v", list, err)
	}
	if list, _ := sim.NewProcSource("/proc", true).Processes(); len(list) < 3 {
		t.Fatalf("%d processes on the machine", len(list))
	}
}
