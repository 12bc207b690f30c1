package resctrl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// maxPasses bounds an assignment. Children of a task that is in the group are
// born in it, so a fork storm converges in two or three passes; what still
// brings new tasks after ten comes from outside the container, and the next
// sweep finds it.
const maxPasses = 10

// Assignment is what became of the tasks of one container.
type Assignment struct {
	Tasks   int // in the container's cgroups at the last look, living
	InGroup int // of these, in the group
	Moved   int // written to the group with success, over all passes
	// PutBack counts tasks that were moved by mistake, because an id was used
	// again between list and write, and that are where they belong again.
	PutBack int
	Passes  int // looks at the container's tasks
	// Foreign counts the tasks in another control group than the group's, by its
	// name; "" is the root. The kernel refuses them.
	Foreign map[string]int
	// Unstable: new tasks were found in every pass, and the last look's strays
	// are left.
	Unstable bool
}

// Assign brings every task that tasks lists into the monitoring group, and
// repeats until a pass finds no task outside it, within bounds. tasks lists the
// ids of all threads of the container's cgroup and below, and is called several
// times, also under the lock of the root.
//
// A task that ends meanwhile is no failure. An id may be used again between list
// and write, so the list is read again under the lock right before the write and
// after it, and a foreign task that slipped in is put back, with the threads and
// children that it started in the group meanwhile. What is left is narrow: when we
// are killed between the two writes, the foreign task stays; and a child that is
// being forked in the moment of a write can come to light with its parent's
// group of before, after the last look (the kernel copies the group early in fork
// and lists the child late). Such a child of the container is found by the next
// sweep; such a child of a foreign task stays where it is.
//
// Errors: ErrGroupGone; *Error of reason not_mounted, permission, io; what tasks
// returned (wrapped). The Assignment is then what was reached so far.
func (f *FS) Assign(ctx context.Context, groupPath string, tasks func() ([]int, error)) (Assignment, error) {
	g, err := f.parse(groupPath)
	if err != nil {
		return Assignment{}, err
	}
	a := &assigner{fs: f, group: g, tasks: tasks}
	switch ok, err := f.Exists(groupPath); {
	case err != nil:
		return a.out, err
	case !ok:
		return a.out, &Error{Op: "assign tasks to", Path: groupPath, Reason: reasonIO, Err: ErrGroupGone}
	}
	return a.run(ctx)
}

// assigner is one call of Assign.
type assigner struct {
	fs    *FS
	group group
	tasks func() ([]int, error)
	out   Assignment
}

// stray is a task that is in the container and not in the group.
type stray struct {
	tid    int
	before group // where it was
}

func (a *assigner) run(ctx context.Context) (Assignment, error) {
	list, err := a.list()
	if err != nil {
		return a.out, err
	}
	for {
		a.out.Passes++
		strays, err := a.look(list)
		if err != nil || len(strays) == 0 {
			return a.out, err
		}
		if a.out.Passes > maxPasses {
			a.out.Unstable = true
			return a.out, nil
		}
		err = a.fs.locked(ctx, "assign tasks to", a.fs.path(a.group), func() error {
			list, err = a.move(strays)
			return err
		})
		if err != nil {
			return a.out, err
		}
	}
}

// maxLists bounds the readings of a list that has 0 in it. One in some forty did
// in a fork storm with ids used again soon, and never two in a row (6.12).
const maxLists = 5

// list lists the container's tasks, sorted and unique.
//
// 0 is the writer itself for the kernel, and what a cgroup lists for a task that
// this PID namespace does not see, or that was reaped while it was listed. Only
// the former is there again when the list is read anew.
func (a *assigner) list() ([]int, error) {
	for range maxLists {
		tids, err := a.tasks()
		if err != nil {
			return nil, fmt.Errorf("list tasks for %s: %w", a.fs.path(a.group), err)
		}
		tids = slices.Clone(tids)
		slices.Sort(tids)
		tids = slices.Compact(tids)
		if len(tids) == 0 || tids[0] > 0 {
			return tids, nil
		}
	}
	return nil, fail("assign tasks to", a.fs.path(a.group),
		errors.New("the container has tasks outside this PID namespace (its cgroup lists 0 for them)"))
}

// look counts where the tasks are, and gives those that are to be moved.
func (a *assigner) look(list []int) ([]stray, error) {
	a.out.Tasks, a.out.InGroup, a.out.Foreign = 0, 0, nil
	m := &members{fs: a.fs, own: a.group}
	var strays []stray
	for _, tid := range list {
		g, ok, err := m.of(tid)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue // ended
		}
		a.out.Tasks++
		switch {
		case g == a.group:
			a.out.InGroup++
		case g.ctrl != a.group.ctrl:
			a.foreign(g.ctrl)
		default:
			strays = append(strays, stray{tid: tid, before: g})
		}
	}
	return strays, nil
}

func (a *assigner) foreign(ctrl string) {
	if a.out.Foreign == nil {
		a.out.Foreign = map[string]int{}
	}
	a.out.Foreign[ctrl]++
}

// move writes the strays that are in the container still, and gives the list of
// tasks from after that. The lock is held.
func (a *assigner) move(strays []stray) ([]int, error) {
	now, err := a.list()
	if err != nil {
		return nil, err
	}
	strays = slices.DeleteFunc(strays, func(s stray) bool {
		_, in := slices.BinarySearch(now, s.tid)
		return !in
	})
	w := writer{fs: a.fs, group: a.group}
	werr := w.write(strays)
	a.out.Moved += len(w.moved)

	list, err := a.recheck(w.moved)
	return list, errors.Join(werr, err)
}

// recheck lists the tasks after a write and puts back what was written and is
// not the container's.
func (a *assigner) recheck(moved []stray) (list []int, err error) {
	suspects := moved
	// Twice, since a task that goes from one cgroup of the container to another
	// can be missed by one walk.
	for range 2 {
		var again []int
		again, err = a.list()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err // no list, no judgement
		}
		list = append(list, again...)
		slices.Sort(list)
		list = slices.Compact(list)
		suspects = slices.DeleteFunc(slices.Clone(suspects), func(s stray) bool {
			_, in := slices.BinarySearch(list, s.tid)
			return in
		})
		if len(suspects) == 0 {
			return list, err
		}
	}
	n, perr := a.fs.putBack(a.group, suspects, list)
	a.out.PutBack += n
	return list, errors.Join(perr, err)
}
