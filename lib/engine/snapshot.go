package engine

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

// Keys of the table meta that the engine writes.
const (
	MetaBootID   = "boot_id"  // the boot in which a snapshot was applied last
	MetaSnapshot = "snapshot" // that snapshot: SnapshotMeta
)

// SnapshotMeta is the value of MetaSnapshot, as JSON.
type SnapshotMeta struct {
	Time           time.Time `json:"time"` // when it was applied
	Epoch          string    `json:"epoch"`
	Runtime        string    `json:"runtime"`
	RuntimeVersion string    `json:"runtime_version"`
	Node           string    `json:"node"`
	Pods           int       `json:"pods"`
	Containers     int       `json:"containers"`
}

// ApplySnapshot brings state and resctrl to what the snapshot says, pod by
// pod, a transaction each. With cleanup it first removes our groups that
// belong to none of its pods.
func (h *Hold) ApplySnapshot(s *stream.Snapshot, cleanup bool) error {
	pods := h.group(s)
	if cleanup {
		h.cleanup(pods)
	}
	if err := h.removeAbsent(pods); err != nil {
		return err
	}
	h.removeUnrecorded(pods)
	capacity := false
	for _, sp := range pods {
		sp.SkipGroups = capacity
		ch := h.rules.Snapshot(h.view.pod(h.ctx, sp.UID), sp)
		if ch.Ended {
			h.Logger.Info("pod of the snapshot has ended: it has no group, and its cgroup parent is not there",
				"pod_uid", sp.UID, "cgroup_parent", sp.Sandboxes[0].CgroupParent)
		}
		capacity = capacity || ch.GroupReason == rules.ReasonCapacity
		h.take(sp.UID, ch)
		if err := h.Commit(); err != nil {
			return err
		}
	}
	h.snapshotOrphans(s)
	return h.snapshotMeta(s)
}

// group sorts the snapshot's sandboxes and containers by pod, in the order in
// which the pods came.
func (h *Hold) group(s *stream.Snapshot) []rules.SnapshotPod {
	var pods []rules.SnapshotPod
	index := map[string]int{}   // by uid
	sandbox := map[string]int{} // by sandbox id
	parent := map[string]*lifecycle.Pod{}
	for i := range s.Pods {
		pod := s.Pods[i]
		if pod.UID == "" {
			pod.UID = pod.ID
		}
		n, ok := index[pod.UID]
		if !ok {
			n = len(pods)
			index[pod.UID] = n
			pods = append(pods, rules.SnapshotPod{UID: pod.UID})
		}
		sandbox[pod.ID] = n
		parent[pod.ID] = &pod
		pods[n].Sandboxes = append(pods[n].Sandboxes, pod)
	}
	for _, c := range s.Containers {
		if n, ok := sandbox[c.PodSandboxID]; ok {
			pods[n].Containers = append(pods[n].Containers, rules.SnapshotContainer{
				Container: c, CgroupPath: h.resolve(&c, parent[c.PodSandboxID]),
			})
		}
	}
	for i := range pods {
		pods[i].ParentsGone = h.parentsGone(pods[i].Sandboxes)
		for _, sb := range pods[i].Sandboxes {
			pods[i].Orphans = append(pods[i].Orphans, h.view.orphansOf(h.ctx, sb.ID)...)
		}
	}
	return pods
}

// parentsGone says whether every sandbox names a cgroup parent, and none of
// them is there.
func (h *Hold) parentsGone(sandboxes []lifecycle.Pod) bool {
	return !slices.ContainsFunc(sandboxes, func(p lifecycle.Pod) bool { return !h.gone(p.CgroupParent) })
}

// gone says whether a cgroup parent is named and not there.
func (h *Hold) gone(cgroupParent string) bool {
	if cgroupParent == "" {
		return false
	}
	there, err := h.Cgroups.ParentExists(cgroupParent)
	return err == nil && !there
}

func (h *Hold) cleanup(pods []rules.SnapshotPod) {
	if err := h.Resctrl.Mounted(); err != nil {
		h.Logger.Info("startup cleanup skipped: resctrl cannot be used", "reason", resctrl.ReasonOf(err))
		return
	}
	present := map[string]bool{}
	for _, p := range pods {
		present[h.Naming.GroupName(p.UID)] = true
	}
	report, err := h.Resctrl.Cleanup(h.ctx, func(group string) bool { return present[path.Base(group)] })
	if err != nil {
		h.Logger.Error("startup cleanup failed", "error", err)
		return
	}
	h.Logger.Info("startup cleanup", "removed", report.Removed, "failed", report.Failed, "raced", report.Raced, "not_ours", report.NotOurs)
}

// removeAbsent removes the pods that the snapshot lacks, and finishes the
// removal of those that are marked.
func (h *Hold) removeAbsent(pods []rules.SnapshotPod) error {
	for _, uid := range h.view.uids(h.ctx) {
		p := h.view.pod(h.ctx, uid)
		if p == nil || slices.ContainsFunc(pods, func(p rules.SnapshotPod) bool { return p.UID == uid }) {
			continue
		}
		ch := h.rules.Absent(p)
		if p.Pod.Removing {
			ch = h.rules.Sweep(p, "")
		}
		h.take(uid, ch)
		if err := h.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// snapshotOrphans keeps the containers whose sandbox the snapshot lacks, and
// drops those that it lacks altogether.
func (h *Hold) snapshotOrphans(s *stream.Snapshot) {
	for _, known := range h.view.orphansOf(h.ctx, "") {
		if !slices.ContainsFunc(s.Containers, func(c lifecycle.Container) bool { return c.ID == known.ID }) {
			h.takeOrphan(known.ID, &known, nil)
		}
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		if slices.ContainsFunc(s.Pods, func(p lifecycle.Pod) bool { return p.ID == c.PodSandboxID }) {
			continue
		}
		rec := &lifecycle.Record{Event: lifecycle.Synchronize, Container: c}
		h.applyOrphan(rules.Input{Record: rec, CgroupPath: h.resolve(c, nil)})
	}
}

func (h *Hold) snapshotMeta(s *stream.Snapshot) error {
	b, err := json.Marshal(SnapshotMeta{
		Time: h.Now().UTC(), Epoch: s.Begin.Epoch, Runtime: s.Begin.Runtime, RuntimeVersion: s.Begin.RuntimeVersion,
		Node: s.Begin.Node, Pods: len(s.Pods), Containers: len(s.Containers),
	})
	if err != nil {
		return fmt.Errorf("encode snapshot's summary: %w", err)
	}
	h.batch.Meta = map[string]string{MetaSnapshot: string(b), MetaBootID: h.BootID}
	return nil
}

// SetMeta records values of the table meta in this hold.
func (h *Hold) SetMeta(kv map[string]string) {
	if h.batch.Meta == nil {
		h.batch.Meta = map[string]string{}
	}
	for k, v := range kv {
		h.batch.Meta[k] = v
	}
}
