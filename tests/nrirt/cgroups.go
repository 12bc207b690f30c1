package nrirt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Cgroups is how processes get into cgroups. Paths are below the cgroup root
// and begin with "/".
type Cgroups interface {
	// AddCgroup makes the cgroup and those above it; it may be there already.
	AddCgroup(path string) error
	// RemoveCgroup removes an empty cgroup; it may be gone already.
	RemoveCgroup(path string) error
	// AddProcess moves a process with all its threads into the cgroup.
	AddProcess(path string, pid int) error
}

// MemoryCgroups is Cgroups without any filesystem.
type MemoryCgroups struct {
	mu    sync.Mutex
	procs map[string][]int
}

// NewMemoryCgroups has no cgroup yet.
func NewMemoryCgroups() *MemoryCgroups { return &MemoryCgroups{procs: map[string][]int{}} }

// AddCgroup makes the cgroup and those above it.
func (m *MemoryCgroups) AddCgroup(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := filepath.Clean(path); p != "/" && p != "."; p = filepath.Dir(p) {
		if _, ok := m.procs[p]; !ok {
			m.procs[p] = []int{}
		}
	}
	return nil
}

// RemoveCgroup forgets the cgroup and its processes.
func (m *MemoryCgroups) RemoveCgroup(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.procs, filepath.Clean(path))
	return nil
}

// AddProcess moves the process into the cgroup.
func (m *MemoryCgroups) AddProcess(path string, pid int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	path = filepath.Clean(path)
	if _, ok := m.procs[path]; !ok {
		return fmt.Errorf("add process %d to %s: %w", pid, path, fs.ErrNotExist)
	}
	for p := range m.procs {
		m.procs[p] = slices.DeleteFunc(m.procs[p], func(x int) bool { return x == pid })
	}
	m.procs[path] = append(m.procs[path], pid)
	return nil
}

// Processes is what AddProcess put into the cgroup; ok says whether it exists.
func (m *MemoryCgroups) Processes(path string) (pids []int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pids, ok = m.procs[filepath.Clean(path)]
	return slices.Clone(pids), ok
}

// CgroupV2 is Cgroups on a mounted cgroup v2 hierarchy, where this process may
// make cgroups.
type CgroupV2 struct {
	Root string // "/sys/fs/cgroup", or a subtree of it
}

// AddCgroup makes the directories.
func (c CgroupV2) AddCgroup(path string) error {
	if err := os.MkdirAll(filepath.Join(c.Root, path), 0o755); err != nil {
		return fmt.Errorf("make cgroup %s: %w", path, err)
	}
	return nil
}

// RemoveCgroup removes the directory.
func (c CgroupV2) RemoveCgroup(path string) error {
	err := os.Remove(filepath.Join(c.Root, path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

// AddProcess writes the process id to cgroup.procs.
func (c CgroupV2) AddProcess(path string, pid int) error {
	f, err := os.OpenFile(filepath.Join(c.Root, path, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("add process %d to cgroup %s: %w", pid, path, err)
	}
	defer f.Close()
	if _, err := f.WriteString(strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("add process %d to cgroup %s: %w", pid, path, err)
	}
	return nil
}

// cgroupPaths is what the runtime names a container's cgroup (the NRI field
// cgroups_path) and where that is below the cgroup root.
func cgroupPaths(systemd bool, parent, id string) (named, dir string) {
	if !systemd {
		dir = filepath.Join("/", parent, id)
		return dir, dir
	}
	slice := filepath.Base(parent)
	return slice + ":cri-containerd:" + id, filepath.Join(sliceDir(slice), "cri-containerd-"+id+".scope")
}

// sliceDir expands a slice's name as systemd does (systemd.slice(5)):
// "a-b.slice" lies in "a.slice".
func sliceDir(slice string) string {
	name := strings.TrimSuffix(slice, ".slice")
	dir, prefix := "/", ""
	for part := range strings.SplitSeq(name, "-") {
		prefix += part
		dir = filepath.Join(dir, prefix+".slice")
		prefix += "-"
	}
	return dir
}
