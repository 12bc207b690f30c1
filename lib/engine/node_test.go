package engine_test

import (
	"errors"
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

func TestHostileUIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	uids := []string{"a/b", "a_b", "..", ".", "new\nline", strings.Repeat("x", 300), "", "ünï"}
	for i, uid := range uids {
		r.runtimeRun(uid, "s"+itoa(i))
		r.event(lifecycle.RunPodSandbox, "s"+itoa(i), "")
	}
	if n := len(r.groups("")); n != len(uids) {
		t.Errorf("%d groups for %d uids: %q", n, len(uids), r.groups(""))
	}
	for i := range uids {
		r.event(lifecycle.RemovePodSandbox, "s"+itoa(i), "")
	}
	r.checkGroups("")
}

func TestRebootWithTheOldDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.runtimeStart("s1", "c1", 2)
	r.runtimeRun("gone", "s2")
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (1,1)", "gone Exists (0,0)")
	// A new boot: an empty resctrl, a new sandbox of the same pod.
	r.boot = "boot-2"
	r.tasks, r.pods, r.cont = sim.NewScript(), map[string]*lifecycle.Pod{}, map[string]*lifecycle.Container{}
	r.tree.RemoveCgroup("/kubepods/podgone")
	r.tree = sim.NewCgroups(r.tasks)
	r.cgroups.Tree = r.tree
	r.model = sim.New(sim.DefaultConfig(), r.clock, r.tasks)
	r.restart()
	r.runtimeRun("a", "s3")
	r.runtimeStart("s3", "c2", 2)
	r.snapshot(true)
	r.expect("Removed gone", "a Exists (0,0)", "a Exists (1,1)")
}

func TestVanishedPod(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.runtimeRun("shared1", "s2")
	r.runtimeRun("shared2", "s3")
	r.pods["s3"].CgroupParent = r.pods["s2"].CgroupParent
	for _, s := range []string{"s1", "s2", "s3"} {
		r.event(lifecycle.RunPodSandbox, s, "")
	}
	r.expect("a Exists (0,0)", "shared1 Exists (0,0)", "shared2 Exists (0,0)")
	r.must(r.tree.RemoveCgroup(r.pods["s1"].CgroupParent))
	r.must(r.tree.RemoveCgroup(r.pods["s2"].CgroupParent))
	r.sweep()
	r.up += time.Minute
	r.sweep()
	r.expect()
	r.up += time.Second
	if got := r.sweep(); len(got.Removed) != 1 {
		t.Errorf("swept %+v", got)
	}
	r.expect("Removed a")
}

func TestUnfinishedRemoval(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.os.Fail(memfs.OpRmdir, 0, syscall.EIO)
	r.event(lifecycle.RemovePodSandbox, "s1", "")
	r.expect("a Exists (0,0)", "Removed a")
	r.checkGroups("", "pod_a")
	r.os.Reset()
	r.sweep()
	r.expect()
	r.checkGroups("")
	if uids, err := r.eng.Store.PodUIDs(t.Context()); err != nil || len(uids) != 0 {
		t.Errorf("rows left: %v, %v", uids, err)
	}
}

func TestSnapshotOfAnExhaustedNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, fewRMIDs)
	r.exhaust()
	for _, uid := range []string{"a", "b", "c"} {
		r.runtimeRun(uid, "s-"+uid)
	}
	r.os.Reset()
	r.snapshot(true)
	r.expect("a Failed (0,0) capacity", "b Failed (0,0) capacity", "c Failed (0,0) capacity")
	if n := r.os.Count(memfs.OpMkdir); n != 1 {
		t.Errorf("%d mkdirs, want 1", n)
	}
}

func TestSnapshotFinishesARemoval(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.os.Fail(memfs.OpRmdir, 0, syscall.EIO)
	r.event(lifecycle.RemovePodSandbox, "s1", "")
	r.os.Reset()
	r.pods = map[string]*lifecycle.Pod{}
	r.snapshot(false)
	r.expect("a Exists (0,0)", "Removed a")
	r.checkGroups("")
	if uids, err := r.eng.Store.PodUIDs(t.Context()); err != nil || len(uids) != 0 {
		t.Errorf("rows left: %v, %v", uids, err)
	}
}

func TestAPodThatComesAndGoesInOneHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	run, remove := r.applying(lifecycle.RunPodSandbox, "s1"), r.applying(lifecycle.RemovePodSandbox, "s1")
	r.hold(func(h *engine.Hold) error { return errors.Join(run(h), remove(h)) })
	r.hold(func(h *engine.Hold) error { return errors.Join(run(h), remove(h), run(h)) })
	r.expect("a Exists (0,0)", "Removed a", "a Exists (0,0)", "Removed a", "a Exists (0,0)")
	r.hold(remove)
	r.expect("Removed a")
	if uids, err := r.eng.Store.PodUIDs(t.Context()); err != nil || len(uids) != 0 {
		t.Errorf("rows left: %v, %v", uids, err)
	}
}

func TestContainersWithoutAPod(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	alone := func(ev lifecycle.Event, id string) {
		r.hold(func(h *engine.Hold) error { h.Apply(&lifecycle.Record{Event: ev, Container: r.cont[id]}); return nil })
	}
	for _, id := range []string{"runs", "ends", "goes"} {
		r.runtimeStart("s1", id, 2)
		alone(lifecycle.StartContainer, id)
	}
	alone(lifecycle.StopContainer, "ends")
	alone(lifecycle.RemoveContainer, "goes")
	r.restart()
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.expect("a Exists (2,1)")
	alone(lifecycle.PostStartContainer, "ends") // its pod is known by its sandbox now
	r.expect()
	r.checkCounters("a", 2, 1)
	// A snapshot may name a container whose sandbox it lacks.
	delete(r.pods, "s1")
	delete(r.cont, "ends")
	delete(r.cont, "goes")
	r.snapshot(false)
	r.expect("Removed a")
	if c, err := r.eng.Store.Container(t.Context(), "runs"); err != nil || c == nil || c.State != rules.ContainerNoPod {
		t.Errorf("container: %+v, %v", c, err)
	}
	delete(r.cont, "runs")
	r.snapshot(false)
	if c, err := r.eng.Store.Container(t.Context(), "runs"); err != nil || c != nil {
		t.Errorf("container: %+v, %v", c, err)
	}
}

func TestMoveThatFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*sim.Config)
		fault  func(*rig)
		event  string
		groups []string
	}{
		"the group stays": {
			func(*sim.Config) {},
			func(r *rig) { r.os.Fail(memfs.OpRename, 0, syscall.EIO) },
			"a Exists (1,0)", []string{"pod_a"},
		},
		// 6.1 removes it here, then makes it there; the RMID is in limbo meanwhile.
		"the group is gone": {
			func(c *sim.Config) { c.Kernel61, c.Limbo, c.NumRMIDs = true, time.Second, 3 },
			func(*rig) {},
			"a Failed (1,0) capacity", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.change)
			r.must(r.os.Mkdir(root + "/gold"))
			r.runtimeRun("a", "s1")
			r.event(lifecycle.RunPodSandbox, "s1", "")
			pid := r.runtimeStart("s1", "c1", 1)
			r.must(r.os.WriteFile(root+"/gold/tasks", []byte(itoa(pid))))
			tt.fault(r)
			r.event(lifecycle.StartContainer, "s1", "c1")
			r.expect("a Exists (0,0)", tt.event)
			r.checkGroups("", tt.groups...)
			r.restart()
			p, err := r.eng.Store.Pod(t.Context(), "a")
			if err != nil || tt.groups != nil && p.Pod.GroupPath != root+"/mon_groups/pod_a" {
				t.Errorf("the state names %+v, %v", p, err)
			}
			r.os.Reset()
			r.clock.Advance(2 * time.Second)
			r.retryAll()
			r.sweep()
			r.checkGroups("gold", "pod_a")
			r.checkCounters("a", 1, 1)
		})
	}
}

func TestTheKernelsReasonIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, fewRMIDs)
	r.exhaust()
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	lastError := func() string {
		p, err := r.eng.Store.Pod(t.Context(), "a")
		r.must(err)
		return p.Pod.LastError
	}
	if why := lastError(); !strings.Contains(why, "Out of RMIDs") || !strings.Contains(why, "ENOSPC") {
		t.Errorf("last_error %q", why)
	}
	r.must(r.os.Rmdir(root + "/mon_groups/toola"))
	r.clock.Advance(2 * time.Second)
	r.retryAll()
	if why := lastError(); why != "" {
		t.Errorf("last_error of a pod with its group: %q", why)
	}
}
