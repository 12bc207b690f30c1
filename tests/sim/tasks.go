package sim

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// proc is what the model remembers of one process. Only processes whose tasks
// may differ are expanded: of all others the leader's group is everybody's.
type proc struct {
	start    uint64
	group    *group // the leader's; nil is the default group
	expanded bool
	threads  map[int]thread // the other tasks of an expanded process, by TID
}

type thread struct {
	start uint64
	group *group
}

// Sync takes the tasks that are there now into the model: new ones inherit,
// ended ones are forgotten.
func (m *Model) Sync() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sync()
}

// SyncError is the last error of the task source, nil if there was none.
func (m *Model) SyncError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.syncErr
}

func (m *Model) sync() {
	m.rmids.settle(m.clock.Now())
	list, err := m.source.Processes()
	if err != nil {
		m.syncErr = err
		return
	}
	present := make(map[int]Task, len(list))
	for _, t := range list {
		present[t.TID] = t
	}
	for pid, p := range m.procs {
		if t, ok := present[pid]; !ok || t.Start != p.start {
			delete(m.procs, pid)
		}
	}
	for _, t := range list {
		m.adopt(t, present)
	}
	for pid, p := range m.procs {
		if p.expanded || p.group != nil {
			m.expand(pid, p)
		}
	}
	m.recount()
}

// adopt makes a process known: it inherits from its creator where the source
// names it, else from its parent, who is adopted first.
func (m *Model) adopt(t Task, present map[int]Task) *proc {
	if p := m.procs[t.TID]; p != nil {
		return p
	}
	p := &proc{start: t.Start}
	m.procs[t.TID] = p // before the parent: a loop in the source must end
	parent, ok := present[t.PPID]
	if !ok || parent.TID == t.TID {
		return p
	}
	from := m.adopt(parent, present)
	p.group = from.group
	if th, ok := from.threads[t.Creator]; ok {
		p.group = th.group
	}
	return p
}

// expand brings the threads of p up to date: new ones inherit from their
// creator where the source names it, else from the leader.
func (m *Model) expand(pid int, p *proc) {
	list, err := m.source.Threads(pid)
	if err != nil {
		m.syncErr = err
		return
	}
	old := p.threads
	p.expanded, p.threads = true, make(map[int]thread, len(list))
	for _, t := range list {
		if t.TID == pid {
			continue
		}
		th, ok := old[t.TID]
		if !ok || th.start != t.Start {
			th = thread{start: t.Start, group: p.group}
			if creator, ok := old[t.Creator]; ok {
				th.group = creator.group
			}
		}
		p.threads[t.TID] = th
	}
}

// groupOf is the group of a task that the source knows; sync came before.
func (m *Model) groupOf(t Task) *group {
	g := m.memberOf(t)
	if g == nil {
		return m.root
	}
	return g
}

func (m *Model) memberOf(t Task) *group {
	p := m.procs[t.TGID]
	if p == nil {
		return nil
	}
	if th, ok := p.threads[t.TID]; ok && th.start == t.Start {
		return th.group
	}
	return p.group
}

// place moves one task. The leader's threads are fixed where they are first:
// a write moves one thread only.
func (m *Model) place(t Task, g *group) {
	p := m.procs[t.TGID]
	if p == nil {
		p = &proc{start: t.Start}
		m.procs[t.TGID] = p
	}
	if g == m.root {
		g = nil
	}
	if t.TID == t.TGID || !p.expanded {
		m.expand(t.TGID, p)
	}
	if t.TID == t.TGID {
		p.group = g
		return
	}
	p.threads[t.TID] = thread{start: t.Start, group: g}
}

func (m *Model) reassign(from, to *group) {
	if to == m.root {
		to = nil
	}
	for _, p := range m.procs {
		if p.group == from {
			p.group = to
		}
		for tid, th := range p.threads {
			if th.group == from {
				p.threads[tid] = thread{start: th.start, group: to}
			}
		}
	}
}

func (m *Model) resetMembership() {
	for _, p := range m.procs {
		p.group = nil
		for tid, th := range p.threads {
			p.threads[tid] = thread{start: th.start}
		}
	}
}

// recount tells the RMIDs whether a task runs under them.
func (m *Model) recount() {
	running := map[*rmid]bool{}
	mark := func(g *group) {
		if g == nil {
			g = m.root
		}
		if g != nil && g.rmid != nil {
			running[g.rmid] = true
		}
	}
	for _, p := range m.procs {
		mark(p.group)
		for _, th := range p.threads {
			mark(th.group)
		}
	}
	now := m.clock.Now()
	for _, r := range m.rmids.used {
		if r.running && !running[r] {
			r.left = now
		}
		r.running = running[r]
	}
}

// tids lists a tasks file: a control group's has the tasks of its monitoring
// groups as well. Without allocation the kernel (6.12) matches no CLOSID, and
// the root's file is empty.
func (m *Model) tids(g *group) []int {
	if !g.monitoring() && !m.cfg.Allocation {
		return nil
	}
	in := func(other *group) bool {
		if other == nil {
			other = m.root
		}
		return other == g || !g.monitoring() && other.control() == g
	}
	var list []int
	for pid, p := range m.procs {
		if in(p.group) {
			list = append(list, pid)
		}
		if !p.expanded && p.group == nil && g == m.root {
			list = append(list, m.otherThreads(pid)...)
		}
		for tid, th := range p.threads {
			if in(th.group) {
				list = append(list, tid)
			}
		}
	}
	sort.Ints(list)
	return list
}

func (m *Model) otherThreads(pid int) []int {
	threads, err := m.source.Threads(pid)
	if err != nil {
		m.syncErr = err
	}
	var list []int
	for _, t := range threads {
		if t.TID != pid {
			list = append(list, t.TID)
		}
	}
	return list
}

func (m *Model) readTasks(g *group) string {
	m.sync()
	var b strings.Builder
	for _, tid := range m.tids(g) {
		b.WriteString(strconv.Itoa(tid))
		b.WriteByte('\n')
	}
	return b.String()
}

// TaskGroup is /proc/<tid>/cpu_resctrl_groups; ESRCH where there is no such
// task.
func (m *Model) TaskGroup(tid int) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.source.Task(tid)
	if !ok {
		return "", syscall.ESRCH
	}
	if !m.mounted {
		return "res:\nmon:\n", nil
	}
	m.sync()
	g := m.groupOf(t)
	mon := ""
	if g.monitoring() {
		mon = g.name
	}
	if c := g.control(); c != m.root {
		return fmt.Sprintf("res:%s\nmon:%s\n", c.name, mon), nil
	}
	return fmt.Sprintf("res:/\nmon:%s\n", mon), nil
}
