package resctrl_test

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
)

func reuseCases() []suiteCase {
	return []suiteCase{
		{"an id is used again", everywhere, caseReuse},
		{"an id is used again, in a monitoring group", everywhere, caseReuseInGroup},
		{"missed by one walk", everywhere, caseMissedOnce},
		{"left before the write", everywhere, caseLeft},
		{"a stranger that forks meanwhile", kernelOnly, caseStrangerForks},
		{"an id is used again by a sibling", kernelOnly, caseReuseSibling},
	}
}

// caseReuse: a process ends between the list and the write, and a stranger has
// its id. It is moved, found not to be the container's, and put back.
func caseReuse(w *world) {
	w.needReuse()
	path := w.group("", "pod_a")
	w.create(path)
	stays, victim := w.procs.start(), w.procs.start()
	reused := false
	calls := 0
	a := w.assign(path, func() ([]int, error) {
		calls++
		if reused {
			return w.procs.list(stays), nil
		}
		tids := w.procs.list(stays, victim)
		if calls == 2 {
			w.procs.replace(victim)
			reused = true
		}
		return tids, nil
	})
	// On the kernel the stranger's threads got the ids of the victim's.
	if a.PutBack < 1 || !w.kernel && a.PutBack > 1 || a.InGroup != a.Tasks {
		w.Errorf("%+v, want 1 put back", a)
	}
	w.wantIn("|pod_a", w.procs.list(stays)...)
	w.wantIn("|", w.procs.list(victim)...)
}

// caseReuseInGroup: the id was in a group before. The kernel's world knows the
// stranger's parent, the simulator's only what the id had.
func caseReuseInGroup(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	w.others(w.group("", "other"))
	pid := w.procs.start()
	w.procs.put(pid, "|other")
	tids := w.procs.list(pid)
	calls := 0
	a := w.assign(path, func() ([]int, error) {
		if calls++; calls > 2 {
			return nil, nil // it is the container's no more
		}
		return tids, nil
	})
	if a.PutBack != len(tids) || a.Moved != len(tids) || a.Tasks != 0 {
		w.Errorf("%+v", a)
	}
	want := "|other"
	if w.kernel {
		want = "|" // where the parent, this test, is
	}
	w.wantIn(want, w.procs.list(pid)...)
}

// caseMissedOnce: a task that one walk after the write does not see, since it
// went from one cgroup of the container to another, is not put back.
func caseMissedOnce(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pid := w.procs.start()
	calls := 0
	a := w.assign(path, func() ([]int, error) {
		if calls++; calls == 3 {
			return nil, nil
		}
		return w.procs.list(pid), nil
	})
	if a.PutBack != 0 || a.InGroup != a.Tasks || a.Tasks == 0 {
		w.Errorf("%+v", a)
	}
	w.wantIn("|pod_a", w.procs.list(pid)...)
}

// caseLeft: what is not in the list right before the write is not written.
func caseLeft(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	stays, leaves := w.procs.start(), w.procs.start()
	calls := 0
	a := w.assign(path, func() ([]int, error) {
		if calls++; calls > 1 {
			return w.procs.list(stays), nil
		}
		return w.procs.list(stays, leaves), nil
	})
	if a.PutBack != 0 || a.InGroup != a.Tasks || a.Tasks == 0 {
		w.Errorf("%+v", a)
	}
	for _, write := range w.guard.writes {
		if slices.Contains(strings.Split(write, ","), strconv.Itoa(leaves)) {
			w.Errorf("%d was written: %s", leaves, write)
		}
	}
	w.wantIn("|", w.procs.list(leaves)...)
}

// caseStrangerForks: what a stranger starts between write and recheck is born in
// the group, and is put back too.
func caseStrangerForks(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	stranger, stays := w.procs.start(), w.procs.start()
	tids, own := w.procs.list(stranger), w.procs.list(stays)
	calls := 0
	// Of these tasks alone: the language's runtime may be in the middle of a
	// clone while they are put back, which is the window that Assign names.
	var born []int
	a := w.assign(path, func() ([]int, error) {
		calls++
		if calls <= 2 {
			return append(own, tids...), nil
		}
		if calls == 3 {
			child := w.procs.fork(stranger)
			w.procs.clone(stranger, 2)
			w.wantIn("|pod_a", w.procs.list(child)...)
			born = w.procs.list(stranger, child)
		}
		return own, nil
	})
	// The child at least; the runtime may run a clone on a thread that it had.
	if a.PutBack < len(tids)+1 {
		w.Errorf("%+v", a)
	}
	w.wantIn("|", born...)
	w.wantIn("|pod_a", own...)
}

// caseReuseSibling: the id belongs to a child of a process that is in the group
// by right (another container of the pod): it was born there and stays.
func caseReuseSibling(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	sibling := w.procs.start()
	w.assign(path, w.tasks(sibling))
	child := w.procs.fork(sibling)
	w.put(w.procs.list(child), "|")
	tids := w.procs.list(child)
	calls := 0
	a := w.assign(path, func() ([]int, error) {
		if calls++; calls > 2 {
			return nil, nil
		}
		return tids, nil
	})
	if a.PutBack != 0 {
		w.Errorf("%+v", a)
	}
	w.wantIn("|pod_a", tids...)
}

// needReuse: on the kernel an id is used again through ns_last_pid.
func (w *world) needReuse() {
	if !w.kernel {
		return
	}
	if _, err := os.Stat("/proc/sys/kernel/ns_last_pid"); errors.Is(err, os.ErrNotExist) {
		w.Fatal("this kernel has no ns_last_pid: no way to have an id used again")
	}
}
