package resctrl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Create makes the monitoring group at path. A group that is there already is
// success (created is false). Errors: *Error of reason capacity where no RMID is
// free (ENOSPC, or EBUSY while some are in limbo), not_mounted, unsupported,
// permission, io; ErrControlGroupGone, ErrNotOurs.
func (f *FS) Create(ctx context.Context, path string) (created bool, err error) {
	g, err := f.parse(path)
	if err != nil {
		return false, err
	}
	err = f.locked(ctx, "create group", path, func() error {
		created, err = f.mkdir(g)
		return err
	})
	return created, err
}

// mkdir makes a group; the lock is held.
func (f *FS) mkdir(g group) (created bool, err error) {
	const op = "create group"
	path := f.path(g)
	before := f.lastCmdStatus()
	err = f.os.Mkdir(path)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EEXIST):
		return false, nil
	case errors.Is(err, unix.ENOENT):
		return false, f.noParent(op, g, err)
	}
	e := fail(op, path, err)
	e.Kernel = newWords(before, f.lastCmdStatus())
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EBUSY) {
		e.Reason = reasonCapacity
	}
	return false, e
}

// noParent says which directory above the group is not there.
func (f *FS) noParent(op string, g group, err error) error {
	if merr := f.Mounted(); merr != nil {
		return merr
	}
	e := fail(op, f.path(g), err)
	if g.ctrl != "" {
		e.Err = fmt.Errorf("%w: %w", ErrControlGroupGone, err)
	}
	return e
}

// Remove removes the monitoring group at path; its tasks stay in its control
// group. An absent one is success, and so is a root without resctrl, since
// umount drops all groups.
func (f *FS) Remove(ctx context.Context, path string) error {
	if _, err := f.parse(path); err != nil {
		return err
	}
	err := f.locked(ctx, "remove group", path, func() error {
		return f.rmdir(path)
	})
	if ReasonOf(err) == reasonNotMounted {
		return nil
	}
	return err
}

// rmdir removes a group; the lock is held.
func (f *FS) rmdir(path string) error {
	if err := f.os.Rmdir(path); err != nil && !gone(err) {
		return fail("remove group", path, err)
	}
	return nil
}

// Exists says whether the monitoring group at path is there. Without resctrl at
// the root it is an *Error of reason not_mounted.
func (f *FS) Exists(path string) (bool, error) {
	if _, err := f.parse(path); err != nil {
		return false, err
	}
	if err := f.checkMount(); err != nil {
		return false, err
	}
	ok, err := f.os.IsDir(path)
	if err != nil && !gone(err) {
		return false, fail("look for group", path, err)
	}
	return ok, nil
}

// Locate gives the path of every monitoring group called name, under the root
// first, then in the control groups in the order of their names.
func (f *FS) Locate(name string) ([]string, error) {
	if _, err := f.parse(f.root + "/" + dirMonGroups + "/" + name); err != nil {
		return nil, err
	}
	ctrls, err := f.controlGroups()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, ctrl := range ctrls {
		path := f.path(group{ctrl: ctrl, mon: name})
		ok, err := f.os.IsDir(path)
		if err != nil && !gone(err) {
			return nil, fail("look for group", path, err)
		}
		if ok {
			found = append(found, path)
		}
	}
	return found, nil
}

// Groups gives the path of every monitoring group with our prefix in all control
// groups, sorted within each.
func (f *FS) Groups() ([]string, error) {
	ctrls, err := f.controlGroups()
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, ctrl := range ctrls {
		names, err := f.monGroups(ctrl)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if f.ours(name) {
				groups = append(groups, f.path(group{ctrl: ctrl, mon: name}))
			}
		}
	}
	return groups, nil
}

// controlGroups gives the names of all control groups, sorted, "" (the root) first.
func (f *FS) controlGroups() ([]string, error) {
	if err := f.checkMount(); err != nil {
		return nil, err
	}
	names, err := f.dirs(f.root)
	if err != nil {
		return nil, fail("list control groups of", f.root, err)
	}
	names = slices.DeleteFunc(names, reserved)
	return append([]string{""}, names...), nil
}

// monGroups gives the names of the monitoring groups of a control group, sorted.
// None where it is gone meanwhile, or has no monitoring.
func (f *FS) monGroups(ctrl string) ([]string, error) {
	dir := filepath.Join(f.path(group{ctrl: ctrl}), dirMonGroups)
	names, err := f.dirs(dir)
	if err != nil && !gone(err) {
		return nil, fail("list monitoring groups of", dir, err)
	}
	return names, nil
}

// dirs gives the names of the directories in dir, sorted.
func (f *FS) dirs(dir string) ([]string, error) {
	entries, err := f.os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Dir {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// lastCmdStatus reads what the kernel said of the last command; "" is nothing
// bad. The lock is held, so that nobody else's command comes between.
func (f *FS) lastCmdStatus() string {
	data, err := f.os.ReadFile(filepath.Join(f.root, dirInfo, "last_cmd_status"))
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(data))
	if text == "ok" {
		return ""
	}
	return text
}

// newWords gives what a mkdir added to last_cmd_status: mkdir does not clear it,
// so that words of earlier commands stand before its own (seen on 6.1 and 6.12).
func newWords(before, after string) string {
	words, _ := strings.CutPrefix(after, before)
	return strings.Join(strings.Fields(words), " ")
}
