package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

const (
	run        = lifecycle.RunPodSandbox
	stopPod    = lifecycle.StopPodSandbox
	removePod  = lifecycle.RemovePodSandbox
	create     = lifecycle.PostCreateContainer
	start      = lifecycle.StartContainer
	postStart  = lifecycle.PostStartContainer
	postUpdate = lifecycle.PostUpdateContainer
	stop       = lifecycle.StopContainer
	remove     = lifecycle.RemoveContainer
)

func TestLifeOfAPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.event(run, "a", "s1", "")
	n.expect("a Exists (0,0)")
	n.event(create, "a", "s1", "c1")
	n.expect("a Exists (1,0)")
	n.run("c1", 6, "")
	n.event(start, "a", "s1", "c1")
	n.expect("a Exists (1,1)")
	n.event(postStart, "a", "s1", "c1")
	n.event(postUpdate, "a", "s1", "c1")
	n.expect()
	n.event(stop, "a", "s1", "c1")
	n.expect()
	if c := n.pods["a"].Containers[0]; c.State != ContainerExited || !c.Counted {
		t.Errorf("stopped container: %+v", c)
	}
	n.event(remove, "a", "s1", "c1")
	n.expect("a Exists (0,0)")
	n.event(stopPod, "a", "s1", "")
	n.expect()
	n.event(removePod, "a", "s1", "")
	n.expect("Removed a")
	if len(n.groups) != 0 || len(n.pods) != 0 {
		t.Errorf("left: groups %v, pods %v", n.groups, n.pods)
	}
}

func TestDuplicatesAndLateEventsChangeNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 3, "")
	n.event(run, "a", "s1", "")
	n.event(create, "a", "s1", "c1")
	n.event(start, "a", "s1", "c1")
	n.expect("a Exists (0,0)", "a Exists (1,0)", "a Exists (1,1)")
	for _, ev := range []lifecycle.Event{create, start, postStart} {
		if ch := n.event(ev, "a", "s1", "c1"); ch.Changed {
			t.Errorf("%s again changed the pod: %s", ev, cmp.Diff(n.pods["a"], ch.State))
		}
	}
	n.event(run, "a", "s1", "")
	n.event(stop, "a", "s1", "c1")
	if ch := n.event(postStart, "a", "s1", "c1"); ch.Changed {
		t.Error("a late POST_START_CONTAINER changed a stopped container")
	}
	n.event(remove, "a", "s1", "c1")
	n.expect("a Exists (0,0)")
	n.event(remove, "a", "s1", "c1")
	n.event(removePod, "a", "s1", "")
	n.expect("Removed a")
	for _, ev := range []lifecycle.Event{removePod, stopPod} {
		n.event(ev, "a", "s1", "")
	}
	for _, ev := range []lifecycle.Event{remove, stop} {
		n.event(ev, "a", "s1", "c1")
	}
	n.expect()
	if len(n.pods) != 0 {
		t.Errorf("late events brought back %v", n.pods)
	}
}

func TestFirstSeenAtStartIsOneEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 2, "")
	n.event(start, "a", "s1", "c1")
	n.expect("a Exists (1,1)")
}

func TestOldSandboxRemovedWhileTheNewOneRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("old", 1, "")
	n.run("new", 1, "")
	n.event(run, "a", "s1", "")
	n.event(start, "a", "s1", "old")
	n.event(run, "a", "s2", "")
	n.event(start, "a", "s2", "new")
	n.expect("a Exists (0,0)", "a Exists (1,1)", "a Exists (1,1)", "a Exists (2,2)")
	n.event(stop, "a", "s1", "old")
	n.event(stopPod, "a", "s1", "")
	n.event(remove, "a", "s1", "old")
	n.event(removePod, "a", "s1", "")
	n.expect("a Exists (1,1)")
	if len(n.groups) != 1 {
		t.Error("the live pod lost its group")
	}
	n.event(removePod, "a", "s2", "")
	n.expect("Removed a")
}

func TestRemovingASandboxTakesItsContainers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("old", 1, "")
	n.event(start, "a", "s1", "old")
	n.event(run, "a", "s2", "")
	n.log = nil
	n.event(removePod, "a", "s1", "")
	n.expect("a Exists (0,0)")
}

