package resctrl

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// CleanupReport counts what Cleanup met. Groups that keep names are in none.
type CleanupReport struct {
	Removed int
	Failed  int // could not be removed
	Raced   int // vanished meanwhile
	NotOurs int // without our prefix, or control groups with it that have tasks
}

// Cleanup removes what an earlier life left: monitoring groups with our prefix
// directly under <root>/mon_groups, and control groups with it directly under the
// root that have no tasks, not even in monitoring groups of theirs (a control
// group's tasks lists those too). Groups whose path keep names stay, and so does
// a control group that holds one. It never looks for groups to remove inside
// another group's mon_groups. A failed removal is counted and logged; err is that
// of the whole (not mounted, ctx).
func (f *FS) Cleanup(ctx context.Context, keep func(path string) bool) (CleanupReport, error) {
	var r CleanupReport
	ctrls, err := f.controlGroups()
	if err != nil {
		return r, err
	}
	for _, ctrl := range ctrls[1:] {
		if !f.ours(ctrl) {
			r.NotOurs++
			continue
		}
		if err := f.cleanControlGroup(ctx, &r, ctrl, keep); err != nil {
			return r, err
		}
	}
	names, err := f.monGroups("")
	if err != nil {
		return r, err
	}
	for _, name := range names {
		path := f.path(group{mon: name})
		if !f.ours(name) {
			r.NotOurs++
			continue
		}
		if keep(path) {
			continue
		}
		err := f.locked(ctx, "remove group", path, func() error { return f.os.Rmdir(path) })
		if err := f.count(&r, path, err); err != nil {
			return r, err
		}
	}
	return r, nil
}

// errBusy: a control group has tasks, or holds a group that is kept.
var errBusy = errors.New("in use")

// cleanControlGroup removes a control group with our prefix that nobody uses.
func (f *FS) cleanControlGroup(ctx context.Context, r *CleanupReport, ctrl string, keep func(string) bool) error {
	g := group{ctrl: ctrl}
	path := f.path(g)
	held, err := f.holdsKept(ctrl, keep)
	if err != nil || held {
		return err
	}
	err = f.locked(ctx, "remove control group", path, func() error {
		tids, err := f.groupTasks(g)
		if err != nil {
			return err
		}
		if len(tids) > 0 {
			return errBusy
		}
		return f.os.Rmdir(path)
	})
	if errors.Is(err, errBusy) {
		r.NotOurs++
		return nil
	}
	return f.count(r, path, err)
}

// holdsKept says whether a control group or a monitoring group in it is kept.
func (f *FS) holdsKept(ctrl string, keep func(string) bool) (bool, error) {
	if keep(f.path(group{ctrl: ctrl})) {
		return true, nil
	}
	names, err := f.monGroups(ctrl)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if keep(f.path(group{ctrl: ctrl, mon: name})) {
			return true, nil
		}
	}
	return false, nil
}

// count adds one removal to the report; it gives the errors that end it all.
func (f *FS) count(r *CleanupReport, path string, err error) error {
	switch {
	case err == nil:
		r.Removed++
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("clean up %s: %w", f.root, err)
	case ReasonOf(err) == reasonNotMounted:
		return err
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, ErrGroupGone):
		r.Raced++
	default:
		r.Failed++
		f.log.Warn("cleanup could not remove a group", "group_path", path, "error", err)
	}
	return nil
}
