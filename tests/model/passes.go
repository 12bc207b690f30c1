package model

import (
	"cmp"
	"slices"
)

// Snapshot is a whole SYNCHRONIZE; cleanup is that of the first one after a
// start. Pods come in the order of their sandboxes' ids.
func (m *Model) Snapshot(cleanup bool) {
	boxes := sorted(m.Boxes)
	var uids []string
	for _, id := range boxes {
		if uid := m.Boxes[id].UID; !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	if cleanup && m.Mounted {
		for _, uid := range sorted(m.groups) {
			if m.groups[uid] != "" || slices.Contains(uids, uid) {
				continue
			}
			if !m.RmdirFails {
				delete(m.groups, uid)
			}
			m.RmdirFails = false
		}
	}
	for _, uid := range sorted(m.pods) {
		if p := m.pods[uid]; !slices.Contains(uids, uid) {
			if p.removing {
				m.finishRemoval(p)
			} else {
				m.end(p)
			}
		}
	}
	full := false
	for _, uid := range uids {
		m.turn++
		full = m.snapshotPod(uid, full) || full
	}
	for id := range m.waiting {
		if m.Conts[id] == nil {
			delete(m.waiting, id)
		}
	}
}

// snapshotPod says whether there was no free RMID.
func (m *Model) snapshotPod(uid string, full bool) bool {
	p := m.known(uid)
	if _, there := m.groups[uid]; !there && !m.Parents[uid] {
		if p != nil {
			m.end(p)
		}
		return false
	}
	if p != nil {
		for id, c := range p.conts {
			if m.Conts[id] == nil || m.Boxes[c.box] == nil {
				delete(p.conts, id)
			}
		}
		for box := range p.boxes {
			if m.Boxes[box] == nil {
				delete(p.boxes, box)
			}
		}
	}
	for _, id := range sorted(m.Boxes) {
		if m.Boxes[id].UID == uid {
			p = m.register(m.Boxes[id])
		}
	}
	if full && !m.found(p) {
		m.fail(p, "capacity")
	} else {
		m.makeGroup(p)
	}
	failed := p.reason == "capacity"
	p.refill = false // each is assigned below
	m.tell(p)
	for _, id := range sorted(m.Conts) {
		if m.Boxes[m.Conts[id].Box].UID == uid {
			m.snapshotContainer(p, id)
			m.tellIfChanged(p)
		}
	}
	return failed || p.reason == "capacity"
}

func (m *Model) snapshotContainer(p *pod, id string) {
	c := p.conts[id]
	if c == nil {
		c = m.addContainer(p, id)
	}
	switch state := m.Conts[id].State; {
	case c.state == "Exited":
	case state == "STOPPED":
		c.state, c.reason = "Exited", ""
	case state == "CREATED" && c.state == "Created":
	default:
		c.start()
		m.assign(p, c)
		m.fill(p)
	}
}

// RetryAll is a pass over failed pods, the oldest failure first, and over
// partial containers.
func (m *Model) RetryAll() {
	var failed []*pod
	for _, uid := range sorted(m.pods) {
		if p := m.known(uid); p != nil && p.state == "Failed" {
			failed = append(failed, p)
		}
	}
	slices.SortStableFunc(failed, func(a, b *pod) int { return cmp.Compare(a.failedAt, b.failedAt) })
	for _, p := range failed {
		m.RetryPod(p.uid)
		if p.reason == "capacity" || p.reason == "not_mounted" {
			break
		}
	}
	var partial []*container
	of := map[*container]*pod{}
	for _, uid := range sorted(m.pods) {
		if p := m.known(uid); p != nil {
			for _, c := range p.conts {
				if of[c] = p; c.state == "Partial" {
					partial = append(partial, c)
				}
			}
		}
	}
	slices.SortFunc(partial, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.made, b.made), cmp.Compare(a.id, b.id))
	})
	for _, c := range partial {
		m.RetryContainer(of[c].uid, c.id)
	}
}

// RetryPod tries one failed pod.
func (m *Model) RetryPod(uid string) {
	m.turn++
	if p := m.known(uid); p != nil && p.state == "Failed" {
		m.makeGroup(p)
		p.refill = false // the containers are tried one by one
		m.tellIfChanged(p)
	}
}

// RetryContainer assigns one container again.
func (m *Model) RetryContainer(uid, id string) {
	m.turn++
	p := m.known(uid)
	if p == nil || p.state != "Exists" || p.conts[id] == nil || p.conts[id].state == "Exited" {
		return
	}
	m.assign(p, p.conts[id])
	m.fill(p)
	m.tellIfChanged(p)
}

// Sweep looks after every pod; those that ended without a word are removed after
// a time. The first capacity error (or not_mounted) ends its group creations.
func (m *Model) Sweep(vanishedAfter int) {
	ended := ""
	for _, uid := range sorted(m.pods) {
		p := m.pods[uid]
		m.turn++
		if p.removing {
			m.finishRemoval(p)
			continue
		}
		if p.state == "Exists" {
			m.sweepGroup(p, ended)
			m.tellIfChanged(p)
			if p.reason == "capacity" || p.reason == "not_mounted" {
				ended = p.reason
			}
		}
		m.turn++
		switch {
		case !m.vanished(p):
			p.missing = 0
		case p.missing == 0:
			p.missing = m.Clock
		case m.Clock-p.missing > vanishedAfter:
			m.end(p)
		}
	}
}

func (m *Model) sweepGroup(p *pod, ended string) {
	if ended != "" && !m.found(p) {
		m.fail(p, ended)
		return
	}
	m.makeGroup(p)
	if p.state != "Exists" {
		return
	}
	p.refill = false // all of them are assigned here
	for _, c := range p.inOrder() {
		if c.state != "Exited" {
			m.assign(p, c)
		}
	}
	m.fill(p)
}

// vanished: its own cgroup is not there, nor a task.
func (m *Model) vanished(p *pod) bool {
	for id := range p.conts {
		if all, _ := m.count(id, ""); all > 0 {
			return false
		}
	}
	return !m.Parents[p.uid]
}