func TestCapacityAndRetries(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.free = 0
	n.run("c1", 5, "")
	n.event(run, "a", "s1", "")
	n.expect("a Failed (0,0) capacity")
	n.event(start, "a", "s1", "c1")
	n.expect("a Failed (1,0) capacity")
	since := n.pods["a"].Pod.FailedSince
	ch := n.take("a", n.r.RetryGroup(n.pods["a"]))
	if ch.GroupReason != ReasonCapacity {
		t.Errorf("reason %q", ch.GroupReason)
	}
	n.take("a", n.r.RetryContainer(n.pods["a"], "c1"))
	n.expect()
	if p := n.pods["a"].Pod; p.Attempts != 3 || p.FailedSince != since {
		t.Errorf("attempts %d, failed since %v (was %v)", p.Attempts, p.FailedSince, since)
	}
	n.free = 1
	n.take("a", n.r.RetryGroup(n.pods["a"]))
	n.expect("a Exists (1,0)")
	n.take("a", n.r.RetryContainer(n.pods["a"], "c1"))
	n.expect("a Exists (1,1)")
	n.take("a", n.r.RetryContainer(n.pods["a"], "c1"))
	n.expect()
}

func TestAContainerEventTriesAFailedGroup(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.free = 0
	n.run("c1", 1, "")
	n.run("c2", 1, "")
	n.event(run, "a", "s1", "")
	n.event(start, "a", "s1", "c1")
	n.free = 1
	n.log = nil
	n.event(create, "a", "s1", "c2")
	n.expect("a Exists (2,1)")
	if got := n.pods["a"].Containers[1].State; got != ContainerCreated {
		t.Errorf("created container is %s", got)
	}
}

func TestAStoppedPodTakesNoRMID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.free = 0
	n.event(start, "a", "s1", "c1")
	n.event(stopPod, "a", "s1", "")
	n.free = 1
	n.mkdirs = 0
	n.event(remove, "a", "s1", "c1")
	if n.mkdirs != 0 {
		t.Error("a group was made for a pod that is ending")
	}
}

func TestOrphansWaitForTheirPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	rec := func(ev lifecycle.Event, id string) Input {
		return Input{Record: &lifecycle.Record{Event: ev, Container: &lifecycle.Container{ID: id, PodSandboxID: "s1"}}, CgroupPath: "/x/" + id}
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		n.orphans[id] = *n.r.Orphan(nil, rec(start, id))
	}
	if got := n.orphans["c1"].State; got != ContainerNoPod {
		t.Fatalf("state %s", got)
	}
	c3 := n.orphans["c3"]
	n.orphans["c3"] = *n.r.Orphan(&c3, rec(stop, "c3"))
	n.run("c1", 2, "")
	n.event(run, "a", "s1", "")
	n.expect("a Exists (3,1)")
	for i, want := range map[string]ContainerState{"c1": ContainerReconciled, "c2": ContainerCreated, "c3": ContainerExited} {
		for _, c := range n.pods["a"].Containers {
			if c.ID == i && c.State != want {
				t.Errorf("%s is %s, want %s", i, c.State, want)
			}
		}
	}
	if len(n.orphans) != 0 {
		t.Errorf("still without a pod: %v", n.orphans)
	}
	if n.r.Orphan(&c3, rec(remove, "c3")) != nil || n.r.Orphan(nil, rec(stop, "c4")) != nil {
		t.Error("an ended container left a row")
	}
}

func TestLostGroupIsMadeAndFilledAgain(t *testing.T) {
	t.Parallel()
	play := map[string]func(n *node){
		"sweep": func(n *node) { n.take("a", n.r.Sweep(n.pods["a"], "")) },
		"start": func(n *node) { n.run("c3", 1, ""); n.event(start, "a", "s1", "c3") },
		"retry": func(n *node) { n.take("a", n.r.RetryContainer(n.pods["a"], "c2")) },
	}
	want := map[string]string{"sweep": "a Exists (2,2)", "start": "a Exists (3,3)", "retry": "a Exists (2,2)"}
	for name, act := range play {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.run("c1", 2, "")
			n.run("c2", 2, "")
			n.event(start, "a", "s1", "c1")
			n.event(start, "a", "s1", "c2")
			n.remountEmpty()
			n.log = nil
			act(n)
			n.expect(want[name])
			n.take("a", n.r.Sweep(n.pods["a"], ""))
			n.expect()
		})
	}
}

func TestLostGroupThatCannotBeMadeIsFailed(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 2, "")
	n.event(start, "a", "s1", "c1")
	n.remountEmpty()
	n.free = 0
	n.log = nil
	n.take("a", n.r.Sweep(n.pods["a"], ""))
	n.expect("a Failed (1,0) capacity")
	n.mounted = false
	n.event(postUpdate, "a", "s1", "c1")
	n.expect() // a changed reason alone emits nothing
	if p := n.pods["a"]; p.Pod.Reason != ReasonNotMounted || p.Containers[0].Reason != ReasonNotMounted {
		t.Errorf("reasons %q, %q", p.Pod.Reason, p.Containers[0].Reason)
	}
}

func TestSweepMakesNoGroupAfterThePassEnded(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 2, "")
	n.event(start, "a", "s1", "c1")
	n.remountEmpty()
	n.log = nil
	ch := n.r.Sweep(n.pods["a"], ReasonCapacity)
	n.take("a", ch)
	n.expect("a Failed (1,0) capacity")
	if ch.GroupReason != ReasonCapacity {
		t.Errorf("reason %q", ch.GroupReason)
	}
}

