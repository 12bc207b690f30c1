package engine

import (
	"errors"
	"io/fs"
	"log/slog"
	"path"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// hands are the rules' hands on the real filesystems.
type hands struct{ h *Hold }

// FindGroup looks where the state says, then under every control group: a kill
// between a rename and its commit leaves the group where the state does not
// say.
func (a *hands) FindGroup(pod rules.Pod) (string, bool) {
	if there, err := a.h.Resctrl.Exists(pod.GroupPath); err == nil && there {
		return pod.GroupPath, true
	}
	paths, err := a.h.Resctrl.Locate(a.h.Naming.GroupName(pod.UID))
	if err != nil || len(paths) == 0 {
		return "", false
	}
	return paths[0], true
}

// MakeGroup makes the group where the pod's group belongs: under the root, where
// an empty group waits for its first task, or in the control group where it was
// before, as long as that is there. The row that names it is committed first, so that after a kill
// nobody has to guess whose group it is.
func (a *hands) MakeGroup(pod rules.Pod) rules.GroupOutcome {
	if found, ok := a.FindGroup(pod); ok {
		return rules.GroupOutcome{Path: found}
	}
	a.intend(pod)
	created, err := a.h.Resctrl.Create(a.h.ctx, pod.GroupPath)
	if errors.Is(err, resctrl.ErrControlGroupGone) || errors.Is(err, resctrl.ErrNotOurs) { // ErrNotOurs: the configuration changed
		pod.GroupPath = a.h.Naming.GroupPath(pod.UID)
		a.intend(pod)
		created, err = a.h.Resctrl.Create(a.h.ctx, pod.GroupPath)
	}
	if err != nil {
		return a.failed("group not created", pod, err)
	}
	a.h.failing = ""
	return rules.GroupOutcome{Path: pod.GroupPath, Created: created}
}

func (a *hands) intend(pod rules.Pod) {
	if a.h.degraded != nil || a.h.view.isNamed(pod.UID, pod.GroupPath) {
		return
	}
	if err := a.h.Store.Intend(a.h.ctx, pod); err != nil {
		a.h.degrade(err)
		return
	}
	a.h.view.setNamed(pod.UID, pod.GroupPath)
}

func (a *hands) failed(what string, pod rules.Pod, err error) rules.GroupOutcome {
	reason := rules.Reason(resctrl.ReasonOf(err))
	if reason != pod.Reason {
		// What is so for every pod of the node is told once, not for each.
		level := slog.LevelWarn
		if a.h.failing == reason || reason == rules.ReasonNotMounted || reason == rules.ReasonUnsupported {
			level = slog.LevelDebug
		}
		a.h.failing = reason
		a.h.Logger.Log(a.h.ctx, level, what, "pod_uid", pod.UID, "group_path", pod.GroupPath, "reason", string(reason), "error", err)
	}
	return rules.GroupOutcome{Path: pod.GroupPath, Reason: reason, Err: err.Error()}
}

// MoveGroup renames the group into another control group.
func (a *hands) MoveGroup(pod rules.Pod, controlGroup string) rules.GroupOutcome {
	from := pod.GroupPath
	pod.GroupPath = path.Join(a.h.Naming.Root, controlGroup, "mon_groups", a.h.Naming.GroupName(pod.UID))
	a.intend(pod)
	to, err := a.h.Resctrl.Move(a.h.ctx, from, pod.GroupPath)
	if err != nil {
		o := a.failed("group not moved", pod, err)
		if o.Gone = to == ""; !o.Gone {
			o.Path, pod.GroupPath = to, to
			a.intend(pod) // the row names again where it is
		}
		return o
	}
	a.h.Logger.Info("group moved to its tasks' control group", "pod_uid", pod.UID, "from", from, "group_path", to)
	return rules.GroupOutcome{Path: to}
}

// RemoveGroup removes the group wherever it is. Where there is no resctrl
// there is no group.
func (a *hands) RemoveGroup(pod rules.Pod) rules.GroupOutcome {
	found, ok := a.FindGroup(pod)
	if !ok {
		return rules.GroupOutcome{}
	}
	if err := a.h.Resctrl.Remove(a.h.ctx, found); err != nil {
		if r := resctrl.ReasonOf(err); r == string(rules.ReasonNotMounted) || r == string(rules.ReasonUnsupported) {
			return rules.GroupOutcome{}
		}
		return a.failed("group not removed", pod, err)
	}
	return rules.GroupOutcome{}
}

// Assign moves every task of the container's cgroup, and of those below it.
func (a *hands) Assign(pod rules.Pod, c rules.Container) rules.AssignOutcome {
	var o rules.AssignOutcome
	where := c.CgroupPath
	if _, err := a.h.Cgroups.Tasks(where); err != nil {
		// Not there (yet), or known only as the runtime names it.
		where, err = a.h.Cgroups.Resolve(cgroup.Ref{ID: c.ID, CgroupsPath: c.CgroupPath})
		if errors.Is(err, fs.ErrNotExist) {
			return o
		}
		if err != nil {
			o.Reason, o.Err = rules.ReasonIO, err.Error()
			return o
		}
		o.CgroupPath = where
	}
	as, err := a.h.Resctrl.Assign(a.h.ctx, pod.GroupPath, func() ([]int, error) {
		ids, err := a.h.Cgroups.Tasks(where)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // a cgroup that is gone has no tasks
		}
		return ids, err
	})
	o.Tasks, o.InGroup, o.Foreign = as.Tasks, as.InGroup, as.Foreign
	if as.PutBack > 0 {
		a.h.Logger.Warn("a task of another process slipped in and was put back", "pod_uid", pod.UID, "container_id", c.ID, "tasks", as.PutBack)
	}
	switch {
	case err == nil:
	case errors.Is(err, resctrl.ErrGroupGone):
		o.GroupGone, o.Err = true, err.Error()
	default:
		o.Reason, o.Err = rules.Reason(resctrl.ReasonOf(err)), err.Error()
	}
	return o
}
