package rules

import (
	"slices"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// SnapshotPod is one pod of a snapshot: all of its sandboxes and containers.
type SnapshotPod struct {
	UID        string
	Sandboxes  []lifecycle.Pod
	Containers []SnapshotContainer
	// ParentsGone says that each sandbox names a cgroup parent and none of
	// them exists.
	ParentsGone bool
	// Orphans are the NoPod containers of its sandboxes.
	Orphans []Container
	// SkipGroups says that the snapshot met a capacity error already: a group
	// that is not there is not tried.
	SkipGroups bool
}

// SnapshotContainer is one container of a snapshot.
type SnapshotContainer struct {
	lifecycle.Container
	CgroupPath string // "" while unknown
}

// Snapshot brings a pod to what a snapshot says of it; p is nil for a pod that
// is not known.
func (r *Rules) Snapshot(p *PodState, s SnapshotPod) Change {
	t := r.begin(p)
	pod := Pod{UID: s.UID, GroupPath: r.Naming.GroupPath(s.UID)}
	if t.known() {
		pod = t.Pod
	}
	path, found := r.Hands.FindGroup(pod)
	if !found && s.ParentsGone {
		if t.known() {
			t.end()
		}
		ch := t.finish()
		ch.Ended = true
		return ch
	}
	t.forget(s)
	for i := range s.Sandboxes {
		t.addSandbox(Input{UID: s.UID}, &s.Sandboxes[i])
	}
	t.snapshotGroup(path, found, s.SkipGroups)
	t.tell()
	for _, o := range s.Orphans {
		t.adopted = append(t.adopted, o.ID)
	}
	for i := range s.Containers {
		t.snapshotContainer(&s.Containers[i], s.Orphans)
		t.tellIfChanged()
	}
	return t.finish()
}

// Absent removes a pod that a snapshot lacks.
func (r *Rules) Absent(p *PodState) Change {
	t := r.begin(p)
	if t.known() {
		t.end()
	}
	return t.finish()
}

// forget drops the sandboxes and containers that the snapshot lacks.
func (t *turn) forget(s SnapshotPod) {
	if !t.known() {
		return
	}
	t.Sandboxes = slices.DeleteFunc(t.Sandboxes, func(known Sandbox) bool {
		return !slices.ContainsFunc(s.Sandboxes, func(p lifecycle.Pod) bool { return p.ID == known.ID })
	})
	t.Containers = slices.DeleteFunc(t.Containers, func(known Container) bool {
		return !slices.ContainsFunc(s.Containers, func(c SnapshotContainer) bool { return c.ID == known.ID })
	})
}

func (t *turn) snapshotGroup(path string, found, skip bool) {
	switch {
	case found:
		t.have(path)
	case skip:
		t.fail(ReasonCapacity, "not tried: a pod before it in the snapshot found no free RMID")
	default:
		t.makeGroup()
	}
	// Each container is assigned anyway, one event each.
	t.refill, t.force = false, false
}

func (t *turn) snapshotContainer(sc *SnapshotContainer, orphans []Container) {
	c := t.container(sc.ID)
	if c == nil {
		c = t.addContainer(&sc.Container, Input{CgroupPath: sc.CgroupPath, Orphans: orphans})
	}
	c.place(sc.CgroupPath, sc.CgroupsPath)
	switch {
	case c.State == ContainerExited:
	case sc.State == lifecycle.ContainerStopped:
		c.State, c.Reason = ContainerExited, ""
	case c.State == ContainerCreated && sc.State == lifecycle.ContainerCreated && sc.PID == 0:
		// no process yet
	default:
		if c.State == ContainerCreated {
			c.State, c.Reason = ContainerPartial, ReasonNoTasks
		}
		t.assign(c)
		t.fill()
	}
}