func TestControlGroups(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.event(run, "a", "s1", "")
	n.run("c1", 2, "/g1")
	n.event(start, "a", "s1", "c1")
	n.expect("a Exists (0,0)", "a Exists (1,1) in /g1")
	n.run("c2", 1, "")
	n.event(start, "a", "s1", "c2")
	n.expect("a Exists (2,1) in /g1")
	if c := n.pods["a"].Containers[1]; c.State != ContainerPartial || c.Reason != ReasonOtherControlGroup {
		t.Errorf("container of another control group: %+v", c)
	}
	// Somebody moves all of the pod's tasks.
	n.run("c1", 2, "/g2")
	n.run("c2", 1, "/g2")
	n.take("a", n.r.Sweep(n.pods["a"], ""))
	n.expect("a Exists (2,2) in /g2")
}

func TestExhaustedAgainWhileFollowing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 1, "/g1")
	n.free = 0
	n.event(start, "a", "s1", "c1")
	n.free = 1
	n.take("a", n.r.RetryGroup(n.pods["a"]))
	n.take("a", n.r.RetryContainer(n.pods["a"], "c1"))
	n.expect("a Failed (1,0) capacity", "a Exists (1,0)", "a Exists (1,1) in /g1")
}

func TestRemovalThatCannotBeFinished(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.event(run, "a", "s1", "")
	n.stuck = true
	n.log = nil
	n.event(removePod, "a", "s1", "")
	n.expect("Removed a")
	if p := n.pods["a"]; p == nil || !p.Pod.Removing {
		t.Fatalf("not marked: %+v", p)
	}
	n.event(stopPod, "a", "s1", "")
	n.take("a", n.r.Sweep(n.pods["a"], ""))
	n.expect()
	back := n.event(run, "a", "s2", "")
	n.expect("a Exists (0,0)")
	if back.State.Pod.Removing {
		t.Error("still marked")
	}
	n.event(removePod, "a", "s2", "")
	n.stuck = false
	n.log = nil
	n.take("a", n.r.Sweep(n.pods["a"], ""))
	n.expect()
	if len(n.pods)+len(n.groups) != 0 {
		t.Errorf("left: %v %v", n.pods, n.groups)
	}
}

func TestVanishedPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.event(run, "a", "s1", "")
	n.log = nil
	gone := func(gone bool, at time.Duration) { n.take("a", n.r.Vanished(n.pods["a"], gone, at, time.Minute)) }
	gone(true, time.Second)
	gone(true, 61*time.Second)
	gone(false, 62*time.Second)
	gone(true, 63*time.Second)
	n.expect()
	gone(true, 124*time.Second)
	n.expect("Removed a")
}

func TestGroupNames(t *testing.T) {
	t.Parallel()
	nm := Naming{Root: "/r", Prefix: "pod_"}
	plain := strings.Repeat("a", 63)
	for _, uid := range []string{"x", "A-b_9", plain} {
		if got := nm.GroupName(uid); got != "pod_"+uid {
			t.Errorf("%q: %q", uid, got)
		}
	}
	seen := map[string]string{}
	for _, uid := range []string{"", ".", "..", "a/b", "a_b", "a\nb", "a b", "../../etc", plain + "a", strings.Repeat("ü", 300), "a\x00b", "a~b", "é", "e"} {
		name := nm.GroupName(uid)
		if other, dup := seen[name]; dup {
			t.Errorf("%q and %q share %q", uid, other, name)
		}
		seen[name] = uid
		if strings.ContainsAny(name, "/\n\x00") || len(name) > 100 || !strings.HasPrefix(name, "pod_") {
			t.Errorf("%q: unsafe name %q", uid, name)
		}
		if !plainUID(uid) && !strings.Contains(name, safeMark) {
			t.Errorf("%q: %q could be another pod's", uid, name)
		}
	}
}

func TestAContainerWhoseTasksEndedStaysCounted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 1, "")
	n.event(start, "a", "s1", "c1")
	n.run("c1", 0, "")
	n.log = nil
	n.take("a", n.r.Sweep(n.pods["a"], ""))
	n.expect()
	if c := n.pods["a"].Containers[0]; c.State != ContainerReconciled || !c.Counted {
		t.Errorf("its stop is on the way: %+v", c)
	}
}

func TestAReconciledContainerIsNotAssignedByItsNextEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 1, "")
	n.event(start, "a", "s1", "c1")
	n.assigns = 0
	n.event(postStart, "a", "s1", "c1")
	if n.assigns != 0 {
		t.Error("assigned again: the callback's time was spent for nothing")
	}
}
