package resctrl_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

func assignCases() []suiteCase {
	return []suiteCase{
		{"all threads", everywhere, caseThreads},
		{"lists of 4096 bytes", everywhere, caseLists},
		{"nothing to do", everywhere, caseNothing},
		{"tasks that end meanwhile", everywhere, caseEnded},
		{"a container that ends meanwhile", everywhere, caseContainerEnds},
		{"from other monitoring groups", everywhere, caseStrays},
		{"foreign control group", controls, caseForeign},
		{"moved to a control group meanwhile", controls, caseForeignRace},
		{"tasks that are born meanwhile", everywhere, caseGrowing},
		{"tasks without end", everywhere, caseUnstable},
		{"the group is lost", everywhere, caseLost},
		{"the group is lost meanwhile", everywhere, caseLostMeanwhile},
		{"unmounted meanwhile", everywhere, caseUnmountedMeanwhile},
		{"tasks of another PID namespace", everywhere, caseHidden},
		{"a task that was reaped while it was listed", everywhere, caseReaped},
		{"no permission", simOnly, caseNoPermission},
		{"failures of a list without a name", simOnly, caseUnnamed},
		{"group of a control group", controls, caseInControlGroup},
	}
}

func caseThreads(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pid, other := w.procs.start(), w.procs.start()
	w.procs.clone(pid, 199)
	child := w.procs.fork(pid)
	tids := w.procs.list(pid, child)
	a := w.assign(path, w.tasks(pid, child))
	want := resctrl.Assignment{Tasks: len(tids), InGroup: len(tids), Moved: len(tids), Passes: 2}
	w.wantAssignment(a, want)
	w.wantIn("|pod_a", w.procs.list(pid, child)...)
	w.wantIn("|", w.procs.list(other)...)
	// What they start from now on is in it.
	w.wantIn("|pod_a", w.procs.clone(pid, 3)...)
	w.wantIn("|pod_a", w.procs.fork(pid))
}

// wantAssignment expects an assignment. A real process may start a thread at any
// time, as Go's runtime does in the helpers, so there it may have more tasks.
func (w *world) wantAssignment(got, want resctrl.Assignment) {
	w.Helper()
	a := got
	if more := a.Tasks - want.Tasks; w.kernel && more > 0 && more < 5 {
		a.Tasks -= more
		a.InGroup -= more
		a.Moved = min(a.Moved, want.Moved)
		a.Passes = min(a.Passes, want.Passes)
	}
	same := maps.Equal(a.Foreign, want.Foreign)
	a.Foreign, want.Foreign = nil, nil
	if !same || fmt.Sprint(a) != fmt.Sprint(want) {
		w.Errorf("%+v, want %+v", got, want)
	}
}

// caseLists: more ids than one write takes.
func caseLists(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pid := w.procs.start()
	threads := 520 // of 7 digits
	switch {
	case w.v61:
		threads = 60 // no lists, so no bound
	case w.kernel:
		threads = 1300 // of 3 or 4
	}
	w.procs.clone(pid, threads)
	tids := w.procs.list(pid)
	w.guard.reset()
	a := w.assign(path, func() ([]int, error) { return tids, nil })
	if a.InGroup != len(tids) || a.Moved != len(tids) {
		w.Errorf("%+v of %d tasks", a, len(tids))
	}
	w.wantIn("|pod_a", tids...)
	size := -1
	for _, tid := range tids {
		size += len(strconv.Itoa(tid)) + 1
	}
	least, most := (size+4095)/4096, (size+4095)/4096+1
	if w.v61 { // one try of a list, then each by itself
		least, most = len(tids)+1, len(tids)+1
	}
	if n := len(w.guard.writes); n < least || n > most {
		w.Errorf("%d writes for %d tasks, want %d to %d", n, len(tids), least, most)
	}
	if w.guard.locks != 1 {
		w.Errorf("%d locks", w.guard.locks)
	}
	if !w.v61 {
		return
	}
	more := w.procs.start() // it is known by now
	w.guard.reset()
	w.assign(path, w.tasks(more))
	for _, write := range w.guard.writes {
		if strings.Contains(write, ",") {
			w.Errorf("a list again: %s", write)
		}
	}
}

func caseNothing(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pid := w.procs.start()
	w.assign(path, w.tasks(pid))
	w.guard.reset()
	n := len(w.procs.list(pid))
	w.wantAssignment(w.assign(path, w.tasks(pid)), resctrl.Assignment{Tasks: n, InGroup: n, Passes: 1})
	w.wantAssignment(w.assign(path, w.tasks()), resctrl.Assignment{Passes: 1})
	if w.guard.locks != 0 || len(w.guard.writes) != 0 {
		w.Errorf("%d locks, writes %q", w.guard.locks, w.guard.writes)
	}
}

