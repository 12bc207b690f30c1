// Package memcgroup is the in-memory face of the simulated cgroups: it answers
// what lib/engine asks of lib/cgroup, over a scripted task source.
package memcgroup

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// FS answers Resolve, Tasks and ParentExists from a tree in memory.
type FS struct {
	Tree *sim.Cgroups

	mu      sync.Mutex
	onTasks []func(path string)
	fail    error
}

// New returns a face of tree.
func New(tree *sim.Cgroups) *FS { return &FS{Tree: tree} }

// OnTasks runs f before each Tasks: to fork between two passes, say.
func (f *FS) OnTasks(do func(path string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onTasks = append(f.onTasks, do)
}

// Fail makes every call return err; nil ends that.
func (f *FS) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *FS) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}

// Resolve finds a container's cgroup: by its process where it has one, else by
// its path, either the cgroupfs driver's or the systemd driver's form.
func (f *FS) Resolve(ref cgroup.Ref) (string, error) {
	if err := f.failure(); err != nil {
		return "", err
	}
	if ref.PID > 0 {
		if p, err := f.Tree.Of(ref.PID); err == nil && p != "/" {
			return p, nil
		}
	}
	want, exact := ref.CgroupsPath, true
	if parts := strings.Split(ref.CgroupsPath, ":"); len(parts) == 3 {
		want, exact = parts[1]+"-"+parts[2]+".scope", false
	}
	if want == "" && ref.CgroupParent != "" && ref.ID != "" {
		want = path.Join("/", ref.CgroupParent, ref.ID)
	}
	for _, p := range f.Tree.Paths() {
		if want != "" && (exact && p == path.Clean("/"+want) || !exact && path.Base(p) == want) {
			return p, nil
		}
	}
	return "", fmt.Errorf("cgroup of container %s: %w", ref.ID, fs.ErrNotExist)
}

// Tasks lists the tasks of the cgroup p and all below it.
func (f *FS) Tasks(p string) ([]int, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	hooks := f.onTasks
	f.mu.Unlock()
	for _, do := range hooks {
		do(p)
	}
	return f.Tree.Threads(p, true)
}

// ParentExists says whether a pod's cgroup_parent is there; a name without a
// slash (the systemd driver's slice) is looked for anywhere.
func (f *FS) ParentExists(parent string) (bool, error) {
	if err := f.failure(); err != nil {
		return false, err
	}
	if strings.Contains(parent, "/") {
		return f.Tree.Exists(parent), nil
	}
	for _, p := range f.Tree.Paths() {
		if path.Base(p) == parent {
			return true, nil
		}
	}
	return false, nil
}
