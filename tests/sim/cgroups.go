package sim

import (
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
)

// Cgroups is a cgroup v2 tree over a TaskSource. A process belongs to the
// cgroup it was put into, or that of its parent when it was first seen; its
// threads go with it.
type Cgroups struct {
	mu      sync.Mutex
	source  TaskSource
	groups  map[string]bool // paths, "/" is the root
	members map[int]member  // processes in a cgroup other than the root
	next    uint64
	inos    map[string]uint64
}

type member struct {
	start uint64
	path  string
}

// NewCgroups returns a tree with nothing but its root.
func NewCgroups(source TaskSource) *Cgroups {
	c := &Cgroups{
		source: source, groups: map[string]bool{"/": true}, members: map[int]member{},
		next: 1, inos: map[string]uint64{"/": 1},
	}
	if n, ok := source.(Notifier); ok {
		n.Notify(c.Sync)
	}
	return c
}

func clean(p string) string { return path.Clean("/" + p) }

// AddCgroup makes the cgroup at p and every missing parent of it.
func (c *Cgroups) AddCgroup(p string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p = clean(p); !c.groups[p]; p = path.Dir(p) {
		c.groups[p] = true
		c.next++
		c.inos[p] = c.next
	}
	return nil
}

// RemoveCgroup removes the cgroup at p and all below it. EBUSY while a process
// is there, ENOENT where there is none.
func (c *Cgroups) RemoveCgroup(p string) error {
	p = clean(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.groups[p] || p == "/" {
		return fmt.Errorf("remove cgroup %s: %w", p, syscall.ENOENT)
	}
	if err := c.sync(); err != nil {
		return err
	}
	for pid, m := range c.members {
		if below(m.path, p) && c.alive(pid) {
			return fmt.Errorf("remove cgroup %s: process %d is in it: %w", p, pid, syscall.EBUSY)
		}
	}
	for other := range c.groups {
		if below(other, p) {
			delete(c.groups, other)
			delete(c.inos, other)
		}
	}
	return nil
}

// Clear removes all cgroups, whatever is in them: a reboot.
func (c *Cgroups) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups, c.members = map[string]bool{"/": true}, map[int]member{}
	c.inos = map[string]uint64{"/": c.inos["/"]}
}

// alive says whether a process has a thread that is no zombie.
func (c *Cgroups) alive(pid int) bool {
	threads, _ := c.source.Threads(pid)
	for _, t := range threads {
		if !t.Zombie {
			return true
		}
	}
	return false
}

// AddProcess puts a process into the cgroup at p, together with those of its
// descendants that were in the same cgroup as it: as if it had been born there.
func (c *Cgroups) AddProcess(p string, pid int) error {
	return c.put(p, pid, true)
}

// MoveProcess is a write to cgroup.procs: its descendants stay where they are.
func (c *Cgroups) MoveProcess(p string, pid int) error {
	return c.put(p, pid, false)
}

func (c *Cgroups) put(p string, pid int, descendants bool) error {
	p = clean(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.groups[p] {
		return fmt.Errorf("add process %d to cgroup %s: %w", pid, p, syscall.ENOENT)
	}
	if tr, ok := c.source.(Tracker); ok {
		tr.Track(pid)
	}
	if err := c.sync(); err != nil {
		return err
	}
	list, err := c.source.Processes()
	if err != nil {
		return err
	}
	found := false
	old := c.members[pid].path
	moving := map[int]bool{pid: true}
	for again := true; again; {
		again = false
		for _, t := range list {
			switch {
			case t.TID == pid && !found:
				found = true
				c.enter(t, p)
			case descendants && moving[t.PPID] && !moving[t.TID] && c.members[t.TID].path == old:
				moving[t.TID], again = true, true
				c.enter(t, p)
			}
		}
	}
	if !found {
		return fmt.Errorf("add process %d to cgroup %s: %w", pid, p, syscall.ESRCH)
	}
	return nil
}

func (c *Cgroups) enter(t Task, p string) {
	if p == "/" {
		delete(c.members, t.TID)
		return
	}
	c.members[t.TID] = member{start: t.Start, path: p}
}

// Sync takes the processes that are there now into the tree.
func (c *Cgroups) Sync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.sync() // the next caller that needs the answer gets the error
}

func (c *Cgroups) sync() error {
	list, err := c.source.Processes()
	if err != nil {
		return err
	}
	present := make(map[int]Task, len(list))
	for _, t := range list {
		present[t.TID] = t
	}
	for pid, m := range c.members {
		if t, ok := present[pid]; !ok || t.Start != m.start {
			delete(c.members, pid)
		}
	}
	for again := true; again; { // a child may be listed before its parent
		again = false
		for _, t := range list {
			if _, known := c.members[t.TID]; known {
				continue
			}
			if parent, ok := c.members[t.PPID]; ok {
				c.members[t.TID] = member{start: t.Start, path: parent.path}
				again = true
			}
		}
	}
	return nil
}

// Of is the cgroup of the process that task tid belongs to; ESRCH where there
// is no such task.
func (c *Cgroups) Of(tid int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sync(); err != nil {
		return "", err
	}
	t, ok := c.source.Task(tid)
	if !ok {
		return "", syscall.ESRCH
	}
	if m, ok := c.members[t.TGID]; ok {
		return m.path, nil
	}
	return "/", nil
}

// Exists says whether the cgroup p is there.
func (c *Cgroups) Exists(p string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[clean(p)]
}

// Paths lists all cgroups, sorted.
func (c *Cgroups) Paths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]string, 0, len(c.groups))
	for p := range c.groups {
		list = append(list, p)
	}
	sort.Strings(list)
	return list
}

// Children names the cgroups directly below p.
func (c *Cgroups) Children(p string) []string {
	p = clean(p)
	var list []string
	for _, other := range c.Paths() {
		if other != "/" && path.Dir(other) == p {
			list = append(list, path.Base(other))
		}
	}
	return list
}

// Ino is the inode number of cgroup p's directory, 0 where there is none.
func (c *Cgroups) Ino(p string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inos[clean(p)]
}

// Procs lists the processes of p itself: those with a task that is no zombie.
func (c *Cgroups) Procs(p string) ([]int, error) {
	procs, _, err := c.list(clean(p), false)
	return procs, err
}

// Threads lists the tasks of p itself, or of p and all below it. Zombies are
// left out. fs.ErrNotExist where p is not there.
func (c *Cgroups) Threads(p string, deep bool) ([]int, error) {
	_, threads, err := c.list(clean(p), deep)
	return threads, err
}

func (c *Cgroups) list(p string, deep bool) (procs, threads []int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.groups[p] {
		return nil, nil, fmt.Errorf("cgroup %s: %w", p, fs.ErrNotExist)
	}
	if err := c.sync(); err != nil {
		return nil, nil, err
	}
	for pid, m := range c.members {
		if m.path != p && !(deep && below(m.path, p)) {
			continue
		}
		list, err := c.source.Threads(pid)
		if err != nil {
			return nil, nil, err
		}
		before := len(threads)
		for _, t := range list {
			if !t.Zombie {
				threads = append(threads, t.TID)
			}
		}
		if len(threads) > before {
			procs = append(procs, pid)
		}
	}
	sort.Ints(procs)
	sort.Ints(threads)
	return procs, threads, nil
}

// below says whether p is top or lies below it.
func below(p, top string) bool {
	return top == "/" || p == top || strings.HasPrefix(p, top+"/")
}
