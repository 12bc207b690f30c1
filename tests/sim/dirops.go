package sim

import (
	"strings"
	"syscall"
)

// Mkdir makes a group: a control group in the root, a monitoring group in a
// mon_groups. perm are the permission bits of its directory.
//
// Errors, in the order in which the kernel finds them: EEXIST, EINVAL (a
// newline in the name), EPERM (not a place for groups), ENOSPC (no CLOSID, no
// RMID), EBUSY (RMIDs in limbo only).
func (m *Model) Mkdir(parent Node, name string, perm uint32, by Caller) (Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mkdirAllowed(parent, name); err != nil {
		return Node{}, err
	}
	g := m.newGroup(name, nil)
	g.perm, g.uid = perm, by.UID
	if parent.dir == dirMonGroups {
		g.parent = parent.g
		g.closid = parent.g.closid
	} else if err := m.takeCLOSID(g); err != nil {
		return Node{}, err
	}
	if err := m.takeRMID(g); err != nil {
		if parent.dir != dirMonGroups {
			m.closids[g.closid] = false
		}
		return Node{}, err
	}
	if parent.dir == dirMonGroups {
		parent.g.children[name] = g
	} else {
		m.initControls(g)
		m.groups[name] = g
	}
	return Node{g: g}, nil
}

func (m *Model) mkdirAllowed(parent Node, name string) error {
	if parent.g == m.bare {
		return syscall.ENOENT // sysfs's empty directory looks up nothing, not even to create it
	}
	_, err := m.child(parent, name)
	switch {
	case parent.g.removed:
		return syscall.ENOENT
	case err == nil, name == ".", name == "..":
		return syscall.EEXIST
	case err != syscall.ENOENT:
		return err
	case len(name) >= pathMax:
		return syscall.ENAMETOOLONG
	case strings.Contains(name, "\n"):
		return syscall.EINVAL
	case parent.g == m.root && parent.dir == dirGroup && m.cfg.Allocation:
		return nil
	case parent.dir == dirMonGroups && name != "mon_groups":
		return nil
	}
	return syscall.EPERM
}

func (m *Model) takeCLOSID(g *group) error {
	for id, used := range m.closids {
		if !used {
			m.closids[id] = true
			g.closid = id
			return nil
		}
	}
	m.status.addf("Out of CLOSIDs")
	return syscall.ENOSPC
}

func (m *Model) takeRMID(g *group) error {
	if !m.cfg.Monitoring {
		return nil
	}
	r, limbo := m.rmids.take(m.clock.Now())
	if r == nil {
		m.status.addf("Out of RMIDs")
		if limbo {
			return syscall.EBUSY
		}
		return syscall.ENOSPC
	}
	g.rmid = r
	return nil
}

// Rmdir removes a group; its tasks stay in its control group, those of a
// control group go to the default group. EPERM for every other directory,
// ENOTDIR for a file, EBUSY for the root (as name ".").
func (m *Model) Rmdir(parent Node, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == "." || name == "" {
		return syscall.EBUSY
	}
	n, err := m.child(parent, name)
	switch {
	case err != nil:
		return err
	case !n.IsDir():
		return syscall.ENOTDIR
	case n.dir != dirGroup:
		return syscall.EPERM
	}
	m.sync()
	if n.g.monitoring() {
		m.removeMonitoring(n.g)
	} else {
		m.removeControl(n.g)
	}
	return nil
}

// Rename moves a monitoring group to another name or another control group;
// its RMID with the counters, and its tasks, go with it.
func (m *Model) Rename(from Node, name string, to Node, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	src, err := m.child(from, name)
	if err != nil {
		return err
	}
	if !to.IsDir() {
		return syscall.ENOTDIR
	}
	dst, err := m.child(to, newName)
	exists := err == nil
	switch {
	case exists && dst == src:
		return nil
	case exists && src.IsDir() && !dst.IsDir():
		return syscall.ENOTDIR
	case exists && !src.IsDir() && dst.IsDir():
		return syscall.EISDIR
	case m.cfg.Kernel61:
		return syscall.EPERM
	case src.dir == dirInfo || src.dir == dirResource && src.IsDir() || to.dir == dirInfo || to.dir == dirResource:
		return syscall.ENOENT // the kernel finds no group for info
	}
	if err := m.renameAllowed(src, to, newName); err != nil {
		return err
	}
	if exists {
		return syscall.EEXIST
	}
	m.sync()
	delete(src.g.parent.children, src.g.name)
	src.g.name, src.g.parent, src.g.closid = newName, to.g, to.g.closid
	to.g.children[newName] = src.g
	return nil
}

func (m *Model) renameAllowed(src, to Node, newName string) error {
	refuse := func(why string) error {
		m.status.addf("%s", why)
		return syscall.EPERM
	}
	m.status.clear()
	switch {
	case to.g.removed || to.g == m.bare:
		return syscall.ENOENT
	case !src.IsDir():
		m.status.add("Source and destination must be directories") // without a newline (6.12)
		return syscall.EPERM
	case src.dir != dirGroup || !src.g.monitoring():
		return refuse("Source must be a MON group")
	case to.dir != dirMonGroups || newName == "mon_groups":
		return refuse("Destination must be a mon_groups subdirectory")
	case src.g.cpus != 0 && src.g.parent != to.g:
		return refuse("Cannot move a MON group that monitors CPUs")
	}
	return nil
}
