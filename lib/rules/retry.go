package rules

import "time"

// RetryGroup makes the group of a Failed pod. Its containers are for
// RetryContainer. A capacity error, or any other, emits nothing.
func (r *Rules) RetryGroup(p *PodState) Change {
	t := r.begin(p)
	if t.known() && t.Pod.GroupState == GroupFailed {
		untold := t.Pod.Reason == ReasonCreating
		if !t.makeGroup() && untold {
			// Consumers still know nothing of it, and this emits nothing.
			t.Pod.Reason = ReasonCreating
		}
		t.tellIfChanged()
	}
	return t.finish()
}

// RetryContainer assigns a container again. It emits an event only when a
// counter or the group changed.
func (r *Rules) RetryContainer(p *PodState, id string) Change {
	t := r.begin(p)
	if t.known() && t.Pod.GroupState == GroupExists {
		if c := t.container(id); c != nil && c.State != ContainerExited {
			t.assign(c)
			t.fill()
			t.tellIfChanged()
		}
	}
	return t.finish()
}

// Sweep looks after a pod between events: finishes its removal, makes a lost
// group again and fills it, and moves stray tasks (a process started by exec is
// born outside the group) of its containers. With skip, the reason why
// groups cannot be made at present, a lost one is not tried.
func (r *Rules) Sweep(p *PodState, skip Reason) Change {
	t := r.begin(p)
	switch {
	case t.PodState == nil:
	case t.Pod.Removing:
		if o := r.Hands.RemoveGroup(t.Pod); o.Reason == "" {
			t.ended = true
		}
	case t.Pod.GroupState == GroupExists:
		t.sweepGroup(skip)
		t.tellIfChanged()
	}
	return t.finish()
}

func (t *turn) sweepGroup(skip Reason) {
	path, found := t.r.Hands.FindGroup(t.Pod)
	switch {
	case found:
		t.have(path)
	case skip != "":
		t.fail(skip, "not tried: a pod before it could not get its group either")
		return
	case !t.makeGroup():
		return
	}
	t.refill = false // all of them are assigned here
	for i := range t.Containers {
		if c := &t.Containers[i]; c.State != ContainerExited {
			t.assign(c)
		}
	}
	t.fill()
}

// Vanished counts the time since everything of the pod was gone from the node,
// and removes the pod after the limit. Now is of the boot-time clock.
func (r *Rules) Vanished(p *PodState, gone bool, now, limit time.Duration) Change {
	t := r.begin(p)
	switch {
	case !t.known():
	case !gone:
		t.Pod.MissingSince = 0
	case t.Pod.MissingSince == 0:
		t.Pod.MissingSince = max(now, 1)
	case now-t.Pod.MissingSince > limit:
		t.end()
	}
	return t.finish()
}