// nth gives a list of tasks that runs do at its n-th call, after the tasks were read.
func (w *world) nth(n int, do func(), pids ...int) func() ([]int, error) {
	calls := 0
	return func() ([]int, error) {
		tids := w.procs.list(pids...)
		if calls++; calls == n {
			do()
		}
		return tids, nil
	}
}

// caseEnded: the kernel stops at a dead task; those after it are moved too.
func caseEnded(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	first, dead, last := w.procs.start(), w.procs.start(), w.procs.start()
	w.procs.clone(dead, 5)
	stay := slices.Concat(w.procs.list(first), w.procs.list(last))
	// The second list is the one right before the write.
	a := w.assign(path, w.nth(2, func() { w.procs.end(dead) }, first, dead, last))
	w.wantAssignment(a, resctrl.Assignment{Tasks: len(stay), InGroup: len(stay), Moved: len(stay), Passes: 2})
	w.wantIn("|pod_a", stay...)
}

func caseContainerEnds(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	gone := func(n int, pid int) func() ([]int, error) {
		calls := 0
		return func() ([]int, error) {
			if calls++; calls >= n {
				if calls == n {
					w.procs.end(pid)
				}
				return nil, fmt.Errorf("list: %w", fs.ErrNotExist)
			}
			return w.procs.list(pid), nil
		}
	}
	for n := 1; n <= 3; n++ {
		_, err := w.fs.Assign(context.Background(), path, gone(n, w.procs.start()))
		if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, resctrl.ErrGroupGone) {
			w.Errorf("ended at list %d: %v", n, err)
		}
	}
	_, err := w.fs.Assign(context.Background(), path, func() ([]int, error) { return nil, unix.EIO })
	w.wantReason(err, "io", unix.EIO)
}

func caseStrays(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	w.create(w.group("", "pod_b"))
	w.others(w.group("", "other"))
	pid := w.procs.start()
	tids := w.procs.clone(pid, 3)
	w.put(tids[:1], "|pod_b")
	w.put(tids[1:2], "|other")
	w.put(tids[2:], "|pod_a")
	all := w.procs.list(pid)
	a := w.assign(path, w.tasks(pid))
	w.wantAssignment(a, resctrl.Assignment{Tasks: len(all), InGroup: len(all), Moved: len(all) - 1, Passes: 2})
	w.wantIn("|pod_a", all...)
}

func caseForeign(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	w.others(w.group("g1", ""))
	w.others(w.group("g1", "m1"))
	mine, theirs, in := w.procs.start(), w.procs.start(), w.procs.start()
	w.procs.put(theirs, "g1|")
	w.procs.put(in, "g1|")
	w.procs.put(in, "g1|m1")
	own, foreign := w.procs.list(mine), w.procs.list(theirs, in)
	w.guard.reset()
	a := w.assign(path, w.tasks(mine, theirs, in))
	for _, write := range w.guard.writes {
		if slices.Contains(strings.Split(write, ","), strconv.Itoa(theirs)) {
			w.Errorf("a foreign task was written: %s", write)
		}
	}
	want := resctrl.Assignment{
		Tasks: len(own) + len(foreign), InGroup: len(own), Moved: len(own), Passes: 2,
		Foreign: map[string]int{"g1": len(foreign)},
	}
	w.wantAssignment(a, want)
	w.wantIn("|pod_a", own...)
	w.wantIn("g1|", w.procs.list(theirs)...)
	w.wantIn("g1|m1", w.procs.list(in)...)
}

// caseForeignRace: the kernel refuses a task in the middle of a list.
func caseForeignRace(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	w.others(w.group("g1", ""))
	first, moved, last := w.procs.start(), w.procs.start(), w.procs.start()
	own, foreign := w.procs.list(first, last), w.procs.list(moved)
	a := w.assign(path, w.nth(2, func() { w.procs.put(moved, "g1|") }, first, moved, last))
	want := resctrl.Assignment{
		Tasks: len(own) + len(foreign), InGroup: len(own), Moved: len(own), Passes: 2,
		Foreign: map[string]int{"g1": len(foreign)},
	}
	w.wantAssignment(a, want)
	w.wantIn("|pod_a", own...)
	w.wantIn("g1|", foreign...)
}

// caseInControlGroup: the group is in a control group, and so are the tasks; one
// in the root is foreign to it.
func caseInControlGroup(w *world) {
	w.others(w.group("g1", ""))
	path := w.group("g1", "pod_a")
	w.create(path)
	in, out := w.procs.start(), w.procs.start()
	w.procs.put(in, "g1|")
	own, foreign := w.procs.list(in), w.procs.list(out)
	a := w.assign(path, w.tasks(in, out))
	w.wantAssignment(a, resctrl.Assignment{
		Tasks: len(own) + len(foreign), InGroup: len(own), Moved: len(own), Passes: 2,
		Foreign: map[string]int{"": len(foreign)},
	})
	w.wantIn("g1|pod_a", own...)
	w.wantIn("|", foreign...)
}

