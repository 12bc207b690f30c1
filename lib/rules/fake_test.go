package rules

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// node is a node as the rules see it: groups, RMIDs, and containers' tasks by
// the group that holds them.
type node struct {
	t       *testing.T
	r       *Rules
	free    int // RMIDs
	mounted bool
	stuck   bool // rmdir fails
	groups  map[string]bool
	tasks   map[string]map[int]string // container id -> task -> group path, or "/ctrl" of a control group
	mkdirs  int
	assigns int
	pods    map[string]*PodState
	orphans map[string]Container
	log     []string // events told
	clock   time.Time
}

func newNode(t *testing.T) *node {
	n := &node{
		t: t, free: 4, mounted: true, groups: map[string]bool{}, tasks: map[string]map[int]string{},
		pods: map[string]*PodState{}, orphans: map[string]Container{}, clock: time.Unix(1, 0),
	}
	n.r = &Rules{Hands: n, Naming: Naming{Root: "/r", Prefix: "pod_"}, Now: func() time.Time {
		n.clock = n.clock.Add(time.Second)
		return n.clock
	}}
	return n
}

func (n *node) FindGroup(p Pod) (string, bool) {
	if n.groups[p.GroupPath] {
		return p.GroupPath, true
	}
	for g := range n.groups {
		if path.Base(g) == path.Base(p.GroupPath) {
			return g, true
		}
	}
	return "", false
}

func (n *node) MakeGroup(p Pod) GroupOutcome {
	if g, ok := n.FindGroup(p); ok {
		return GroupOutcome{Path: g}
	}
	g := n.r.Naming.GroupPath(p.UID)
	n.mkdirs++
	switch {
	case !n.mounted:
		return GroupOutcome{Path: g, Reason: ReasonNotMounted}
	case n.free == 0:
		return GroupOutcome{Path: g, Reason: ReasonCapacity}
	}
	n.free--
	n.groups[g] = true
	return GroupOutcome{Path: g, Created: true}
}

func (n *node) MoveGroup(p Pod, controlGroup string) GroupOutcome {
	to := path.Join("/r", controlGroup, "mon_groups", path.Base(p.GroupPath))
	delete(n.groups, p.GroupPath)
	n.groups[to] = true
	return GroupOutcome{Path: to}
}

func (n *node) RemoveGroup(p Pod) GroupOutcome {
	g, ok := n.FindGroup(p)
	if ok && n.stuck {
		return GroupOutcome{Path: g, Reason: ReasonIO}
	}
	if ok {
		delete(n.groups, g)
		n.free++
	}
	return GroupOutcome{}
}

func (n *node) Assign(p Pod, c Container) AssignOutcome {
	n.assigns++
	if !n.mounted {
		return AssignOutcome{Reason: ReasonNotMounted}
	}
	if !n.groups[p.GroupPath] {
		return AssignOutcome{GroupGone: true}
	}
	o := AssignOutcome{Tasks: len(n.tasks[c.ID])}
	for id, in := range n.tasks[c.ID] {
		ctrl := controlGroup(in)
		if ctrl != controlGroup(p.GroupPath) {
			if o.Foreign == nil {
				o.Foreign = map[string]int{}
			}
			o.Foreign[strings.TrimPrefix(ctrl, "/")]++
			continue
		}
		n.tasks[c.ID][id] = p.GroupPath
		o.InGroup++
	}
	return o
}

// controlGroup of a group path "/r/x/mon_groups/y" or "/r/mon_groups/y" or of
// a control group "/x" or "".
func controlGroup(g string) string {
	if !strings.HasPrefix(g, "/r/") {
		return g
	}
	return strings.TrimPrefix(path.Dir(path.Dir(g)), "/r")
}

// run gives a container n tasks in a control group ("" is the root's).
func (n *node) run(id string, tasks int, ctrl string) {
	n.tasks[id] = map[int]string{}
	for i := range tasks {
		n.tasks[id][i] = ctrl
	}
}

func (n *node) remountEmpty() {
	n.free += len(n.groups)
	n.groups = map[string]bool{}
	for id := range n.tasks {
		n.run(id, len(n.tasks[id]), "")
	}
}

func (n *node) take(uid string, ch Change) Change {
	n.t.Helper()
	for _, e := range ch.Events {
		n.log = append(n.log, show(e))
	}
	for _, id := range ch.Adopted {
		delete(n.orphans, id)
	}
	if ch.State == nil {
		delete(n.pods, uid)
		return ch
	}
	if got := ch.State.Pod.Total; got != len(ch.State.Containers) {
		n.t.Errorf("pod %s: total_containers %d of %d containers", uid, got, len(ch.State.Containers))
	}
	n.pods[uid] = ch.State
	return ch
}

func show(e Event) string {
	if e.Type == Removed {
		return "Removed " + e.PodUID
	}
	s := fmt.Sprintf("%s %s (%d,%d)", e.PodUID, e.GroupState, e.Total, e.Reconciled)
	if e.Reason != "" {
		s += " " + string(e.Reason)
	}
	if ctrl := controlGroup(e.GroupPath); e.GroupPath != "" && ctrl != "" {
		s += " in " + ctrl
	}
	return s
}

// event plays a lifecycle event: "sandbox/container" of a pod; the sandbox
// names are unique.
func (n *node) event(ev lifecycle.Event, uid, sandbox, container string) Change {
	n.t.Helper()
	rec := &lifecycle.Record{Event: ev, Pod: &lifecycle.Pod{ID: sandbox, UID: uid, Name: "n-" + uid, CgroupParent: "/" + uid}}
	in := Input{Record: rec, UID: uid}
	if container != "" {
		rec.Container = &lifecycle.Container{ID: container, PodSandboxID: sandbox, Name: container}
		in.CgroupPath = "/" + uid + "/" + container
	}
	for _, c := range n.orphans {
		if c.SandboxID == sandbox {
			in.Orphans = append(in.Orphans, c)
		}
	}
	return n.take(uid, n.r.Apply(n.pods[uid], in))
}

// expect compares the events told since the last call.
func (n *node) expect(want ...string) {
	n.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), append([]string{}, n.log...)); d != "" {
		n.t.Errorf("events (-want +got):\n%s", d)
	}
	n.log = nil
}
