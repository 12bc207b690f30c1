package sim_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// world is a model on a scripted source with calls by path.
type world struct {
	t *testing.T
	*sim.Model
	script *sim.Script
	clock  *sim.ManualClock
}

func newWorld(t *testing.T, change ...func(*sim.Config)) *world {
	t.Helper()
	cfg := sim.DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	w := &world{t: t, script: sim.NewScript(), clock: sim.NewManualClock()}
	w.Model = sim.New(cfg, w.clock, w.script)
	return w
}

func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

func (w *world) mkdir(path string) error {
	dir, name := split(path)
	n, err := w.Walk(dir)
	if err == nil {
		_, err = w.Mkdir(n, name, 0o755, sim.Caller{})
	}
	return err
}

func (w *world) rmdir(path string) error {
	dir, name := split(path)
	n, err := w.Walk(dir)
	if err == nil {
		err = w.Rmdir(n, name)
	}
	return err
}

func (w *world) rename(from, to string) error {
	dir, name := split(from)
	n, err := w.Walk(dir)
	if err != nil {
		return err
	}
	dir2, name2 := split(to)
	n2, err := w.Walk(dir2)
	if err != nil {
		return err
	}
	return w.Rename(n, name, n2, name2)
}

func (w *world) write(path, data string) error {
	return w.WriteFile(path, []byte(data), sim.Caller{TID: 1})
}

func (w *world) read(path string) string {
	w.t.Helper()
	data, err := w.ReadFile(path)
	if err != nil {
		w.t.Fatalf("read %s: %v", path, err)
	}
	return string(data)
}

func (w *world) want(err, want error, what string) {
	w.t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		w.t.Fatalf("%s: got error %v, want %v", what, err, want)
	}
}

func (w *world) wantStatus(want string) {
	w.t.Helper()
	if got := w.read("info/last_cmd_status"); got != want {
		w.t.Fatalf("last_cmd_status is %q, want %q", got, want)
	}
}

func (w *world) wantGroup(tid int, want string) {
	w.t.Helper()
	got, err := w.TaskGroup(tid)
	if err != nil || strings.TrimSpace(strings.ReplaceAll(got, "\n", " ")) != want {
		w.t.Fatalf("task %d is in %q (%v), want %q", tid, got, err, want)
	}
}

func TestExhaustionAndLimbo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.NumRMIDs = 3 })
	w.want(w.mkdir("mon_groups/a"), nil, "first group")
	w.want(w.mkdir("b"), nil, "a control group takes the second RMID")
	w.want(w.mkdir("mon_groups/c"), syscall.ENOSPC, "third group")
	w.want(w.mkdir("c"), syscall.ENOSPC, "control group without an RMID")
	w.wantStatus("Out of RMIDs\nOut of RMIDs\n")
	w.want(w.rmdir("mon_groups/a"), nil, "rmdir")
	w.want(w.mkdir("mon_groups/c"), syscall.EBUSY, "the RMID is in limbo")
	w.clock.Advance(999 * time.Millisecond)
	w.want(w.mkdir("mon_groups/c"), syscall.EBUSY, "still in limbo")
	w.clock.Advance(time.Millisecond)
	w.want(w.mkdir("mon_groups/c"), nil, "out of limbo")
	w.wantStatus(strings.Repeat("Out of RMIDs\n", 4)) // not cleared by a mkdir that works
	w.want(w.mkdir("mon_groups/c"), syscall.EEXIST, "again")
	w.want(w.write("mon_groups/c/tasks", "\n"), nil, "write")
	w.wantStatus("ok\n")
}

func TestClosidsRunOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 7 {
		w.want(w.mkdir(fmt.Sprintf("g%d", i)), nil, "control group")
	}
	w.want(w.mkdir("g7"), syscall.ENOSPC, "eighth")
	w.wantStatus("Out of CLOSIDs\n")
	_, _, used := w.RMIDs()
	if used != 8 {
		t.Fatalf("%d RMIDs used, want 8", used)
	}
	w.want(w.rmdir("g3"), nil, "rmdir")
	w.want(w.mkdir("g7"), nil, "a CLOSID is free at once")
}

func TestWriteMovesOneThread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pid := w.script.Spawn()
	tids := w.script.CloneN(pid, 3)
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(pid)), nil, "leader")
	w.wantGroup(pid, "res:/ mon:m")
	w.wantGroup(tids[0], "res:/ mon:")
	w.want(w.write("mon_groups/m/tasks", fmt.Sprintf("%d,%d\n", tids[0], tids[1])), nil, "threads")
	w.wantGroup(tids[1], "res:/ mon:m")
	w.wantGroup(tids[2], "res:/ mon:")
	w.wantGroup(w.script.Fork(tids[2]), "res:/ mon:") // by the thread that forks
	w.wantGroup(w.script.Fork(tids[0]), "res:/ mon:m")
	w.wantGroup(w.script.Clone(pid), "res:/ mon:m")
	if got := strings.Count(w.read("mon_groups/m/tasks"), "\n"); got != 5 {
		t.Fatalf("%d tasks in the group, want 5:\n%s", got, w.read("mon_groups/m/tasks"))
	}
}

func TestListStopsAtFirstFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.script.Spawn(), w.script.Spawn()
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	w.want(w.write("mon_groups/m/tasks", fmt.Sprintf("%d,9999,%d", a, b)), syscall.ESRCH, "list")
	w.wantStatus("No task 9999\nError while processing task 9999\n")
	w.wantGroup(a, "res:/ mon:m")
	w.wantGroup(b, "res:/ mon:")
	w.want(w.write("mon_groups/m/tasks", strings.Repeat("1,", 2048)+"1"), syscall.E2BIG, "4097 bytes")
}
