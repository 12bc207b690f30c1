package engine_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func TestSandboxLifecycle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.checkGroups("", "pod_a")
	r.startContainer("s1", "c1", 6)
	r.expect("a Exists (0,0)", "a Exists (1,0)", "a Exists (1,1)")
	if n := r.outside(r.cont["c1"].CgroupsPath, "mon_groups/pod_a"); n != 0 {
		t.Errorf("%d tasks outside the group", n)
	}
	r.event(lifecycle.StopContainer, "s1", "c1")
	r.event(lifecycle.RemoveContainer, "s1", "c1")
	r.event(lifecycle.RemovePodSandbox, "s1", "")
	r.expect("a Exists (0,0)", "Removed a")
	r.checkGroups("")
}

func TestSynchronizeCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.runtimeStart("s1", "c1", 50)
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (1,1)")
	r.startContainer("s1", "late", 3)
	r.expect("a Exists (2,1)", "a Exists (2,2)")
	for _, id := range []string{"c1", "late"} {
		if n := r.outside(r.cont[id].CgroupsPath, "mon_groups/pod_a"); n != 0 {
			t.Errorf("%s: %d tasks outside the group", id, n)
		}
	}
	// A pod that was there before is removed.
	r.event(lifecycle.RemovePodSandbox, "s1", "")
	r.expect("Removed a")
	r.checkGroups("")
}

func TestDuplicateEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	for range 2 {
		r.event(lifecycle.RunPodSandbox, "s1", "")
	}
	r.startContainer("s1", "c1", 2)
	r.expect("a Exists (0,0)", "a Exists (1,0)", "a Exists (1,1)")
	for _, ev := range []lifecycle.Event{lifecycle.RunPodSandbox, lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.PostStartContainer} {
		c := "c1"
		if ev == lifecycle.RunPodSandbox {
			c = ""
		}
		r.event(ev, "s1", c)
	}
	r.expect()
	r.checkCounters("a", 1, 1)
}

// exhaust takes every RMID with groups of another tool.
func (r *rig) exhaust() {
	r.t.Helper()
	for i := 0; ; i++ {
		err := r.os.Mkdir(filepath.Join(root, "mon_groups", "tool"+string(rune('a'+i))))
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		r.must(err)
	}
}

func fewRMIDs(c *sim.Config) { c.NumRMIDs = 4 }

func TestCapacity(t *testing.T) {
	t.Parallel()
	r := newRig(t, fewRMIDs)
	r.exhaust()
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.runtimeStart("s1", "c1", 3)
	r.event(lifecycle.StartContainer, "s1", "c1")
	r.expect("a Failed (0,0) capacity", "a Failed (1,0) capacity")
	got, err := r.eng.RetryGroupCreation(t.Context(), "a")
	r.must(err)
	if got.Outcome != engine.GroupCapacity {
		t.Errorf("outcome %s", got.Outcome)
	}
	r.expect()
	r.must(r.os.Rmdir(root + "/mon_groups/toola"))
	if got, err = r.eng.RetryGroupCreation(t.Context(), "a"); err != nil || got.Outcome != engine.GroupCapacity {
		t.Errorf("while the RMID is in limbo (EBUSY): %v, %v", got.Outcome, err)
	}
	r.clock.Advance(2 * time.Second)
	if got, err = r.eng.RetryGroupCreation(t.Context(), "a"); err != nil || got.Outcome != engine.GroupCreated {
		t.Errorf("after limbo: %v, %v", got.Outcome, err)
	}
	r.expect("a Exists (1,0)")
	for range 2 { // the second changes nothing
		res, err := r.eng.RetryContainerReconcile(t.Context(), "c1")
		if err != nil || res.State != rules.ContainerReconciled {
			t.Errorf("container: %+v, %v", res, err)
		}
	}
	r.expect("a Exists (1,1)")
	if got, err = r.eng.RetryGroupCreation(t.Context(), "a"); err != nil || got.Outcome != engine.GroupPresent {
		t.Errorf("of a group that exists: %v, %v", got.Outcome, err)
	}
	if _, err := r.eng.RetryGroupCreation(t.Context(), "nobody"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("unknown pod: %v", err)
	}
	if _, err := r.eng.RetryContainerReconcile(t.Context(), "nothing"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("unknown container: %v", err)
	}
}

func TestRetryAllOnceStopsAtCapacity(t *testing.T) {
	t.Parallel()
	r := newRig(t, fewRMIDs)
	r.runtimeRun("ok", "s0")
	r.event(lifecycle.RunPodSandbox, "s0", "")
	r.exhaust()
	for _, uid := range []string{"b", "a", "c"} { // in the order of their failure
		r.runtimeRun(uid, "s-"+uid)
		r.event(lifecycle.RunPodSandbox, "s-"+uid, "")
		r.clock.Advance(time.Second)
	}
	// A container of the good pod whose tasks come only later.
	r.runtimeCreate("s0", "late")
	r.event(lifecycle.StartContainer, "s0", "late")
	r.runtimeStart("s0", "late", 4)
	r.expect("ok Exists (0,0)", "b Failed (0,0) capacity", "a Failed (0,0) capacity", "c Failed (0,0) capacity", "ok Exists (1,0)")
	r.os.Reset()
	pass := r.retryAll()
	if n := r.os.Count(memfs.OpMkdir); n != 1 {
		t.Errorf("%d mkdirs after a capacity error, want 1", n)
	}
	if len(pass.Groups) != 1 || pass.Groups[0].PodUID != "b" || pass.NotTried != 2 || !pass.OutOfCapacity() {
		t.Errorf("pass %+v", pass)
	}
	r.expect("ok Exists (1,1)")
	r.must(r.os.Rmdir(root + "/mon_groups/toola"))
	r.clock.Advance(2 * time.Second)
	r.retryAll()
	r.expect("b Exists (0,0)")
}

