package lifecycle

import (
	"errors"
	"fmt"
	"strings"
)

// Known says whether e is an event of this version of the format.
func (e Event) Known() bool {
	return e == Synchronize || e.OutOfBand() || e.OfPod() || e.OfContainer()
}

// OutOfBand says whether e stands outside the sequence (seq 0).
func (e Event) OutOfBand() bool { return e == Heartbeat || e == RuntimeLost }

// OfPod says whether e is a lifecycle event of a pod sandbox.
func (e Event) OfPod() bool {
	return e == RunPodSandbox || e == StopPodSandbox || e == RemovePodSandbox
}

// OfContainer says whether e is a lifecycle event of a container.
func (e Event) OfContainer() bool {
	switch e {
	case PostCreateContainer, StartContainer, PostStartContainer, PostUpdateContainer, StopContainer, RemoveContainer:
		return true
	}
	return false
}

// Normalize puts in what the format lets a writer leave out: the sandbox id
// stands in for an empty pod UID, and a container's pod_sandbox_id is its
// pod's id where it has none itself.
func (r *Record) Normalize() {
	if r.Pod != nil && r.Pod.UID == "" {
		r.Pod.UID = r.Pod.ID
	}
	if r.Pod != nil && r.Container != nil && r.Container.PodSandboxID == "" {
		r.Container.PodSandboxID = r.Pod.ID
	}
}

// Validate tells what keeps r from being a record of this version: its
// version, its place in the sequence, or what its event needs.
func (r *Record) Validate() error {
	if r.V != Version {
		return fmt.Errorf("record has version %d, want %d", r.V, Version)
	}
	if r.Event == "" {
		return errors.New("record has no event")
	}
	if err := r.checkPlace(); err != nil {
		return err
	}
	if r.Pod != nil {
		if err := r.Pod.Validate(); err != nil {
			return err
		}
	}
	if r.Container != nil {
		if err := r.Container.Validate(); err != nil {
			return err
		}
	}
	switch {
	case r.Event == Synchronize:
		return r.checkSynchronize()
	case r.Event.OfPod() && r.Pod == nil:
		return fmt.Errorf("record %s has no pod", r.Event)
	case r.Event.OfContainer() && r.Container == nil:
		return fmt.Errorf("record %s has no container", r.Event)
	}
	return nil
}

// checkPlace checks epoch and seq. An unknown event may stand outside the
// sequence: a later version may have more such events than we know.
func (r *Record) checkPlace() error {
	switch {
	case r.Event.OutOfBand() && r.Seq != 0:
		return fmt.Errorf("record %s has seq %d, want 0", r.Event, r.Seq)
	case r.Seq == 0 && r.Event.Known() && !r.Event.OutOfBand():
		return fmt.Errorf("record %s has no seq", r.Event)
	case r.Seq != 0 && r.Epoch == "":
		return errors.New("record has a seq but no epoch")
	}
	return nil
}

func (r *Record) checkSynchronize() error {
	parts := 0
	for _, has := range []bool{r.Phase != "", r.Pod != nil, r.Container != nil} {
		if has {
			parts++
		}
	}
	if parts != 1 {
		return fmt.Errorf("record %s has %d of phase, pod and container, want exactly one", r.Event, parts)
	}
	switch r.Phase {
	case "", PhaseBegin:
		return nil
	case PhaseEnd:
		if r.Pods == nil || r.Containers == nil || *r.Pods < 0 || *r.Containers < 0 {
			return errors.New("record SYNCHRONIZE end does not tell how many pods and containers it had")
		}
		return nil
	}
	return errors.New("record SYNCHRONIZE has an unknown phase")
}

// Validate tells what keeps p from being told: an id that is missing or no
// text, a negative pid.
func (p *Pod) Validate() error {
	switch {
	case p.ID == "":
		return errors.New("pod has no id")
	case hasNUL(p.ID, p.UID, p.CgroupParent):
		return errors.New("pod has a NUL byte in its id, uid or cgroup_parent")
	case p.PID < 0:
		return fmt.Errorf("pod has the pid %d", p.PID)
	}
	return nil
}

// Validate tells what keeps c from being told: an id that is missing or no
// text, a negative pid.
func (c *Container) Validate() error {
	switch {
	case c.ID == "":
		return errors.New("container has no id")
	case hasNUL(c.ID, c.PodSandboxID, c.CgroupsPath):
		return errors.New("container has a NUL byte in its id, pod_sandbox_id or cgroups_path")
	case c.PID < 0:
		return fmt.Errorf("container has the pid %d", c.PID)
	}
	return nil
}

// hasNUL: no path, no id and no database key of ours can hold a NUL byte.
func hasNUL(texts ...string) bool {
	for _, s := range texts {
		if strings.IndexByte(s, 0) >= 0 {
			return true
		}
	}
	return false
}
