package resctrl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Move moves an empty monitoring group to another control group by rename, which
// keeps its RMID and counters. Where the kernel cannot rename (6.1), the group is
// removed and then made at the other place. Where a group is at the other place
// already, that one is used and the empty one is removed.
//
// path is where the group is then; in an error it is where it is left: from, or
// "" where there is none any more (removed, and no RMID for the new one). Errors:
// as of Create; ErrGroupGone where neither is there; ErrHasTasks where living
// tasks are in it, since they would change their control group with it.
func (f *FS) Move(ctx context.Context, from, to string) (path string, err error) {
	src, err := f.parse(from)
	if err != nil {
		return "", err
	}
	dst, err := f.parse(to)
	if err != nil {
		return from, err
	}
	if src == dst {
		return from, nil
	}
	path = from
	err = f.locked(ctx, "move group", from, func() error {
		path, err = f.move(src, dst)
		return err
	})
	return path, err
}

// move does it; the lock is held.
func (f *FS) move(src, dst group) (string, error) {
	const op = "move group"
	from, to := f.path(src), f.path(dst)
	if err := f.checkEmpty(op, src); err != nil {
		if !errors.Is(err, ErrGroupGone) {
			return from, err
		}
		if ok, _ := f.os.IsDir(to); ok { // moved before, by a call that was cut off
			return to, nil
		}
		return "", err
	}
	err := f.os.Rename(from, to)
	switch {
	case err == nil:
		return to, nil
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY):
		return to, f.rmdir(from)
	case errors.Is(err, unix.ENOENT):
		if ok, _ := f.os.IsDir(from); ok {
			return from, f.noParent(op, dst, err)
		}
		return "", goneError(op, from, err)
	case errors.Is(err, unix.EPERM):
		// 6.1: no rename at all. 6.12: a group that somebody gave CPUs to.
		return f.remake(src, dst)
	}
	e := fail(op, from, err)
	e.Kernel = oneLine(f.lastCmdStatus()) // rename clears it first
	return from, e
}

// remake removes a group and makes it at another place; the lock is held. Made
// first and removed then, it would need an RMID more than the node may have.
func (f *FS) remake(src, dst group) (string, error) {
	from, to := f.path(src), f.path(dst)
	if err := f.rmdir(from); err != nil {
		return from, err
	}
	if _, err := f.mkdir(dst); err != nil {
		return "", err
	}
	return to, nil
}

// checkEmpty says ErrHasTasks where a living task is in the group. A zombie
// counts for nothing: it is listed until it is reaped, and never runs again.
func (f *FS) checkEmpty(op string, g group) error {
	tids, err := f.groupTasks(g)
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if f.simulated || f.living(tid) {
			e := fail(op, f.path(g), fmt.Errorf("%w: %d", ErrHasTasks, tid))
			return e
		}
	}
	return nil
}

func goneError(op, path string, err error) *Error {
	return fail(op, path, fmt.Errorf("%w: %w", ErrGroupGone, err))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
