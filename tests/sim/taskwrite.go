package sim

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
)

// Caller is who writes: its thread for "0", its user for the permission to
// move a task of somebody else.
type Caller struct {
	TID int
	UID uint32
}

// writeTasks is rdtgroup_tasks_write of Linux 6.12: a comma-separated list,
// applied from left to right up to the first failure, whose error it returns.
func (m *Model) writeTasks(g *group, data string, by Caller) error {
	if m.cfg.Kernel61 {
		return m.writeTask61(g, data, by)
	}
	m.status.clear()
	w := m.beginWrite(g, by)
	defer m.recount()
	for rest, more := data, true; more && rest != "" && rest[0] != '\n'; {
		var item string
		item, rest, more = strings.Cut(rest, ",")
		item = strings.TrimSpace(item)
		pid, err := parseInt(item)
		if err != nil {
			m.status.addf("Task list parsing error pid %s", item)
			return syscall.EINVAL
		}
		if pid < 0 {
			m.status.addf("Invalid pid %d", pid)
			return syscall.EINVAL
		}
		if err := w.move(pid); err != nil {
			m.status.addf("Error while processing task %d", pid)
			return err
		}
		g.moved = m.clock.Now()
	}
	return nil
}

// writeTask61 is the same of Linux 6.1: one task, and a text that is no number
// is refused before last_cmd_status is cleared.
func (m *Model) writeTask61(g *group, data string, by Caller) error {
	pid, err := parseInt(strings.TrimSpace(data))
	if err != nil || pid < 0 {
		return syscall.EINVAL
	}
	m.status.clear()
	w := m.beginWrite(g, by)
	defer m.recount()
	if err := w.move(pid); err != nil {
		return err
	}
	g.moved = m.clock.Now()
	return nil
}

// tasksWrite is one write to a tasks file.
type tasksWrite struct {
	m      *Model
	g      *group
	by     Caller
	synced bool
}

func (m *Model) beginWrite(g *group, by Caller) *tasksWrite {
	m.rmids.settle(m.clock.Now())
	return &tasksWrite{m: m, g: g, by: by}
}

// sync brings the model up to date, once: what is born after the first move of
// a write cannot be told from what was there.
func (w *tasksWrite) sync() {
	if !w.synced {
		w.m.sync()
		w.synced = true
	}
}

func (w *tasksWrite) move(pid int) error {
	m, tid := w.m, pid
	if pid == 0 {
		tid = w.by.TID
	}
	t, ok := m.source.Task(tid)
	if !ok {
		m.status.addf("No task %d", pid)
		return syscall.ESRCH
	}
	if w.by.UID != 0 && w.by.UID != t.UID {
		m.status.addf("No permission to move task %d", tid)
		return syscall.EPERM
	}
	if tr, ok := m.source.(Tracker); ok && tr.Track(t.TGID) {
		w.synced = false // its children are there already: they must not inherit what follows
	}
	if !m.knownThread(t) {
		w.sync()
	}
	old := m.groupOf(t)
	if old == w.g {
		return nil
	}
	if w.g.monitoring() && old.control() != w.g.parent {
		m.status.addf("Can't move task to different control group")
		return syscall.EINVAL
	}
	m.place(t, w.g)
	return nil
}

// knownThread says whether t is a thread that nobody inherits from here and
// that the model knows: moving it needs no look at all the others.
func (m *Model) knownThread(t Task) bool {
	p := m.procs[t.TGID]
	if p == nil || t.TID == t.TGID {
		return false
	}
	th, ok := p.threads[t.TID]
	return ok && th.start == t.Start
}

// parseInt is kstrtoint(s, 0): one sign, 0x and 0 as prefixes, no blanks.
func parseInt(s string) (int, error) {
	digits, negative := strings.CutPrefix(s, "-")
	if !negative {
		digits = strings.TrimPrefix(s, "+")
	}
	base := 10
	switch low := strings.ToLower(digits); {
	case strings.HasPrefix(low, "0x"):
		base, digits = 16, digits[2:]
	case len(digits) > 1 && digits[0] == '0':
		base, digits = 8, digits[1:]
	}
	if digits == "" || digits[0] == '+' || digits[0] == '-' {
		return 0, errors.New("no number")
	}
	n, err := strconv.ParseInt(digits, base, 32)
	if negative {
		n = -n
	}
	return int(n), err
}
