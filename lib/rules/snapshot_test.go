package rules

import (
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

func (n *node) snapshot(uid string, sandboxes []string, containers ...SnapshotContainer) Change {
	n.t.Helper()
	s := SnapshotPod{UID: uid}
	for _, id := range sandboxes {
		s.Sandboxes = append(s.Sandboxes, lifecycle.Pod{ID: id, UID: uid, CgroupParent: "/" + uid})
	}
	for i := range containers {
		containers[i].PodSandboxID = sandboxes[0]
	}
	s.Containers = containers
	return n.take(uid, n.r.Snapshot(n.pods[uid], s))
}

func seen(id string, state lifecycle.ContainerState, pid int) SnapshotContainer {
	return SnapshotContainer{Container: lifecycle.Container{ID: id, State: state, PID: pid}, CgroupPath: "/x/" + id}
}

func TestSnapshotCounts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 2, "")
	n.snapshot("a", []string{"s1"}, seen("c1", lifecycle.ContainerRunning, 7))
	n.expect("a Exists (0,0)", "a Exists (1,1)")
	n.run("late", 2, "")
	n.event(start, "a", "s1", "late")
	n.expect("a Exists (2,2)")
	// The same again: adopted, its counters run on.
	n.snapshot("a", []string{"s1"}, seen("c1", lifecycle.ContainerRunning, 7), seen("late", lifecycle.ContainerRunning, 8))
	n.expect("a Exists (2,2)")
	n.snapshot("a", []string{"s1"}, seen("late", lifecycle.ContainerRunning, 8))
	n.expect("a Exists (1,1)")
}

func TestSnapshotOfCreatedAndExited(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.snapshot("a", []string{"s1"}, seen("created", lifecycle.ContainerCreated, 0), seen("exited", lifecycle.ContainerStopped, 0))
	n.expect("a Exists (0,0)", "a Exists (1,0)", "a Exists (2,0)")
	states := map[string]ContainerState{"created": ContainerCreated, "exited": ContainerExited}
	for _, c := range n.pods["a"].Containers {
		if c.State != states[c.ID] {
			t.Errorf("%s: %s", c.ID, c.State)
		}
	}
	n.run("created", 1, "")
	n.event(start, "a", "s1", "created")
	n.expect("a Exists (2,1)")
}

func TestSnapshotAfterALostGroup(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.run("c1", 2, "")
	n.snapshot("a", []string{"s1"}, seen("c1", lifecycle.ContainerRunning, 7))
	n.remountEmpty()
	n.log = nil
	n.snapshot("a", []string{"s1"}, seen("c1", lifecycle.ContainerRunning, 7))
	n.expect("a Exists (1,0)", "a Exists (1,1)")
	n.remountEmpty()
	n.free = 0
	n.snapshot("a", []string{"s1"}, seen("c1", lifecycle.ContainerRunning, 7))
	n.expect("a Failed (1,0) capacity")
}

func TestSnapshotStopsTryingAfterCapacity(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.free = 0
	if ch := n.snapshot("a", []string{"s1"}); ch.GroupReason != ReasonCapacity {
		t.Errorf("reason %q", ch.GroupReason)
	}
	n.mkdirs = 0
	n.take("b", n.r.Snapshot(nil, SnapshotPod{UID: "b", Sandboxes: []lifecycle.Pod{{ID: "s2"}}, SkipGroups: true}))
	n.expect("a Failed (0,0) capacity", "b Failed (0,0) capacity")
	if n.mkdirs != 0 {
		t.Error("a group was tried after the first capacity error")
	}
}

func TestSnapshotOfAnEndedPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	gone := SnapshotPod{UID: "job", Sandboxes: []lifecycle.Pod{{ID: "s1", CgroupParent: "/job"}}, ParentsGone: true}
	n.take("job", n.r.Snapshot(nil, gone))
	n.expect()
	n.event(run, "job", "s1", "")
	n.log = nil
	n.take("job", n.r.Snapshot(n.pods["job"], gone)) // its group is there: it stays
	n.expect("job Exists (0,0)")
	n.remountEmpty()
	n.take("job", n.r.Snapshot(n.pods["job"], gone))
	n.expect("Removed job")
	if len(n.pods) != 0 {
		t.Errorf("left: %v", n.pods)
	}
}

func TestAbsentFromTheSnapshot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.event(run, "a", "s1", "")
	n.log = nil
	n.take("a", n.r.Absent(n.pods["a"]))
	n.expect("Removed a")
}

// TestAbsentBeforeItsFirstEvent: a kill between the row that names the group
// and the first outcome leaves a pod that nobody was told of.
func TestAbsentBeforeItsFirstEvent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	ch := n.r.Absent(&PodState{Pod: Pod{UID: "a", GroupState: GroupFailed, Reason: ReasonCreating, GroupPath: n.r.Naming.GroupPath("a")}})
	if len(ch.Events) != 0 || ch.State != nil || !ch.Changed {
		t.Errorf("got %+v", ch)
	}
}