func TestCleanup(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, g := range []string{
		"mon_groups/pod_old", "mon_groups/pod_here", "mon_groups/other", "pod_ctrl", "pod_busy", "foreign",
		"foreign/mon_groups/pod_inside",
	} {
		r.must(r.os.Mkdir(filepath.Join(root, g)))
	}
	pid := r.tasks.Spawn()
	r.must(r.os.WriteFile(root+"/pod_busy/tasks", []byte(itoa(pid))))
	r.runtimeRun("here", "s1")
	r.snapshot(true)
	r.expect("here Exists (0,0)")
	r.checkGroups("", "other", "pod_here")
	r.checkGroups("foreign", "pod_inside")
	for path, want := range map[string]bool{"pod_ctrl": false, "pod_busy": true, "foreign": true} {
		if there, err := r.os.IsDir(filepath.Join(root, path)); err != nil || there != want {
			t.Errorf("%s: there %v, %v", path, there, err)
		}
	}
	if !strings.Contains(r.log.String(), "startup cleanup") {
		t.Error("cleanup was not logged")
	}
}

func TestFreshStartAndRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.runtimeStart("s1", "run", 3)
	r.runtimeCreate("s1", "created")
	r.runtimeRun("b", "s2")
	r.runtimeStart("s2", "exited", 1)
	r.tasks.Exit(r.cont["exited"].PID)
	r.cont["exited"].State, r.cont["exited"].PID = lifecycle.ContainerStopped, 0
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (1,0)", "a Exists (2,1)", "b Exists (0,0)", "b Exists (1,0)")
	rmid, err := r.model.RMID("mon_groups/pod_a")
	r.must(err)
	r.restart()
	r.snapshot(true)
	r.expect("a Exists (2,1)", "b Exists (1,0)")
	if again, err := r.model.RMID("mon_groups/pod_a"); err != nil || again != rmid {
		t.Errorf("the group was made anew: RMID %d was %d, %v", again, rmid, err)
	}
	r.runtimeStart("s1", "created", 2)
	r.event(lifecycle.StartContainer, "s1", "created")
	r.expect("a Exists (2,2)")
}

func TestThreadPoolGrowsWhileItIsAssigned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	pid := r.runtimeStart("s1", "c1", 10)
	outsider := r.tasks.Spawn() // exec'd: a child of the shim
	r.must(r.tree.AddProcess(r.cont["c1"].CgroupsPath, outsider))
	grown := 0
	r.cgroups.OnTasks(func(string) {
		if grown < 5 {
			grown++
			r.tasks.CloneN(outsider, 20)
			r.tasks.Fork(pid)
		}
	})
	r.snapshot(false)
	r.expect("a Exists (0,0)", "a Exists (1,1)")
	if n := r.outside(r.cont["c1"].CgroupsPath, "mon_groups/pod_a"); n != 0 || grown != 5 {
		t.Errorf("%d tasks outside the group, grown %d times", n, grown)
	}
}

func TestNestedCgroupsAndStrays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.runtimeStart("s1", "c1", 2)
	nested := r.cont["c1"].CgroupsPath + "/inner/most"
	r.must(r.tree.AddCgroup(nested))
	r.must(r.tree.AddProcess(nested, r.tasks.Spawn()))
	r.snapshot(false)
	r.expect("a Exists (0,0)", "a Exists (1,1)")
	stray := r.tasks.Spawn()
	r.must(r.tree.AddProcess(nested, stray))
	r.tasks.CloneN(stray, 7)
	if n := r.outside(nested, "mon_groups/pod_a"); n != 8 {
		t.Fatalf("%d strays, want 8", n)
	}
	r.sweep()
	r.expect()
	if n := r.outside(nested, "mon_groups/pod_a"); n != 0 {
		t.Errorf("%d strays after a sweep", n)
	}
}

func TestPodInAnotherControlGroup(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sim.Config){
		"6.12": func(*sim.Config) {},
		"6.1":  func(c *sim.Config) { c.Kernel61, c.Limbo = true, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change)
			r.must(r.os.Mkdir(root + "/gold"))
			r.runtimeRun("a", "s1")
			r.event(lifecycle.RunPodSandbox, "s1", "")
			r.checkGroups("", "pod_a")
			pid := r.runtimeStart("s1", "c1", 1)
			r.must(r.os.WriteFile(root+"/gold/tasks", []byte(itoa(pid))))
			r.event(lifecycle.StartContainer, "s1", "c1")
			r.expect("a Exists (0,0)", "a Exists (1,1)")
			r.checkGroups("")
			r.checkGroups("gold", "pod_a")
			r.event(lifecycle.RemovePodSandbox, "s1", "")
			r.expect("Removed a")
			r.checkGroups("gold")
		})
	}
}
