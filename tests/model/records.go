package model

import "maps"

// Run is a RUN_POD_SANDBOX.
func (m *Model) Run(box string) {
	m.turn++
	b := m.Boxes[box]
	p := m.known(b.UID)
	if p != nil && p.boxes[box] {
		return
	}
	had := p != nil && p.state == "Exists"
	p = m.register(b)
	if had && m.found(p) {
		p.where = m.groups[p.uid]
	} else {
		m.makeGroup(p)
		p.refill = p.refill || !had
	}
	m.adopt(p, box, "")
	m.fill(p)
	m.tell(p)
}

// StopBox is a STOP_POD_SANDBOX.
func (m *Model) StopBox(box string) {
	if p := m.known(m.Boxes[box].UID); p != nil && p.boxes[box] {
		p.stopped[box] = true
	}
}

// RemoveBox is a REMOVE_POD_SANDBOX.
func (m *Model) RemoveBox(box string) {
	m.turn++
	maps.DeleteFunc(m.waiting, func(_ string, c *container) bool { return c.box == box })
	p := m.known(m.Boxes[box].UID)
	if p == nil || !p.boxes[box] {
		return
	}
	delete(p.boxes, box)
	maps.DeleteFunc(p.conts, func(_ string, c *container) bool { return c.box == box })
	if len(p.boxes) == 0 {
		m.end(p)
		return
	}
	m.tellIfChanged(p)
}

// Container is a container's event, which may carry its pod.
func (m *Model) Container(event, id string, withPod bool) {
	m.turn++
	b := m.Boxes[m.Conts[id].Box]
	p := m.known(b.UID)
	if !withPod && (p == nil || !p.boxes[b.ID]) {
		m.podless(event, id)
		return
	}
	if event == "REMOVE_CONTAINER" {
		delete(m.waiting, id)
		if p != nil && p.conts[id] != nil {
			delete(p.conts, id)
			m.retryGroup(p)
			m.fill(p)
			m.tellIfChanged(p)
		}
		return
	}
	fresh := p == nil
	if fresh || !p.boxes[b.ID] {
		if event == "STOP_CONTAINER" {
			return // of something that was never seen
		}
		p = m.register(b)
	}
	c := p.conts[id]
	if c == nil {
		c = m.addContainer(p, id)
	}
	ended := c.state == "Exited"
	if fresh || !ended {
		m.retryGroup(p)
	}
	switch {
	case ended || c.state == "Reconciled" && event != "STOP_CONTAINER" || event == "POST_CREATE_CONTAINER":
	case event == "STOP_CONTAINER":
		c.state, c.reason = "Exited", ""
	default:
		c.start()
		m.assign(p, c)
	}
	m.adopt(p, b.ID, id)
	m.fill(p)
	m.tellIfChanged(p)
}

// podless is a container's event where no pod is known.
func (m *Model) podless(event, id string) {
	c := m.waiting[id]
	switch {
	case event == "REMOVE_CONTAINER":
		delete(m.waiting, id)
		return
	case c == nil && event == "STOP_CONTAINER":
		return
	case c == nil:
		c = &container{id: id, box: m.Conts[id].Box, state: "NoPod", made: m.turn}
		m.waiting[id] = c
	}
	if event == "STOP_CONTAINER" {
		c.reason = "exited"
	}
}

// known is the pod with the uid, if there is one.
func (m *Model) known(uid string) *pod {
	if p := m.pods[uid]; p != nil && !p.removing {
		return p
	}
	return nil
}

// register makes pod and sandbox known.
func (m *Model) register(b *Box) *pod {
	p := m.known(b.UID)
	if p == nil {
		p = &pod{uid: b.UID, state: "Failed", boxes: map[string]bool{}, stopped: map[string]bool{}, conts: map[string]*container{}, failedAt: m.turn}
		m.pods[b.UID] = p
	}
	p.boxes[b.ID], p.missing = true, 0
	return p
}

// adopt takes the containers that waited for the pod.
func (m *Model) adopt(p *pod, box, except string) {
	for _, id := range sorted(m.waiting) {
		if m.waiting[id].box == box && id != except {
			if c := m.addContainer(p, id); c.state == "Created" {
				m.assign(p, c)
			}
		}
	}
}

// addContainer makes a container of the pod known, perhaps one that waited for it.
func (m *Model) addContainer(p *pod, id string) *container {
	c := &container{id: id, box: m.Conts[id].Box, state: "Created", made: m.turn}
	if w := m.waiting[id]; w != nil {
		c.made = w.made
		if w.reason == "exited" {
			c.state = "Exited"
		}
		delete(m.waiting, id)
	}
	p.conts[id] = c
	return c
}

// start: it has a process by now.
func (c *container) start() {
	if c.state == "Created" {
		c.state, c.reason = "Partial", "no_tasks"
	}
}

// end removes a pod with its group; where that stays, so does the row.
func (m *Model) end(p *pod) {
	m.events = append(m.events, Event{Type: "Removed", UID: p.uid})
	clear(p.boxes)
	clear(p.conts)
	p.missing = 0
	p.removing = true
	m.finishRemoval(p)
}

func (m *Model) finishRemoval(p *pod) {
	if m.found(p) && m.RmdirFails {
		m.RmdirFails = false
		return
	}
	delete(m.groups, p.uid)
	delete(m.pods, p.uid)
}

func (p *pod) telling() Pod {
	t := Pod{State: p.state, Reason: p.reason, Total: len(p.conts)}
	if p.state == "Exists" {
		t.Where, t.Reason = p.where, ""
	}
	for _, c := range p.conts {
		if c.counted {
			t.Reconciled++
		}
	}
	return t
}

func (m *Model) tell(p *pod) {
	p.told, p.tellAny = p.telling(), false
	m.events = append(m.events, Event{Type: "AddOrUpdate", UID: p.uid, Pod: p.told})
}

// tellIfChanged: a reason alone is no change.
func (m *Model) tellIfChanged(p *pod) {
	was, is := p.told, p.telling()
	was.Reason, is.Reason = "", ""
	if p.tellAny || was != is {
		m.tell(p)
	}
}
