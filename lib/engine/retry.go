package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// ErrNotFound says that the state knows no such pod or container.
var ErrNotFound = errors.New("not found")

// GroupResult is what RetryGroupCreation did.
type GroupResult struct {
	PodUID    string       `json:"pod_uid"`
	Outcome   GroupOutcome `json:"outcome"`
	GroupPath string       `json:"group_path,omitempty"`
	Reason    rules.Reason `json:"reason,omitempty"`
	Error     string       `json:"error,omitempty"` // what failed, with the kernel's own words
}

// failure is the error of a creation that failed for good; nil of one that only
// waits, for an RMID or a mount.
func (r *GroupResult) failure() error {
	if r.Outcome != GroupFailed || r.Reason == rules.ReasonNotMounted || r.Reason == rules.ReasonUnsupported {
		return nil
	}
	return fmt.Errorf("pod %s has no group (%s): %s", r.PodUID, r.Reason, r.Error)
}

// GroupOutcome is how a group creation ended.
type GroupOutcome string

// Outcomes of RetryGroupCreation.
const (
	GroupCreated  GroupOutcome = "Created"
	GroupPresent  GroupOutcome = "Exists" // it was not failed
	GroupCapacity GroupOutcome = "Capacity"
	GroupFailed   GroupOutcome = "Failed"
)

// ContainerResult is what RetryContainerReconcile did.
type ContainerResult struct {
	ContainerID string               `json:"container_id"`
	PodUID      string               `json:"pod_uid"`
	State       rules.ContainerState `json:"state"`
	Reason      rules.Reason         `json:"reason,omitempty"`
	Tasks       int                  `json:"tasks"`
}

// RetryGroupCreation makes the group of a failed pod. Success emits an
// AddOrUpdate; a capacity error, or any other, is only reported.
func (e *Engine) RetryGroupCreation(ctx context.Context, uid string) (GroupResult, error) {
	res := GroupResult{PodUID: uid}
	err := e.Hold(ctx, func(h *Hold) error {
		p := h.view.pod(h.ctx, uid)
		if p == nil || p.Pod.Removing {
			return h.absent(fmt.Errorf("pod %s: %w", uid, ErrNotFound))
		}
		if p.Pod.GroupState == rules.GroupExists {
			res.Outcome, res.GroupPath = GroupPresent, p.Pod.GroupPath
			return nil
		}
		ch := h.rules.RetryGroup(p)
		h.take(uid, ch)
		switch ch.GroupReason {
		case "":
			res.Outcome, res.GroupPath = GroupCreated, ch.State.Pod.GroupPath
		case rules.ReasonCapacity:
			res.Outcome, res.Reason = GroupCapacity, rules.ReasonCapacity
		default:
			res.Outcome, res.Reason = GroupFailed, ch.GroupReason
		}
		res.Error = ch.State.Pod.LastError
		return nil
	})
	return res, err
}

// absent is err, or the reason why state cannot tell.
func (h *Hold) absent(err error) error {
	if cause := h.Degraded(); cause != nil {
		return cause
	}
	return err
}

// RetryContainerReconcile assigns a container's tasks again. An AddOrUpdate is
// emitted only when a counter or the group changed.
func (e *Engine) RetryContainerReconcile(ctx context.Context, id string) (ContainerResult, error) {
	res := ContainerResult{ContainerID: id}
	err := e.Hold(ctx, func(h *Hold) error {
		row, err := h.Store.Container(h.ctx, id)
		if err != nil {
			return fmt.Errorf("read container %s: %w", id, err)
		}
		if row == nil {
			return fmt.Errorf("container %s: %w", id, ErrNotFound)
		}
		c := *row
		if p := h.view.pod(h.ctx, row.PodUID); p != nil && row.PodUID != "" {
			ch := h.rules.RetryContainer(p, id)
			h.take(row.PodUID, ch)
			c = *findContainer(ch.State, id)
		}
		res.PodUID, res.State, res.Reason, res.Tasks = c.PodUID, c.State, c.Reason, c.Tasks
		return nil
	})
	return res, err
}

func findContainer(p *rules.PodState, id string) *rules.Container {
	for i := range p.Containers {
		if p.Containers[i].ID == id {
			return &p.Containers[i]
		}
	}
	return &rules.Container{ID: id}
}

// Pass is what one pass did.
type Pass struct {
	Groups     []GroupResult     `json:"groups"`
	Containers []ContainerResult `json:"containers"`
	// NotTried are failed pods left for the next pass: the creations ended at
	// the first capacity error, or because resctrl is not mounted.
	NotTried int `json:"not_tried"`
}

// endsCreations says whether a group that failed so ends the pass's creations:
// the next one would fail the same.
func endsCreations(r rules.Reason) bool {
	return r == rules.ReasonCapacity || r == rules.ReasonNotMounted
}

// EndedBy is why the pass ended its group creations; "": it did not.
func (p *Pass) EndedBy() rules.Reason {
	for _, g := range p.Groups {
		if endsCreations(g.Reason) {
			return g.Reason
		}
	}
	return ""
}

// OutOfCapacity says whether a pod still waits for a free RMID.
func (p *Pass) OutOfCapacity() bool {
	return p.EndedBy() == rules.ReasonCapacity
}

