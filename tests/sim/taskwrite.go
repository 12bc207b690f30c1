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
	m.sync()
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
		if err := m.move(g, pid, by); err != nil {
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
	m.sync()
	defer m.recount()
	if err := m.move(g, pid, by); err != nil {
		return err
	}
	g.moved = m.clock.Now()
	return nil
}

func (m *Model) move(g *group, pid int, by Caller) error {
	tid := pid
	if pid == 0 {
		tid = by.TID
	}
	t, ok := m.source.Task(tid)
	if !ok {
		m.status.addf("No task %d", pid)
		return syscall.ESRCH
	}
	if by.UID != 0 && by.UID != t.UID {
		m.status.addf("No permission to move task %d", tid)
		return syscall.EPERM
	}
	if tr, ok := m.source.(Tracker); ok && tr.Track(t.TGID) {
		m.sync() // its children are there already: they must not inherit what follows
	}
	old := m.groupOf(t)
	if old == g {
		return nil
	}
	if g.monitoring() && old.control() != g.parent {
		m.status.addf("Can't move task to different control group")
		return syscall.EINVAL
	}
	m.place(t, g)
	return nil
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
