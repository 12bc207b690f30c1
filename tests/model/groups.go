package model

func (m *Model) found(p *pod) bool {
	_, ok := m.groups[p.uid]
	return ok && m.Mounted
}

// makeGroup makes the group, or uses the one that is there.
func (m *Model) makeGroup(p *pod) {
	switch {
	case !m.Mounted:
		m.fail(p, "not_mounted")
		return
	case m.found(p):
		m.have(p, m.groups[p.uid])
		return
	case m.MkdirFails != "":
		reason := m.MkdirFails
		m.MkdirFails = ""
		m.fail(p, reason)
		return
	}
	if p.where == Theirs && !m.Control {
		p.where = ""
	}
	if m.Free() <= 0 {
		m.fail(p, "capacity")
		return
	}
	if p.state == "Exists" {
		p.lost()
	}
	m.groups[p.uid] = p.where
	m.have(p, p.where)
}

func (m *Model) have(p *pod, where string) { p.state, p.reason, p.where = "Exists", "", where }

// lost: counting starts from 0, and the result is told.
func (p *pod) lost() {
	p.tellAny, p.refill = true, true
	for _, c := range p.conts {
		c.counted = false
	}
}

// fail: the pod has no group.
func (m *Model) fail(p *pod, reason string) {
	if p.state == "Exists" {
		p.lost()
		p.failedAt = m.turn
	}
	p.state, p.reason = "Failed", reason
	for _, c := range p.conts {
		if c.started() {
			c.state, c.reason = "Partial", reason
		}
	}
}

func (c *container) started() bool { return c.state == "Partial" || c.state == "Reconciled" }

// retryGroup tries the group of a failed pod once more, while one of its
// sandboxes was not stopped.
func (m *Model) retryGroup(p *pod) {
	alive := false
	for box := range p.boxes {
		alive = alive || !p.stopped[box]
	}
	if p.state == "Failed" && alive {
		m.makeGroup(p)
		p.refill = p.refill || p.state == "Exists"
	}
}

// fill assigns everything again to a group that is new, or elsewhere.
func (m *Model) fill(p *pod) {
	if !p.refill {
		return
	}
	for _, c := range p.inOrder() {
		if c.started() {
			m.assign(p, c)
		}
	}
	p.refill = false
}

// count gives a container's tasks: all, and those in a control group.
func (m *Model) count(id, ctrl string) (all, there int) {
	c := m.Conts[id]
	if c == nil || !c.Cgroup {
		return 0, 0
	}
	for _, t := range c.Tasks {
		all++
		if t == ctrl {
			there++
		}
	}
	return all, there
}

// assign brings a container's tasks into the pod's group, and mends the group
// where that is needed.
func (m *Model) assign(p *pod, c *container) {
	for {
		all, in := m.count(c.id, p.where)
		switch {
		case p.state != "Exists":
			if c.state != "Created" {
				c.state, c.reason, c.counted = "Partial", p.reason, false
			}
			return
		case m.Conts[c.id] == nil || !m.Conts[c.id].Cgroup:
			c.settle(0, 0)
			return
		case !m.Mounted:
			m.fail(p, "not_mounted")
		case !m.found(p):
			p.lost()
			m.makeGroup(p)
		case all > 0 && in == 0 && m.alone(p, c) && m.follow(p, m.Conts[c.id].Tasks):
		default:
			if all == in {
				m.Conts[c.id].In = all
			}
			c.settle(all, in)
			return
		}
	}
}

// follow moves the empty group to the control group of most of the tasks, and
// says whether there was anything to it.
func (m *Model) follow(p *pod, tasks []string) bool {
	if m.Old && m.RmdirFails {
		m.RmdirFails = false
		return false
	}
	theirs := 0
	for _, ctrl := range tasks {
		if ctrl == Theirs {
			theirs++
		}
	}
	p.where = ""
	if theirs > 0 {
		p.where = Theirs
	}
	if m.Old && m.MkdirFails != "" {
		delete(m.groups, p.uid)
		m.fail(p, m.MkdirFails)
		m.MkdirFails = ""
		return true
	}
	m.groups[p.uid] = p.where
	p.refill = true
	return true
}

// alone: no other container has tasks where the group is.
func (m *Model) alone(p *pod, c *container) bool {
	for id, other := range p.conts {
		if _, in := m.count(id, p.where); id != c.id && other.started() && in > 0 {
			return false
		}
	}
	return true
}

// settle records how many of the tasks are in the group.
func (c *container) settle(all, in int) {
	switch {
	case all == 0 && (c.state == "Created" || c.counted):
		// not started yet; or ended, and its stop is on the way
	case all > 0 && in == all:
		c.state, c.reason, c.counted = "Reconciled", "", true
	case all == 0:
		c.state, c.reason, c.counted = "Partial", "no_tasks", false
	default:
		c.state, c.reason, c.counted = "Partial", "other_control_group", false
	}
}