// RetryAllOnce is one pass over all failed pods, oldest failure first, then
// over all partial containers. The first capacity error, or resctrl not being
// mounted, ends the group creations; any other error is recorded and the pass
// goes on.
func (e *Engine) RetryAllOnce(ctx context.Context) (*Pass, error) {
	pass := &Pass{Groups: []GroupResult{}, Containers: []ContainerResult{}}
	failed, err := e.Store.FailedPods(ctx)
	if err != nil {
		return pass, fmt.Errorf("read failed pods: %w", err)
	}
	var errs []error
	for i, uid := range failed {
		res, err := e.RetryGroupCreation(ctx, uid)
		if errors.Is(err, ErrNotFound) {
			continue // removed since the list was read
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", uid, err))
			if e.Degraded() != nil {
				return pass, errors.Join(errs...)
			}
			continue
		}
		pass.Groups = append(pass.Groups, res)
		if err := res.failure(); err != nil {
			errs = append(errs, err)
		}
		if endsCreations(res.Reason) {
			pass.NotTried = len(failed) - i - 1
			break
		}
	}
	partial, err := e.Store.PartialContainers(ctx)
	if err != nil {
		return pass, errors.Join(append(errs, fmt.Errorf("read partial containers: %w", err))...)
	}
	for _, ref := range partial {
		res, err := e.RetryContainerReconcile(ctx, ref.ContainerID)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: %w", ref.ContainerID, err))
			if e.Degraded() != nil {
				break
			}
			continue
		}
		pass.Containers = append(pass.Containers, res)
	}
	return pass, errors.Join(errs...)
}

// Swept is what one sweep did.
type Swept struct {
	Pods    int      `json:"pods"`    // looked after
	Changed []string `json:"changed"` // uids of pods that an event told of
	Removed []string `json:"removed"` // uids of pods that had vanished, or whose removal is now finished
	// OutOfCapacity says that a group that was lost waits for a free RMID.
	OutOfCapacity bool `json:"out_of_capacity"`

	skip rules.Reason // why no group is made any more
}

// SweepOptions of one sweep.
type SweepOptions struct {
	// VanishedAfter is how long everything of a pod must have been gone before
	// it is removed.
	VanishedAfter time.Duration
	// SkipGroups is why the pass ended its group creations; "": it did not. Then
	// a lost group is not tried.
	SkipGroups rules.Reason
}

// Sweep looks after every pod once: stray tasks, lost groups, unfinished
// removals, and pods that ended without a word.
func (e *Engine) Sweep(ctx context.Context, o SweepOptions) (*Swept, error) {
	swept := &Swept{Changed: []string{}, Removed: []string{}, skip: o.SkipGroups}
	uids, err := e.Store.PodUIDs(ctx)
	if err != nil {
		return swept, fmt.Errorf("read pods: %w", err)
	}
	parents, err := e.parents(ctx, uids)
	if err != nil {
		return swept, err
	}
	var errs []error
	for _, uid := range uids {
		err := e.Hold(ctx, func(h *Hold) error { h.sweep(uid, parents, o.VanishedAfter, swept); return nil })
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", uid, err))
			if e.Degraded() != nil {
				break
			}
		}
	}
	return swept, errors.Join(errs...)
}

// parents counts the pods that name each cgroup parent.
func (e *Engine) parents(ctx context.Context, uids []string) (map[string]int, error) {
	count := map[string]int{}
	for _, uid := range uids {
		p, err := e.Store.Pod(ctx, uid)
		if err != nil {
			return nil, fmt.Errorf("read pod %s: %w", uid, err)
		}
		if p == nil {
			continue
		}
		mine := map[string]bool{}
		for _, s := range p.Sandboxes {
			mine[s.CgroupParent] = true
		}
		for parent := range mine {
			count[parent]++
		}
	}
	return count, nil
}

func (h *Hold) sweep(uid string, parents map[string]int, vanishedAfter time.Duration, swept *Swept) {
	p := h.view.pod(h.ctx, uid)
	if p == nil {
		return // removed since the list was read
	}
	swept.Pods++
	ch := h.rules.Sweep(p, swept.skip)
	h.take(uid, ch)
	swept.OutOfCapacity = swept.OutOfCapacity || ch.GroupReason == rules.ReasonCapacity
	if endsCreations(ch.GroupReason) {
		swept.skip = ch.GroupReason
	}
	events := len(ch.Events)
	if ch.State != nil && !ch.State.Pod.Removing {
		ch = h.rules.Vanished(ch.State, h.vanished(ch.State, parents), h.BootTime(), vanishedAfter)
		h.take(uid, ch)
		events += len(ch.Events)
	}
	switch {
	case ch.State == nil || ch.State.Pod.Removing && !p.Pod.Removing:
		swept.Removed = append(swept.Removed, uid)
	case events > 0:
		swept.Changed = append(swept.Changed, uid)
	}
}

// vanished says whether everything of the pod is gone from the node: its own
// cgroup parent, named and shared with no other pod, and every task.
func (h *Hold) vanished(p *rules.PodState, parents map[string]int) bool {
	for _, s := range p.Sandboxes {
		if parents[s.CgroupParent] > 1 || !h.gone(s.CgroupParent) {
			return false
		}
	}
	for _, c := range p.Containers {
		if c.CgroupPath == "" {
			continue
		}
		if ids, err := h.Cgroups.Tasks(c.CgroupPath); err == nil && len(ids) > 0 {
			return false
		}
	}
	return len(p.Sandboxes) > 0
}
