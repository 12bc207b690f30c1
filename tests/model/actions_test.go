package model_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/tests/model"
)

// weights are how often an action is on the list.
var weights = map[string]int{"create": 3, "start": 5, "late": 2, "sweep": 3, "pass": 2, "snapshot": 2, "drop a group": 3, "fault": 2, "move": 3, "exec": 3}

// actions are what may happen next.
func (r *rig) actions() map[string]func(*rapid.T) {
	all := map[string]func(){
		"run a pod": r.actRun, "run a pod again": r.actRunAgain, "stop a sandbox": r.actStopBox, "remove a sandbox": r.actRemoveBox,
		"create": r.actCreate, "start": r.actStart, "late": r.actLate, "stop": r.actStop, "remove a container": r.actRemove,
		"exec": r.actExec, "die": r.actDie, "pod ends silently": r.actEndSilently,
		"snapshot": r.actSnapshot, "restart": r.actRestart, "pass": r.actPass, "retry a pod": r.actRetryPod,
		"retry a container": r.actRetryContainer, "sweep": r.actSweep,
		"others": r.actOthers, "control group": r.actControl, "move": r.actMove, "drop a group": r.actDrop,
		"umount": r.actUmount, "mount": r.actMount, "fault": r.actFault,
	}
	actions := map[string]func(*rapid.T){}
	for name, do := range all {
		for i := range max(1, weights[name]) {
			actions[fmt.Sprint(name, i)] = func(t *rapid.T) { r.t = t; do() }
		}
	}
	return actions
}

func (r *rig) actRun() {
	uid := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r.t, "uid")
	r.boxes++
	box := fmt.Sprintf("%s.%d", uid, r.boxes)
	r.m.Boxes[box] = &model.Box{ID: box, UID: uid}
	r.m.Parents[uid] = true
	r.must(r.tree.AddCgroup(parent(uid)))
	if rapid.IntRange(0, 4).Draw(r.t, "late") == 0 {
		return // its record comes later, after its containers' perhaps
	}
	r.play("run "+box, func() { r.m.Run(box) }, func() { r.record("RUN_POD_SANDBOX", box, "") })
}

func (r *rig) actRunAgain() {
	box := r.pick("sandbox", sorted(r.m.Boxes))
	r.play("run again "+box, func() { r.m.Run(box) }, func() { r.record("RUN_POD_SANDBOX", box, "") })
}

func (r *rig) actStopBox() {
	box := r.pick("sandbox", sorted(r.m.Boxes))
	r.play("stop sandbox "+box, func() { r.m.StopBox(box) }, func() { r.record("STOP_POD_SANDBOX", box, "") })
}

// actRemoveBox removes a sandbox with all that is in it.
func (r *rig) actRemoveBox() {
	box := r.pick("sandbox", sorted(r.m.Boxes))
	rec := r.pod(box)
	for _, id := range r.some(func(c *model.Cont) bool { return c.Box == box }) {
		r.endTasks(id)
		r.forget(id)
	}
	r.play("remove sandbox "+box, func() {
		r.m.RemoveBox(box)
		r.forgetBox(box)
	}, func() {
		r.hold(func(h *engine.Hold) error { h.Apply(podRecord("REMOVE_POD_SANDBOX", rec)); return nil })
	})
}

func (r *rig) actCreate() {
	box := r.pick("sandbox", r.withCgroup())
	r.containers++
	id := fmt.Sprintf("k%03d", r.containers)
	r.m.Conts[id] = &model.Cont{ID: id, Box: box, State: "CREATED"}
	r.event("POST_CREATE_CONTAINER", id)
}

// event plays a container's event, with its pod or without it.
func (r *rig) event(event, id string) {
	box := r.m.Conts[id].Box
	withPod := rapid.IntRange(0, 2).Draw(r.t, "with its pod") > 0
	if w := r.m.Waits(id); event == "STOP_CONTAINER" && w {
		withPod = false
	}
	if !withPod {
		box = ""
	}
	r.play(fmt.Sprintf("%s %s (pod: %v)", event, id, withPod), func() {
		r.m.Container(event, id, withPod)
	}, func() { r.record(event, box, id) })
}

func (r *rig) actStart() {
	id := r.pick("container", r.some(func(c *model.Cont) bool { return c.State == "CREATED" && r.m.Parents[r.m.Boxes[c.Box].UID] }))
	c := r.m.Conts[id]
	r.must(r.tree.AddCgroup(r.cgroup(id)))
	pid := r.tasks.Spawn()
	r.must(r.tree.AddProcess(r.cgroup(id), pid))
	r.tids[id] = append([]int{pid}, r.tasks.CloneN(pid, rapid.IntRange(0, 2).Draw(r.t, "threads"))...)
	c.State, c.Cgroup, c.Tasks = "RUNNING", true, make([]string, len(r.tids[id]))
	if r.m.Control && rapid.IntRange(0, 3).Draw(r.t, "in another control group") == 0 {
		r.toControl(id, model.Theirs)
	}
	r.event("START_CONTAINER", id)
}