// caseGrowing: processes come into the container during the first passes, born
// outside the group.
func caseGrowing(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pids := []int{w.procs.start()}
	a := w.assign(path, func() ([]int, error) {
		tids := w.procs.list(pids...)
		if len(pids) < 6 {
			pids = append(pids, w.procs.start())
		}
		return tids, nil
	})
	all := w.procs.list(pids...)
	if a.Tasks != a.InGroup || a.InGroup < len(pids) || a.Unstable || len(pids) != 6 {
		w.Errorf("%+v of %d tasks", a, len(all))
	}
	w.wantIn("|pod_a", all...)
}

func caseUnstable(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pids := []int{w.procs.start()}
	a := w.assign(path, func() ([]int, error) {
		tids := w.procs.list(pids...)
		pids = append(pids, w.procs.start())
		return tids, nil
	})
	if !a.Unstable || a.Passes != resctrl.MaxPasses+1 || a.InGroup >= a.Tasks || a.InGroup == 0 {
		w.Errorf("%+v", a)
	}
	w.wantIn("|pod_a", w.procs.list(pids[0])...)
}

func caseLost(w *world) {
	path := w.group("", "pod_a")
	_, err := w.fs.Assign(context.Background(), path, w.tasks(w.procs.start()))
	w.wantReason(err, "io", resctrl.ErrGroupGone)
	if !strings.Contains(err.Error(), path) {
		w.Errorf("no path: %v", err)
	}
}

func caseLostMeanwhile(w *world) {
	path := w.group("", "pod_a")
	for n := 1; n <= 2; n++ {
		w.create(path)
		pid := w.procs.start()
		_, err := w.fs.Assign(context.Background(), path, w.nth(n, func() { w.must(w.raw.Rmdir(path)) }, pid))
		w.wantReason(err, "io", resctrl.ErrGroupGone)
		w.wantIn("|", w.procs.list(pid)...)
	}
}

func caseUnmountedMeanwhile(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	_, err := w.fs.Assign(context.Background(), path, w.nth(1, func() { w.mounted(false) }, w.procs.start()))
	w.mounted(true)
	w.wantReason(err, "not_mounted", nil)
}

// caseHidden: a cgroup lists 0 for a task that our PID namespace does not see,
// and the kernel would move the writer for it.
func caseHidden(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pid := w.procs.start()
	for _, bad := range []int{0, -1} {
		_, err := w.fs.Assign(context.Background(), path, func() ([]int, error) { return []int{pid, bad}, nil })
		w.wantReason(err, "io", nil)
	}
	if len(w.guard.writes) != 0 {
		w.Errorf("writes %q", w.guard.writes)
	}
}

// caseReaped: 0 stands in one list for a task that ended in that moment; in the
// first, in the one right before the write, and in the one after it.
func caseReaped(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	for bad := 1; bad <= 4; bad++ {
		pid := w.procs.start()
		tids := w.procs.list(pid)
		calls := 0
		a := w.assign(path, func() ([]int, error) {
			if calls++; calls == bad {
				return append([]int{0}, tids...), nil
			}
			return tids, nil
		})
		if a.Moved != len(tids) || a.InGroup != len(tids) || a.Tasks != len(tids) {
			w.Errorf("0 in list %d: %+v of %d tasks", bad, a, len(tids))
		}
		w.wantIn("|pod_a", tids...)
	}
}

func caseNoPermission(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	for _, errno := range []error{unix.EPERM, unix.EACCES} {
		w.guard.before["write"] = func(string) error { return errno }
		pids := []int{w.procs.start(), w.procs.start()}
		_, err := w.fs.Assign(context.Background(), path, w.tasks(pids...))
		w.wantReason(err, "permission", errno)
	}
}

// caseUnnamed: a list fails and last_cmd_status says nothing of it, because a
// tool that does not lock gave a command between.
func caseUnnamed(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pids := []int{w.procs.start(), w.procs.start(), w.procs.start()}
	failed := false
	w.guard.before["write"] = func(string) error {
		if failed {
			return nil
		}
		failed = true
		return unix.ESRCH
	}
	a := w.assign(path, w.tasks(pids...))
	if a.InGroup != 3 || a.Moved != 3 {
		w.Errorf("%+v", a)
	}
	w.wantIn("|pod_a", pids...)
	w.guard.before["write"] = func(string) error { return unix.EINVAL }
	_, err := w.fs.Assign(context.Background(), path, w.tasks(w.procs.start()))
	w.wantReason(err, "io", unix.EINVAL)
}
