package rules

import (
	"slices"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

var zeroTime time.Time

// Input is a lifecycle record with what the state and the node know of it.
type Input struct {
	Record *lifecycle.Record
	// UID of the record's pod; "" when it has none and the state knows none.
	UID string
	// CgroupPath is where the record's container is; "" where its cgroup was
	// not found.
	CgroupPath string
	// Orphans are the NoPod containers of the record's sandbox.
	Orphans []Container
}

// Apply says what a lifecycle record does to its pod; p is nil for a pod that
// is not known. A record without a pod is for Orphan.
func (r *Rules) Apply(p *PodState, in Input) Change {
	t := r.begin(p)
	switch in.Record.Event {
	case lifecycle.RunPodSandbox:
		t.runSandbox(in)
	case lifecycle.StopPodSandbox:
		if t.known() {
			if s := t.sandbox(in.Record.Pod.ID); s != nil {
				s.State = SandboxStopped
			}
		}
	case lifecycle.RemovePodSandbox:
		t.dropOrphans(in.Orphans)
		t.removeSandbox(in.Record.Pod.ID)
	case lifecycle.RemoveContainer:
		id := in.Record.Container.ID
		t.dropOrphans(slices.DeleteFunc(slices.Clone(in.Orphans), func(c Container) bool { return c.ID != id }))
		t.removeContainer(id)
	case lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.PostStartContainer,
		lifecycle.PostUpdateContainer, lifecycle.StopContainer:
		t.containerEvent(in)
	}
	return t.finish()
}

func (t *turn) runSandbox(in Input) {
	pod := in.Record.Pod
	if t.known() && t.sandbox(pod.ID) != nil {
		return
	}
	wasKnown := t.known()
	t.addSandbox(in, pod)
	if wasKnown && t.Pod.GroupState == GroupExists {
		if path, found := t.r.Hands.FindGroup(t.Pod); found {
			t.have(path)
		} else {
			t.makeGroup()
		}
	} else {
		t.retryGroup()
	}
	t.adopt(in.Orphans)
	t.fill()
	t.tell()
}

func (t *turn) addSandbox(in Input, pod *lifecycle.Pod) {
	t.register(in.UID, pod.Namespace, pod.Name)
	if t.sandbox(pod.ID) == nil {
		t.Sandboxes = append(t.Sandboxes, Sandbox{
			ID: pod.ID, PodUID: in.UID, State: SandboxReady, CgroupParent: pod.CgroupParent, CreatedAt: t.now,
		})
	}
	t.Pod.MissingSince = 0
}

// adopt takes over containers that came before their pod.
func (t *turn) adopt(orphans []Container) {
	for _, c := range orphans {
		t.adopted = append(t.adopted, c.ID)
		if t.container(c.ID) != nil {
			continue
		}
		c.PodUID = t.Pod.UID
		c.State, c.Reason = c.adopted(), ""
		t.Containers = append(t.Containers, c)
		if c.State == ContainerCreated {
			t.assign(&t.Containers[len(t.Containers)-1])
		}
	}
}

// dropOrphans ends containers that waited for a pod.
func (t *turn) dropOrphans(orphans []Container) {
	for _, c := range orphans {
		t.adopted = append(t.adopted, c.ID)
	}
}

func (t *turn) removeSandbox(id string) {
	if !t.known() || t.sandbox(id) == nil {
		return
	}
	t.Sandboxes = slices.DeleteFunc(t.Sandboxes, func(s Sandbox) bool { return s.ID == id })
	t.Containers = slices.DeleteFunc(t.Containers, func(c Container) bool { return c.SandboxID == id })
	if len(t.Sandboxes) == 0 {
		t.end()
		return
	}
	t.tellIfChanged()
}

func (t *turn) removeContainer(id string) {
	if !t.known() || t.container(id) == nil {
		return
	}
	t.Containers = slices.DeleteFunc(t.Containers, func(c Container) bool { return c.ID == id })
	t.retryGroup()
	t.fill()
	t.tellIfChanged()
}

func (t *turn) containerEvent(in Input) {
	rec := in.Record
	fresh := !t.known()
	if fresh || t.sandbox(rec.Container.PodSandboxID) == nil {
		if rec.Pod == nil || rec.Event == lifecycle.StopContainer {
			return // the end of something that was never seen
		}
		t.addSandbox(in, rec.Pod)
	}
	c := t.container(rec.Container.ID)
	if c == nil {
		c = t.addContainer(rec.Container, in)
	}
	c.place(in.CgroupPath, rec.Container.CgroupsPath)
	// What ended stays ended: a POST_START may come after its STOP.
	ended := c.State == ContainerExited
	if fresh || !ended {
		t.retryGroup()
	}
	if !ended {
		t.containerStep(c, rec.Event)
	}
	// After the group was tried: those that run are assigned to it.
	t.adopt(slices.DeleteFunc(slices.Clone(in.Orphans), func(o Container) bool { return o.ID == rec.Container.ID }))
	t.fill()
	t.tellIfChanged()
}

func (t *turn) addContainer(rc *lifecycle.Container, in Input) *Container {
	c := Container{
		ID: rc.ID, SandboxID: rc.PodSandboxID, PodUID: t.Pod.UID, Name: rc.Name,
		State: ContainerCreated, CreatedAt: t.now,
	}
	c.place(in.CgroupPath, rc.CgroupsPath)
	for _, o := range in.Orphans {
		if o.ID == rc.ID {
			t.adopted = append(t.adopted, o.ID)
			c.CreatedAt, c.State = o.CreatedAt, o.adopted()
		}
	}
	t.Containers = append(t.Containers, c)
	return &t.Containers[len(t.Containers)-1]
}

// place records where the container's cgroup was found, or, as long as it was
// not, where the runtime says that it will be.
func (c *Container) place(found, named string) {
	switch {
	case found != "":
		c.CgroupPath = found
	case c.CgroupPath == "":
		c.CgroupPath = named
	}
}

func (t *turn) containerStep(c *Container, event lifecycle.Event) {
	switch event {
	case lifecycle.StopContainer:
		c.State, c.Reason = ContainerExited, ""
	case lifecycle.StartContainer, lifecycle.PostStartContainer, lifecycle.PostUpdateContainer:
		if c.State == ContainerReconciled {
			return
		}
		if c.State == ContainerCreated {
			// It has started; what is found decides how far it is.
			c.State, c.Reason = ContainerPartial, ReasonNoTasks
		}
		t.assign(c)
	}
}

// Orphan says what a record of a container without any pod leaves of it; c is
// nil for one that is not known. A nil result is no row.
func (r *Rules) Orphan(c *Container, in Input) *Container {
	rec := in.Record
	if rec.Event == lifecycle.RemoveContainer {
		return nil
	}
	if c == nil {
		if rec.Event == lifecycle.StopContainer {
			return nil
		}
		now := r.Now().UTC()
		c = &Container{
			ID: rec.Container.ID, SandboxID: rec.Container.PodSandboxID, Name: rec.Container.Name,
			State: ContainerNoPod, CreatedAt: now, UpdatedAt: now,
		}
	}
	next := *c
	next.place(in.CgroupPath, rec.Container.CgroupsPath)
	if rec.Event == lifecycle.StopContainer {
		next.Reason = ReasonExited
	}
	return &next
}

// adopted is the state of a NoPod container when its pod shows up.
func (c *Container) adopted() ContainerState {
	if c.Reason == ReasonExited {
		return ContainerExited
	}
	return ContainerCreated
}