// actLate repeats an event, or brings one too late.
func (r *rig) actLate() {
	id := r.pick("container", r.some(func(c *model.Cont) bool { return c.State != "CREATED" }))
	events := []string{"POST_CREATE_CONTAINER", "START_CONTAINER", "POST_START_CONTAINER", "POST_UPDATE_CONTAINER"}
	if r.m.Conts[id].State == "STOPPED" {
		events = append(events, "STOP_CONTAINER")
	}
	r.event(rapid.SampledFrom(events).Draw(r.t, "event"), id)
}

func (r *rig) actStop() {
	id := r.pick("container", r.some(func(c *model.Cont) bool { return c.State == "RUNNING" }))
	r.endTasks(id)
	r.m.Conts[id].State, r.m.Conts[id].Cgroup = "STOPPED", false
	r.must(r.tree.RemoveCgroup(r.cgroup(id)))
	r.event("STOP_CONTAINER", id)
}

func (r *rig) actRemove() {
	id := r.pick("container", r.some(func(c *model.Cont) bool { return c.State != "RUNNING" }))
	r.event("REMOVE_CONTAINER", id)
	if r.m.Conts[id] != nil {
		r.forget(id)
	}
}

// actExec is a process born outside of the group.
func (r *rig) actExec() {
	id := r.pick("container", r.some(func(c *model.Cont) bool { return c.State == "RUNNING" && len(c.Tasks) > 0 }))
	pid := r.tasks.Spawn()
	r.must(r.tree.AddProcess(r.cgroup(id), pid))
	r.tids[id] = append(r.tids[id], pid)
	r.m.Conts[id].Tasks = append(r.m.Conts[id].Tasks, "")
	r.compare(true)
}

// actDie is the end of all processes, of which no event came yet.
func (r *rig) actDie() {
	id := r.pick("container", r.some(func(c *model.Cont) bool { return len(c.Tasks) > 0 }))
	r.endTasks(id)
	r.compare(true)
}

func (r *rig) endTasks(id string) {
	for _, tid := range r.tids[id] {
		r.tasks.Exit(tid)
	}
	delete(r.tids, id)
	r.m.Conts[id].Tasks, r.m.Conts[id].In = nil, 0
}

// forget: the runtime has the container no more.
func (r *rig) forget(id string) {
	if r.m.Conts[id].Cgroup {
		r.must(r.tree.RemoveCgroup(r.cgroup(id)))
	}
	delete(r.m.Conts, id)
}

func (r *rig) forgetBox(box string) {
	uid := r.m.Boxes[box].UID
	delete(r.m.Boxes, box)
	for _, b := range r.m.Boxes {
		if b.UID == uid {
			return
		}
	}
	if r.m.Parents[uid] {
		delete(r.m.Parents, uid)
		r.must(r.tree.RemoveCgroup(parent(uid)))
	}
}

// actEndSilently: a pod completes: its cgroup goes, and the runtime tells of it
// in its next snapshot, or never again; or it forgets it.
func (r *rig) actEndSilently() {
	r.endSilently(r.pick("sandbox", r.withCgroup()), rapid.Bool().Draw(r.t, "forgotten"))
	r.compare(true)
}

// withCgroup are the sandboxes of pods whose cgroup is there.
func (r *rig) withCgroup() []string {
	return slices.DeleteFunc(sorted(r.m.Boxes), func(b string) bool { return !r.m.Parents[r.m.Boxes[b].UID] })
}

func (r *rig) endSilently(box string, forgotten bool) {
	uid := r.m.Boxes[box].UID
	for _, id := range r.some(func(c *model.Cont) bool { return r.m.Boxes[c.Box].UID == uid }) {
		r.endTasks(id)
		c := r.m.Conts[id]
		if c.Cgroup {
			r.must(r.tree.RemoveCgroup(r.cgroup(id)))
		}
		c.Cgroup, c.State = false, "STOPPED"
		if forgotten {
			delete(r.m.Conts, id)
		}
	}
	delete(r.m.Parents, uid)
	r.must(r.tree.RemoveCgroup(parent(uid)))
	for _, b := range sorted(r.m.Boxes) {
		if forgotten && r.m.Boxes[b].UID == uid {
			delete(r.m.Boxes, b)
		}
	}
}

func podRecord(event string, pod *lifecycle.Pod) *lifecycle.Record {
	return &lifecycle.Record{Event: lifecycle.Event(event), Pod: pod}
}
