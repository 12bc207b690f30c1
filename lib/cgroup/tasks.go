package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
)

// Tasks gives the ids of all tasks (threads) of a cgroup and of all cgroups
// below it, sorted, each once. Cgroups and tasks come and go meanwhile: one that
// is removed during the walk counts as empty, and a task that goes from one
// cgroup to another can be missed by a walk. Errors: fs.ErrNotExist where the
// cgroup itself is not there.
//
// 0 stands among them for tasks that this PID namespace does not see.
func (f *FS) Tasks(cgroupPath string) ([]int, error) {
	p, err := clean(cgroupPath)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return nil, f.rootError(err)
	}
	defer root.Close()
	start := "." + p
	switch ok, err := isDir(root, start); {
	case err != nil:
		return nil, fmt.Errorf("list tasks of cgroup %s%s: %w", f.root, p, err)
	case !ok:
		return nil, fmt.Errorf("list tasks of cgroup %s%s: %w", f.root, p, fs.ErrNotExist)
	}
	var tids []int
	todo := []string{start}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		own, below, err := readCgroup(root, dir)
		switch {
		case vanished(err) && dir == start:
			return nil, fmt.Errorf("list tasks of cgroup %s%s: %w", f.root, p, fs.ErrNotExist)
		case vanished(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("list tasks of cgroup %s: %w", path.Join(f.root, dir), err)
		}
		tids = append(tids, own...)
		todo = append(todo, below...)
	}
	slices.Sort(tids)
	return slices.Compact(tids), nil
}

// readCgroup gives the tasks of one cgroup and the cgroups directly below it.
//
// cgroup.threads is read and never cgroup.procs: a threaded cgroup refuses the
// latter (EOPNOTSUPP), and it lists no threads.
func readCgroup(root *os.Root, dir string) (tids []int, below []string, err error) {
	data, err := root.ReadFile(path.Join(dir, fileThreads))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = root.ReadFile(path.Join(dir, fileTasks))
	}
	if err != nil {
		return nil, nil, err
	}
	for _, field := range bytes.Fields(data) {
		tid, err := strconv.Atoi(string(field))
		if err != nil || tid < 0 {
			return nil, nil, fmt.Errorf("%q is no task id", field)
		}
		tids = append(tids, tid)
	}
	d, err := root.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			below = append(below, path.Join(dir, e.Name()))
		}
	}
	return tids, below, nil
}
