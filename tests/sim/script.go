package sim

import (
	"fmt"
	"sort"
	"sync"
)

// Script is the deterministic TaskSource: a test adds, forks and kills.
type Script struct {
	mu      sync.Mutex
	tasks   map[int]Task
	nextTID int
	start   uint64
	watch   []func()
}

// NewScript returns a source with one task, PID 1.
func NewScript() *Script {
	return &Script{tasks: map[int]Task{1: {TID: 1, TGID: 1}}, nextTID: 100, start: 1}
}

// Notify implements Notifier.
func (s *Script) Notify(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = append(s.watch, changed)
}

// Spawn starts a process as a child of PID 1 and returns its PID.
func (s *Script) Spawn() int { return s.Fork(1) }

// Fork makes task creator (any TID) fork and returns the child's PID.
func (s *Script) Fork(creator int) int {
	return s.add(creator, func(parent, child *Task) {
		child.TGID, child.PPID = child.TID, parent.TGID
	})
}

// Clone makes task creator (any TID) start a thread and returns its TID.
func (s *Script) Clone(creator int) int {
	return s.add(creator, func(parent, child *Task) {
		child.TGID, child.PPID = parent.TGID, parent.PPID
	})
}

// CloneN makes creator start n threads and returns their TIDs.
func (s *Script) CloneN(creator, n int) []int {
	tids := make([]int, 0, n)
	for range n {
		tids = append(tids, s.Clone(creator))
	}
	return tids
}

func (s *Script) add(creator int, place func(parent, child *Task)) int {
	s.mu.Lock()
	parent, ok := s.tasks[creator]
	if !ok {
		s.mu.Unlock()
		panic(fmt.Sprintf("script: task %d does not exist, it cannot create another", creator))
	}
	s.start++
	child := Task{TID: s.nextTID, Creator: creator, Start: s.start, UID: parent.UID}
	s.nextTID++
	place(&parent, &child)
	s.tasks[child.TID] = child
	s.mu.Unlock()
	s.changed()
	return child.TID
}

// Put adds or replaces a task as it is given: for a TID that is used again,
// another owner, a zombie. Start is set if it is 0.
func (s *Script) Put(t Task) {
	s.mu.Lock()
	if t.TGID == 0 {
		t.TGID = t.TID
	}
	if t.Start == 0 {
		s.start++
		t.Start = s.start
	}
	s.tasks[t.TID] = t
	s.nextTID = max(s.nextTID, t.TID+1)
	s.mu.Unlock()
	s.changed()
}

// Exit ends one task; the leader's TID ends the whole process. Its children
// become PID 1's.
func (s *Script) Exit(tid int) {
	s.mu.Lock()
	if t, ok := s.tasks[tid]; ok && t.TGID == tid {
		for id, other := range s.tasks {
			if other.TGID == tid {
				delete(s.tasks, id)
			} else if other.PPID == tid {
				other.PPID = 1
				s.tasks[id] = other
			}
		}
	}
	delete(s.tasks, tid)
	s.mu.Unlock()
	s.changed()
}

func (s *Script) changed() {
	s.mu.Lock()
	watch := s.watch
	s.mu.Unlock()
	for _, f := range watch {
		f()
	}
}

// Processes implements TaskSource.
func (s *Script) Processes() ([]Task, error) {
	return s.list(func(t Task) bool { return t.TID == t.TGID }), nil
}

// Threads implements TaskSource.
func (s *Script) Threads(tgid int) ([]Task, error) {
	return s.list(func(t Task) bool { return t.TGID == tgid }), nil
}

func (s *Script) list(want func(Task) bool) []Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Task
	for _, t := range s.tasks {
		if want(t) {
			list = append(list, t)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].TID < list[j].TID })
	return list
}

// Task implements TaskSource.
func (s *Script) Task(tid int) (Task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tasks[tid]
	return t, ok
}
