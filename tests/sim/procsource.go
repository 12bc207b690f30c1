package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ProcSource is the TaskSource that reads a real proc(5).
//
// The tasks of the simulated machine are the processes that were tracked, and
// their descendants: neither the rest of the host nor its size has a part in
// it. With all set, every process of the host is one of them.
type ProcSource struct {
	root string
	all  bool

	mu    sync.Mutex
	world map[int]uint64 // start by PID
}

// NewProcSource reads the proc(5) at root, /proc mostly.
func NewProcSource(root string, all bool) *ProcSource {
	return &ProcSource{root: root, all: all, world: map[int]uint64{}}
}

// Tracker is a TaskSource that sees only a part of the tasks there are: what
// was tracked, and its descendants from then on.
type Tracker interface {
	// Track takes in the process; it says whether it was new.
	Track(pid int) bool
}

// Track implements Tracker.
func (s *ProcSource) Track(pid int) bool {
	t, ok := s.Task(pid)
	if s.all || !ok {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if start, ok := s.world[pid]; ok && start == t.Start {
		return false
	}
	s.world[pid] = t.Start
	return true
}

// Processes implements TaskSource.
func (s *ProcSource) Processes() ([]Task, error) {
	if !s.all {
		// From listing to choosing: an older list must not drop what was
		// tracked, or born, meanwhile.
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	pids, err := numbers(s.root)
	if err != nil {
		return nil, err
	}
	list := make([]Task, 0, len(pids))
	for _, pid := range pids {
		if t, ok := s.stat(filepath.Join(s.root, strconv.Itoa(pid)), pid, pid); ok {
			list = append(list, t)
		}
	}
	if s.all {
		return list, nil
	}
	return s.chosen(list), nil
}

// chosen keeps the tracked processes and their descendants, who are tracked
// from now on: a parent that ends leaves them in. s.mu is held.
func (s *ProcSource) chosen(list []Task) []Task {
	in := make(map[int]bool, len(s.world))
	for _, t := range list {
		if start, ok := s.world[t.TID]; ok && start == t.Start {
			in[t.TID] = true
		}
	}
	for again := true; again; { // a child's PID may be the smaller one
		again = false
		for _, t := range list {
			if !in[t.TID] && in[t.PPID] {
				in[t.TID], again = true, true
			}
		}
	}
	kept := list[:0]
	world := make(map[int]uint64, len(in))
	for _, t := range list {
		if in[t.TID] {
			world[t.TID] = t.Start
			kept = append(kept, t)
		}
	}
	s.world = world
	return kept
}

// Threads implements TaskSource.
func (s *ProcSource) Threads(tgid int) ([]Task, error) {
	dir := filepath.Join(s.root, strconv.Itoa(tgid), "task")
	tids, err := numbers(dir)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]Task, 0, len(tids))
	for _, tid := range tids {
		if t, ok := s.stat(filepath.Join(dir, strconv.Itoa(tid)), tid, tgid); ok {
			list = append(list, t)
		}
	}
	return list, nil
}

// Task implements TaskSource. The kernel shows /proc/<tid> of a thread that is
// no leader, though readdir hides it.
func (s *ProcSource) Task(tid int) (Task, bool) {
	dir := filepath.Join(s.root, strconv.Itoa(tid))
	data, err := readOnce(filepath.Join(dir, "status"))
	if err != nil {
		return Task{}, false
	}
	tgid, uid := 0, 0
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case len(fields) == 0:
		case key == "Tgid":
			tgid, _ = strconv.Atoi(fields[0])
		case key == "Uid":
			uid, _ = strconv.Atoi(fields[0])
		}
	}
	t, ok := s.stat(dir, tid, tgid)
	t.UID = uint32(uid)
	return t, ok && tgid > 0
}

// stat reads <dir>/stat: fields 3 (state), 4 (ppid) and 22 (starttime) of
// proc(5), counted after the name, which may hold anything.
func (s *ProcSource) stat(dir string, tid, tgid int) (Task, bool) {
	data, err := readOnce(filepath.Join(dir, "stat"))
	if err != nil {
		return Task{}, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return Task{}, false
	}
	ppid, err1 := strconv.Atoi(string(fields[1]))
	start, err2 := strconv.ParseUint(string(fields[19]), 10, 64)
	if err1 != nil || err2 != nil || fields[0][0] == 'X' {
		return Task{}, false
	}
	return Task{TID: tid, TGID: tgid, PPID: ppid, Start: start, Zombie: fields[0][0] == 'Z'}, true
}

// readOnce reads a small file of proc(5) with three system calls: all of /proc
// is read at every turn, and os.ReadFile makes twice as many.
func readOnce(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	buf := make([]byte, 4096)
	n, err := syscall.Read(fd, buf)
	return buf[:max(n, 0)], err
}

// numbers lists the names of dir that are numbers.
func numbers(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
