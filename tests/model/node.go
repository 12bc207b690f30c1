// Package model is a simple model of what the programs promise: the runtime's
// node and the kernel's groups, reduced to what matters, and what a lifecycle
// record, a snapshot or a retry makes of state and events on it. It is written
// from the contract and shares no code with the programs; its test drives the
// real engine beside it and compares.
package model

import (
	"cmp"
	"maps"
	"slices"
)

// Theirs is the one control group of another tool.
const Theirs = "theirs"

// Box is a sandbox of the runtime.
type Box struct {
	ID, UID string
}

// Cont is a container of the runtime.
type Cont struct {
	ID, Box string
	State   string   // CREATED (no process), RUNNING, STOPPED
	Cgroup  bool     // its cgroup is there
	Tasks   []string // the control group of each of its tasks; "" is the root's
	In      int      // so many of them, the first ones, are in the pod's group
}

// displace: its tasks are in no group of ours, in this control group.
func (c *Cont) displace(ctrl string) {
	c.In = 0
	for i := range c.Tasks {
		c.Tasks[i] = ctrl
	}
}

// Event is one event of the log.
type Event struct {
	Type, UID string
	Pod       // of an AddOrUpdate
}

// Pod is what consumers are told of a pod.
type Pod struct {
	State, Reason     string
	Where             string // the control group that the group is in, of Exists
	Total, Reconciled int
}

// Row is a container in the state.
type Row struct{ UID, State, Reason string }

// Seen is what state and kernel show.
type Seen struct {
	Pods       map[string]Pod
	Removing   map[string]bool
	Containers map[string]Row
	Groups     map[string]string // by uid: in which control group
}

// pod is a row of the state.
type pod struct {
	uid, state, reason string
	where              string // the control group of its group, or of the one to be made
	boxes              map[string]bool
	stopped            map[string]bool
	conts              map[string]*container
	removing           bool
	failedAt           int // the turn since which it has no group
	missing            int // the time at which it was first found gone

	told    Pod  // what consumers know
	tellAny bool // the group was lost: the result is told in any case
	refill  bool // the group is new or elsewhere: every container is assigned again
}

// container is a row of the state.
type container struct {
	id, box, state, reason string
	counted                bool
	made                   int // the turn in which it became known
}

// Model is a node and what is known of it.
type Model struct {
	RMIDs   int  // without the root's
	Old     bool // a kernel that cannot rename groups
	Mounted bool
	Control bool // Theirs is there
	Others  int  // monitoring groups of others
	Boxes   map[string]*Box
	Parents map[string]bool // by uid: the pod's own cgroup is there
	Conts   map[string]*Cont
	Clock   int // seconds since boot
	// MkdirFails is the reason that the next mkdir of ours fails with, "" for none;
	// RmdirFails says that the next rmdir fails.
	MkdirFails string
	RmdirFails bool

	groups  map[string]string
	pods    map[string]*pod
	waiting map[string]*container // without a pod
	turn    int
	events  []Event
}

// New is an empty node.
func New(rmids int) *Model {
	return &Model{
		RMIDs: rmids, Mounted: true, Clock: 1000, Boxes: map[string]*Box{}, Parents: map[string]bool{}, Conts: map[string]*Cont{},
		groups: map[string]string{}, pods: map[string]*pod{}, waiting: map[string]*container{},
	}
}

// Free is how many RMIDs nobody has.
func (m *Model) Free() int {
	n := m.RMIDs - m.Others - len(m.groups)
	if m.Control {
		n--
	}
	return n
}

// Umount drops all groups.
func (m *Model) Umount() {
	m.Mounted, m.Control, m.Others = false, false, 0
	clear(m.groups)
	for _, c := range m.Conts {
		c.displace("")
	}
}

// DropControl is the other tool's rmdir of its control group.
func (m *Model) DropControl() {
	m.Control = false
	maps.DeleteFunc(m.groups, func(_, where string) bool { return where == Theirs })
	for _, c := range m.Conts {
		for i, ctrl := range c.Tasks {
			if ctrl == Theirs {
				c.Tasks[i], c.In = "", min(c.In, i)
			}
		}
	}
}

// DropGroup is somebody else's rmdir of a pod's group.
func (m *Model) DropGroup(uid string) {
	delete(m.groups, uid)
	for _, c := range m.Conts {
		if m.Boxes[c.Box].UID == uid {
			c.In = 0
		}
	}
}

// Displace is somebody else's write of a container's tasks into a control group.
func (m *Model) Displace(id, ctrl string) { m.Conts[id].displace(ctrl) }

// Groups are the pods' groups that are there.
func (m *Model) Groups() map[string]string { return maps.Clone(m.groups) }

// Known are the pods of the state, sorted.
func (m *Model) Known() []string { return sorted(m.pods) }

// Waits says whether a container waits for its pod.
func (m *Model) Waits(id string) bool { return m.waiting[id] != nil }

// Told gives the events since the last call.
func (m *Model) Told() []Event {
	all := m.events
	m.events = nil
	return all
}

// Seen is what must be seen now.
func (m *Model) Seen() Seen {
	s := Seen{Pods: map[string]Pod{}, Removing: map[string]bool{}, Containers: map[string]Row{}, Groups: m.Groups()}
	for uid, p := range m.pods {
		if p.removing {
			s.Removing[uid] = true
			continue
		}
		s.Pods[uid] = p.telling()
		for id, c := range p.conts {
			s.Containers[id] = Row{uid, c.state, c.reason}
		}
	}
	for id, c := range m.waiting {
		s.Containers[id] = Row{"", c.state, c.reason}
	}
	return s
}

// KilledAt takes over from what is seen after a kill what no one can know before:
// which groups are there.
func (m *Model) KilledAt(groups map[string]string) {
	m.events, m.MkdirFails, m.RmdirFails = nil, "", false
	m.groups = maps.Clone(groups)
}

// Recovered takes over, after the snapshot that follows a kill, what the kill may
// have decided either way: whether a container without tasks, of a pod that lost
// its group, is still counted, since when a pod has no group, and where it was.
func (m *Model) Recovered(rows map[string]Row, counted map[string]bool, failed []string, where map[string]string) {
	for _, p := range m.pods {
		for id, c := range p.conts {
			all, _ := m.count(id, "")
			row := rows[id]
			switch {
			case c.state == "Exited":
				c.counted = counted[id]
			case all > 0 || !c.started():
			case row.State == "Reconciled" && counted[id], row.State == "Partial" && row.Reason == "no_tasks" && !counted[id]:
				c.state, c.reason, c.counted = row.State, row.Reason, counted[id]
			}
		}
		if w, ok := where[p.uid]; ok && p.state == "Failed" {
			p.where = w
		}
		p.told = p.telling()
	}
	for i, uid := range failed {
		if p := m.pods[uid]; p != nil {
			p.failedAt = i - len(failed)
		}
	}
}

func sorted[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// inOrder are a pod's containers, the oldest first.
func (p *pod) inOrder() []*container {
	return slices.SortedFunc(maps.Values(p.conts), func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.made, b.made), cmp.Compare(a.id, b.id))
	})
}
