package model_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/tests/model"
)

func (r *rig) actSnapshot() {
	r.play("snapshot", func() { r.m.Snapshot(r.fresh && r.cleanup) }, func() { r.snapshot(r.fresh && r.cleanup) })
}

func (r *rig) actRestart() {
	r.restart()
	r.compare(true)
}

func (r *rig) actPass() {
	r.play("pass", r.m.RetryAll, func() {
		pass, err := r.eng.RetryAllOnce(context.Background())
		forGood := slices.ContainsFunc(pass.Groups, func(g engine.GroupResult) bool {
			return g.Reason == rules.ReasonPermission || g.Reason == rules.ReasonIO
		})
		if (err != nil) != forGood {
			r.t.Fatalf("groups %+v, the pass says: %v", pass.Groups, err)
		}
	})
}

func (r *rig) actRetryPod() {
	uid := r.pick("pod", r.m.Known())
	r.play("retry pod "+uid, func() { r.m.RetryPod(uid) }, func() {
		if !r.removing(uid) {
			_, err := r.eng.RetryGroupCreation(context.Background(), uid)
			r.must(err)
		}
	})
}

func (r *rig) removing(uid string) bool { return r.m.Seen().Removing[uid] }

func (r *rig) actRetryContainer() {
	seen := r.m.Seen()
	id := r.pick("container", slices.DeleteFunc(sorted(seen.Containers), func(id string) bool { return seen.Containers[id].UID == "" }))
	r.play("retry container "+id, func() { r.m.RetryContainer(seen.Containers[id].UID, id) }, func() {
		_, err := r.eng.RetryContainerReconcile(context.Background(), id)
		r.must(err)
	})
}

// actSweep is a sweep, some time after whatever was before.
func (r *rig) actSweep() {
	r.m.Clock += rapid.SampledFrom([]int{0, 1, 40, vanishedAfter, vanishedAfter + 1}).Draw(r.t, "seconds")
	r.play("sweep", func() { r.m.Sweep(vanishedAfter) }, func() {
		_, err := r.eng.Sweep(context.Background(), engine.SweepOptions{VanishedAfter: vanishedAfter * time.Second})
		r.must(err)
	})
}

// actOthers: another tool takes an RMID, or gives one back.
func (r *rig) actOthers() {
	if !r.m.Mounted {
		r.t.Skip("not mounted")
	}
	if r.m.Free() > 0 && rapid.Bool().Draw(r.t, "take") {
		r.others("mkdir", fmt.Sprintf("mon_groups/x%d", r.m.Others), "")
		r.m.Others++
	} else if r.m.Others > 0 {
		r.m.Others--
		r.others("rmdir", fmt.Sprintf("mon_groups/x%d", r.m.Others), "")
	}
	r.compare(true)
}

// actControl makes or removes another tool's control group.
func (r *rig) actControl() {
	switch {
	case r.m.Control && rapid.Bool().Draw(r.t, "keep"), !r.m.Mounted, !r.m.Control && r.m.Free() == 0:
		r.t.Skip("not now")
	case r.m.Control:
		r.others("rmdir", model.Theirs, "")
		r.m.DropControl()
	default:
		r.others("mkdir", model.Theirs, "")
		r.m.Control = true
	}
	r.compare(true)
}

func (r *rig) toControl(id, ctrl string) {
	for _, tid := range r.tids[id] {
		r.others("write", ctrl+"/tasks", strconv.Itoa(tid))
	}
	r.m.Displace(id, ctrl)
}

// actMove: somebody moves a container's tasks to another control group.
func (r *rig) actMove() {
	if !r.m.Control {
		r.t.Skip("no control group")
	}
	id := r.pick("container", r.some(func(c *model.Cont) bool { return len(c.Tasks) > 0 }))
	r.toControl(id, model.Theirs)
	r.compare(true)
}

func (r *rig) actDrop() {
	uid := r.pick("group", sorted(r.m.Groups()))
	at := r.m.Groups()[uid]
	r.others("rmdir", at+"/mon_groups/pod_"+uid, "")
	r.m.DropGroup(uid)
	r.compare(true)
}

func (r *rig) actUmount() {
	if !r.m.Mounted || rapid.IntRange(0, 2).Draw(r.t, "now") > 0 {
		r.t.Skip("not now")
	}
	r.must(r.sim.Unmount())
	r.m.Umount()
	r.compare(true)
}

func (r *rig) actMount() {
	if r.m.Mounted {
		r.t.Skip("mounted")
	}
	r.must(r.sim.Mount())
	r.m.Mounted = true
	r.compare(true)
}

func (r *rig) actFault() {
	if rapid.IntRange(0, 2).Draw(r.t, "of rmdir") == 0 {
		r.rmdirErr, r.m.RmdirFails = errnos["capacity"], true
		return
	}
	reason := rapid.SampledFrom(sorted(errnos)).Draw(r.t, "reason")
	r.mkdirErr, r.m.MkdirFails = errnos[reason], reason
}
