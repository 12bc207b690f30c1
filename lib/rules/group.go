package rules

// maxAssigns bounds the assignments of one container in one turn: one for the
// group as it is, one after it was made anew, one after it followed the
// container to its control group.
const maxAssigns = 3

// makeGroup makes the pod's group and says whether the pod has one now.
func (t *turn) makeGroup() bool {
	o := t.r.Hands.MakeGroup(t.Pod)
	if o.Reason != "" {
		t.fail(o.Reason, o.Err)
		t.Pod.Attempts++
		return false
	}
	if o.Created && t.Pod.GroupState == GroupExists {
		t.lost()
	}
	t.have(o.Path)
	return true
}

// have records that the group is at path.
func (t *turn) have(path string) {
	t.Pod.GroupState, t.Pod.GroupPath, t.Pod.Reason = GroupExists, path, ""
	t.Pod.LastError = ""
	t.Pod.FailedSince, t.Pod.Attempts = zeroTime, 0
	t.reason = ""
}

// fail records that the pod has no group: nothing of it is reconciled.
func (t *turn) fail(reason Reason, why string) {
	t.reason = reason
	if t.Pod.GroupState == GroupExists {
		t.lost()
	}
	t.Pod.GroupState, t.Pod.Reason, t.Pod.LastError = GroupFailed, reason, why
	if t.Pod.FailedSince.IsZero() {
		t.Pod.FailedSince = t.now
	}
	for i := range t.Containers {
		if c := &t.Containers[i]; c.State == ContainerPartial || c.State == ContainerReconciled {
			c.State, c.Reason = ContainerPartial, reason
		}
	}
}

// lost says that the group is not there any more: counting starts from 0, and
// the result is told.
func (t *turn) lost() {
	t.force, t.refill = true, true
	for i := range t.Containers {
		t.Containers[i].Counted = false
	}
}

// retryGroup tries the group of a Failed pod once more, and fills it.
func (t *turn) retryGroup() {
	if t.Pod.GroupState == GroupFailed && t.alive() && t.makeGroup() {
		t.refill = true
	}
}

// fill assigns every container that has started, once, if the group is new or
// has moved in this turn.
func (t *turn) fill() {
	if !t.refill {
		return
	}
	t.refill = false
	for i := range t.Containers {
		if c := &t.Containers[i]; c.State == ContainerPartial || c.State == ContainerReconciled {
			t.assign(c)
		}
	}
	t.refill = false
}

// assign brings the tasks of c into the pod's group and records what came of it.
func (t *turn) assign(c *Container) {
	for try := 1; ; try++ {
		if t.Pod.GroupState != GroupExists {
			if c.State != ContainerCreated {
				c.State, c.Reason, c.Counted = ContainerPartial, t.Pod.Reason, false
			}
			return
		}
		o := t.r.Hands.Assign(t.Pod, *c)
		if try < maxAssigns && t.mend(c, o) {
			continue
		}
		t.record(c, o)
		return
	}
}

// mend repairs what kept an assignment from working: a group that is gone is
// made again, an empty one follows its tasks to their control group. It says
// whether another assignment is worth it.
func (t *turn) mend(c *Container, o AssignOutcome) bool {
	switch {
	case o.GroupGone:
		t.lost()
		t.makeGroup()
		return true
	case o.Reason == ReasonNotMounted:
		t.fail(ReasonNotMounted, o.Err)
		return true
	case o.InGroup == 0 && len(o.Foreign) > 0 && t.unused(c):
		return t.follow(mostTasks(o.Foreign))
	}
	return false
}

// unused says whether no other container has a task in the group. What the
// state says of them may be old: they are asked by assigning them.
func (t *turn) unused(except *Container) bool {
	for i := range t.Containers {
		c := &t.Containers[i]
		if c.ID == except.ID || c.State != ContainerPartial && c.State != ContainerReconciled {
			continue
		}
		if o := t.r.Hands.Assign(t.Pod, *c); o.InGroup > 0 {
			return false
		}
	}
	return true
}

// follow moves the group to a control group, and says whether to go on: the
// group is there now, or there is none any more (a kernel that cannot rename
// removes it before it makes the other).
func (t *turn) follow(controlGroup string) bool {
	o := t.r.Hands.MoveGroup(t.Pod, controlGroup)
	switch {
	case o.Reason == "":
		t.have(o.Path)
		t.refill = true
	case o.Gone || o.Reason == ReasonNotMounted:
		t.Pod.GroupPath = o.Path
		t.fail(o.Reason, o.Err)
	default:
		return false
	}
	return true
}

func mostTasks(foreign map[string]int) string {
	best, most := "", -1
	for name, n := range foreign {
		if n > most || n == most && name < best {
			best, most = name, n
		}
	}
	return best
}

// record sets the container's state from an assignment's outcome.
func (t *turn) record(c *Container, o AssignOutcome) {
	c.place(o.CgroupPath, "")
	started := c.State != ContainerCreated
	if o.Reason == "" && o.Tasks == 0 && (!started || c.Counted) {
		return // not started yet, or ended and its stop is on the way
	}
	c.Tasks = o.Tasks
	if o.Reason == "" && o.Tasks > 0 && o.InGroup == o.Tasks {
		c.State, c.Reason, c.Counted = ContainerReconciled, "", true
		c.Attempts, c.LastError = 0, ""
		return
	}
	c.State, c.Counted = ContainerPartial, false
	c.Attempts++
	c.LastError = o.Err
	switch {
	case o.Reason != "":
		c.Reason = o.Reason
	case o.GroupGone:
		c.Reason = ReasonIO
	case o.Tasks == 0:
		c.Reason = ReasonNoTasks
	case len(o.Foreign) > 0:
		c.Reason = ReasonOtherControlGroup
	default:
		c.Reason = ReasonUnstable
	}
}
