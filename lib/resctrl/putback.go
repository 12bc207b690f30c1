package resctrl

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// returner puts tasks that were written to a group by mistake where they belong.
// The lock is held while it does.
type returner struct {
	fs    *FS
	group group
	// container has the tasks that belong into the group, sorted.
	container []int
	mistaken  map[int]group // the tasks to be put back, and where each id was before
	n         int           // tasks that were put back
}

// putBack puts back those of suspects that live and are in g, and what they have
// started meanwhile. It gives their number.
func (f *FS) putBack(g group, suspects []stray, container []int) (n int, err error) {
	r := &returner{fs: f, group: g, container: container, mistaken: map[int]group{}}
	var todo []int
	for _, s := range suspects {
		in, err := r.inGroup(s.tid)
		if err != nil {
			return 0, err
		}
		if in {
			r.mistaken[s.tid] = s.before
			todo = append(todo, s.tid)
		}
	}
	for len(todo) > 0 {
		tid := todo[0]
		todo = todo[1:]
		target, err := r.belongs(tid)
		if err != nil {
			return r.n, err
		}
		if target == g {
			continue // its parent is in the group by right: it was born there
		}
		if err := r.write(tid, target); err != nil {
			return r.n, err
		}
		// What it started between the two writes was born in the group. From
		// here on its children are not.
		born, err := r.born(tid)
		if err != nil {
			return r.n, err
		}
		for _, b := range born {
			r.mistaken[b] = target
		}
		todo = append(todo, born...)
	}
	return r.n, nil
}

// inGroup says whether a task lives and is in the group. Each call looks anew.
func (r *returner) inGroup(tid int) (bool, error) {
	m := &members{fs: r.fs, own: r.group}
	g, ok, err := m.of(tid)
	if err != nil || !ok || g != r.group {
		return false, err
	}
	return r.fs.simulated || r.fs.living(tid), nil
}

// write puts one task back.
func (r *returner) write(tid int, target group) error {
	dir := r.fs.path(target)
	err := r.fs.os.WriteFile(filepath.Join(dir, fileTasks), strconv.AppendInt(nil, int64(tid), 10))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		e := fail("put task back to", dir, fmt.Errorf("task %d: %w", tid, err))
		e.Kernel = oneLine(r.fs.lastCmdStatus())
		return e
	}
	r.n++
	r.fs.log.Warn("a task id was used again while its container was assigned: put back",
		"task", tid, "group_path", r.fs.path(r.group), "put_back_to", dir)
	return nil
}

// born gives the threads of a task's process, and the processes that these
// started, that are in the group now and are neither the container's nor known
// as mistaken. Of those the same is asked later.
func (r *returner) born(tid int) ([]int, error) {
	f := r.fs
	st, ok := f.status(tid)
	if f.simulated || !ok {
		return nil, nil
	}
	dir := filepath.Join(f.procRoot, strconv.Itoa(st.tgid), "task")
	threads, err := f.os.ReadDir(dir)
	if err != nil {
		return nil, nil // it ended
	}
	var words []string
	for _, thread := range threads {
		words = append(words, thread.Name)
		// CONFIG_PROC_CHILDREN; without it children stay where they were born.
		if text, err := f.os.ReadFile(filepath.Join(dir, thread.Name, "children")); err == nil {
			words = append(words, strings.Fields(string(text))...)
		}
	}
	var born []int
	for _, word := range words {
		other, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		_, known := r.mistaken[other]
		if _, ours := slices.BinarySearch(r.container, other); known || ours {
			continue
		}
		in, err := r.inGroup(other)
		if err != nil {
			return nil, err
		}
		if in {
			born = append(born, other)
		}
	}
	return born, nil
}

// belongs says where a task that was written by mistake belongs: where its
// process is, or the nearest ancestor that was not written by mistake itself;
// else where the id was before.
func (r *returner) belongs(tid int) (group, error) {
	f := r.fs
	target := r.mistaken[tid]
	m := &members{fs: f, own: r.group}
	if f.noProc.Load() { // a rare case, so that every group may be read
		all, err := f.allMembers(true)
		if err != nil {
			return group{}, err
		}
		m.inOwn, m.others = map[int]bool{}, all
	}
	for at := tid; !f.simulated; {
		st, ok := f.status(at)
		if !ok {
			break
		}
		next := st.parent
		if st.tgid != at {
			next = st.tgid
		}
		if next <= 0 || next == at {
			break
		}
		at = next
		if _, ok := r.mistaken[at]; ok {
			continue
		}
		now, ok, err := m.of(at)
		if err != nil {
			return group{}, err
		}
		if ok {
			target = now
		}
		break
	}
	// The write that moved it left its control group as it was.
	if target.ctrl != r.group.ctrl {
		target = group{ctrl: r.group.ctrl}
	}
	return target, nil
}
