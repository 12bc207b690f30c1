package engine

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// Apply carries out one lifecycle record on resctrl and takes what came of it
// into the hold.
func (h *Hold) Apply(rec *lifecycle.Record) {
	rec = normalise(rec)
	in := rules.Input{Record: rec, UID: h.podOf(rec)}
	sandboxID := ""
	if rec.Container != nil {
		in.CgroupPath = h.resolve(rec.Container, rec.Pod)
		sandboxID = rec.Container.PodSandboxID
	} else {
		sandboxID = rec.Pod.ID
	}
	if in.UID == "" {
		h.applyOrphan(in)
		return
	}
	in.Orphans = h.view.orphansOf(h.ctx, sandboxID)
	known := h.view.pod(h.ctx, in.UID)
	if known == nil && h.degraded != nil && rec.Event == lifecycle.RemovePodSandbox {
		// Perhaps its last sandbox; the next snapshot knows.
		h.unrecord(rules.Pod{UID: in.UID, GroupPath: h.Naming.GroupPath(in.UID)})
	}
	h.take(in.UID, h.rules.Apply(known, in))
}

// normalise fills what a record may leave out: a pod without a UID is known by
// its sandbox id, and a container is of the sandbox it came with.
func normalise(rec *lifecycle.Record) *lifecycle.Record {
	r := *rec
	if r.Pod != nil {
		pod := *r.Pod
		if pod.UID == "" {
			pod.UID = pod.ID
		}
		r.Pod = &pod
		if r.Container != nil {
			c := *r.Container
			c.PodSandboxID = pod.ID
			r.Container = &c
		}
	}
	return &r
}

// podOf is the UID of the record's pod: its own, or that of its sandbox.
func (h *Hold) podOf(rec *lifecycle.Record) string {
	if rec.Pod != nil {
		return rec.Pod.UID
	}
	return h.view.podOfSandbox(h.ctx, rec.Container.PodSandboxID)
}

// resolve is the container's cgroup below the cgroup root; "" where there is
// none yet.
func (h *Hold) resolve(c *lifecycle.Container, pod *lifecycle.Pod) string {
	ref := cgroup.Ref{PID: c.PID, ID: c.ID, CgroupsPath: c.CgroupsPath}
	if pod != nil {
		ref.CgroupParent = pod.CgroupParent
	}
	path, err := h.Cgroups.Resolve(ref)
	switch {
	case err == nil:
		return path
	case !errors.Is(err, fs.ErrNotExist):
		h.Logger.Warn("container's cgroup not found", "container_id", c.ID, "cgroups_path", c.CgroupsPath, "error", err)
	}
	return ""
}

func (h *Hold) applyOrphan(in rules.Input) {
	id := in.Record.Container.ID
	known := h.view.orphan(h.ctx, id)
	h.takeOrphan(id, known, h.rules.Orphan(known, in))
}

func (h *Hold) takeOrphan(id string, before, after *rules.Container) {
	switch {
	case after == nil && before == nil:
	case after == nil:
		h.dropOrphan(id)
	case before == nil || *before != *after:
		h.batch.Orphans = append(h.batch.Orphans, *after)
		h.view.putOrphan(after)
	}
}

// dropOrphan ends the row of a container without a pod. A commit drops before
// it writes, so what this batch has written of it must go too.
func (h *Hold) dropOrphan(id string) {
	h.batch.DroppedContainers = append(h.batch.DroppedContainers, id)
	h.batch.Orphans = slices.DeleteFunc(h.batch.Orphans, func(c rules.Container) bool { return c.ID == id })
	h.view.dropOrphan(id)
}
