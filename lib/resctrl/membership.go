package resctrl

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileGroups is a task's membership in /proc/<tid>, from CONFIG_PROC_CPU_RESCTRL
// (proc_resctrl_show in the kernel's resctrl).
const fileGroups = "cpu_resctrl_groups"

// members tells the membership of tasks, for one pass of an assignment.
type members struct {
	fs  *FS
	own group // the group that is asked for most

	// Filled once, and only where /proc does not say it: each read of a group's
	// tasks walks every thread of the node.
	inOwn  map[int]bool
	others *nodeMembers
}

// of gives the group of a task; ok is false where the task ended.
func (m *members) of(tid int) (g group, ok bool, err error) {
	if !m.fs.simulated && !m.fs.noProc.Load() {
		g, ok, err = m.fs.procMembership(tid)
		if !errors.Is(err, errNoProc) {
			return g, ok, err
		}
		m.fs.noProc.Store(true)
	}
	if m.inOwn == nil {
		if err := m.readOwn(); err != nil {
			return group{}, false, err
		}
	}
	if m.inOwn[tid] {
		return m.own, true, nil
	}
	if m.others == nil {
		// Only the simulator's tasks are cheap enough to look for the
		// monitoring group too.
		if m.others, err = m.fs.allMembers(m.fs.simulated); err != nil {
			return group{}, false, err
		}
	}
	g, ok = m.others.of(tid)
	return g, ok, nil
}

func (m *members) readOwn() error {
	tids, err := m.fs.groupTasks(m.own)
	if err != nil {
		return err
	}
	m.inOwn = make(map[int]bool, len(tids))
	for _, tid := range tids {
		m.inOwn[tid] = true
	}
	return nil
}

var errNoProc = errors.New("this kernel has no " + fileGroups)

// procMembership reads /proc/<tid>/cpu_resctrl_groups; ok is false where the
// task ended.
func (f *FS) procMembership(tid int) (g group, ok bool, err error) {
	dir := filepath.Join(f.procRoot, strconv.Itoa(tid))
	data, err := f.os.ReadFile(filepath.Join(dir, fileGroups))
	switch {
	case err == nil:
		g, err = parseGroups(data)
		if err != nil {
			if merr := f.checkMount(); merr != nil {
				return group{}, false, merr
			}
			return group{}, false, fail("read membership of task", strconv.Itoa(tid), err)
		}
		return g, true, nil
	case errors.Is(err, unix.ESRCH):
		return group{}, false, nil
	case errors.Is(err, unix.ENOENT):
		if _, err := f.os.ReadFile(filepath.Join(dir, "comm")); err == nil {
			return group{}, false, errNoProc
		}
		return group{}, false, nil
	}
	return group{}, false, fail("read membership of task", strconv.Itoa(tid), err)
}

// parseGroups reads the text of cpu_resctrl_groups: "res:/" or "res:<control
// group>", then "mon:" or "mon:<monitoring group>". Without a mounted resctrl
// both are empty.
func parseGroups(data []byte) (group, error) {
	var g group
	var res, mon bool
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if v, ok := strings.CutPrefix(line, "res:"); ok && v != "" {
			g.ctrl, res = strings.TrimPrefix(v, "/"), true
		}
		if v, ok := strings.CutPrefix(line, "mon:"); ok {
			g.mon, mon = v, true
		}
	}
	if !res || !mon || strings.Contains(g.ctrl+g.mon, "/") { // no name in a filesystem has one
		return group{}, fmt.Errorf("%q names no group", data)
	}
	return g, nil
}

// groupTasks reads a group's tasks; ErrGroupGone where the group is not there.
func (f *FS) groupTasks(g group) ([]int, error) {
	path := filepath.Join(f.path(g), fileTasks)
	data, err := f.os.ReadFile(path)
	if err != nil {
		if !gone(err) {
			return nil, fail("read", path, err)
		}
		if merr := f.checkMount(); merr != nil {
			return nil, merr
		}
		return nil, goneError("read", path, err)
	}
	tids, err := parseTIDs(data)
	if err != nil {
		return nil, fail("read", path, err)
	}
	return tids, nil
}

// nodeMembers has the group of every task of the node.
type nodeMembers struct {
	groups   map[int]group
	rootOnly bool // the root is the only control group
}

// of gives a task's group; ok is false where the task ended. Without allocation
// (a CPU with monitoring only) the kernel leaves the root's tasks empty (6.12),
// but there are no other control groups then.
func (n *nodeMembers) of(tid int) (g group, ok bool) {
	g, ok = n.groups[tid]
	return g, ok || n.rootOnly
}

// allMembers reads the control group of every task of the node, and with deep
// its monitoring group too. A control group's tasks lists those of its
// monitoring groups as well.
func (f *FS) allMembers(deep bool) (*nodeMembers, error) {
	ctrls, err := f.controlGroups()
	if err != nil {
		return nil, err
	}
	all := &nodeMembers{groups: map[int]group{}, rootOnly: len(ctrls) == 1}
	for _, ctrl := range ctrls {
		groups := []group{{ctrl: ctrl}}
		if deep {
			names, err := f.monGroups(ctrl)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				groups = append(groups, group{ctrl: ctrl, mon: name})
			}
		}
		for _, g := range groups {
			tids, err := f.groupTasks(g)
			if err != nil && !errors.Is(err, ErrGroupGone) {
				return nil, err
			}
			for _, tid := range tids {
				all.groups[tid] = g
			}
		}
	}
	return all, nil
}

// parseTIDs reads a tasks file: one TID a line.
func parseTIDs(data []byte) ([]int, error) {
	fields := bytes.Fields(data)
	tids := make([]int, 0, len(fields))
	for _, field := range fields {
		tid, err := strconv.Atoi(string(field))
		if err != nil || tid < 0 {
			return nil, fmt.Errorf("%q is no task id", field)
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// status is what /proc/<tid>/status says of a task.
type status struct {
	state  byte // 'R', 'S', 'Z', …
	tgid   int  // its process
	parent int  // its process's parent
}

// status reads a task's /proc/<tid>/status; ok is false where it ended.
func (f *FS) status(tid int) (s status, ok bool) {
	data, err := f.os.ReadFile(filepath.Join(f.procRoot, strconv.Itoa(tid), "status"))
	if err != nil {
		return status{}, false
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			if value != "" {
				s.state = value[0]
			}
		case "Tgid":
			s.tgid, _ = strconv.Atoi(value)
		case "PPid":
			s.parent, _ = strconv.Atoi(value)
		}
	}
	return s, s.tgid > 0
}

// living says whether a task is no zombie. One that cannot be looked at counts
// as living.
func (f *FS) living(tid int) bool {
	s, ok := f.status(tid)
	return !ok || s.state != 'Z' && s.state != 'X'
}
