package sim

import (
	"fmt"
	"sort"
	"strings"
	"syscall"
	"time"
)

type dirKind int

const (
	dirGroup     dirKind = iota // a group's directory, or the root
	dirMonGroups                // <control group>/mon_groups
	dirMonData                  // <group>/mon_data
	dirDomain                   // <group>/mon_data/mon_L3_00
	dirInfo                     // info
	dirResource                 // info/L3
)

// Node is one file or directory of the tree. It follows its group through a
// rename, and stays what it is when the group is removed: a group that is made
// again under the name has other nodes.
type Node struct {
	g    *group
	dir  dirKind
	sub  string // the domain's or the resource's directory
	file string // "": the directory itself
}

// IsDir says whether n is a directory.
func (n Node) IsDir() bool { return n.file == "" }

// Entry is one name of a directory.
type Entry struct {
	Name string
	Node Node
}

// Attr is what stat(2) shows of a node.
type Attr struct {
	Ino      uint64
	Dir      bool
	Perm     uint32 // permission bits
	UID, GID uint32
	Mtime    time.Time
}

// override is what chmod and chown made of a node.
type override struct {
	perm     uint32
	uid, gid uint32
}

// Root is the mount point: the root group, or an empty directory while resctrl
// is not mounted. ENOENT where the kernel has no resctrl at all.
func (m *Model) Root() (Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rootNode()
}

func (m *Model) rootNode() (Node, error) {
	switch {
	case !m.supported():
		return Node{}, syscall.ENOENT
	case !m.mounted:
		return Node{g: m.bare}, nil
	}
	return Node{g: m.root}, nil
}

// Walk finds the node of a slash-separated path below the root.
func (m *Model) Walk(path string) (Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.walk(path)
}

func (m *Model) walk(path string) (Node, error) {
	n, err := m.rootNode()
	if err == nil && len(path) >= pathMax {
		return Node{}, syscall.ENAMETOOLONG
	}
	for _, name := range strings.Split(path, "/") {
		if err != nil {
			break
		}
		if name == "" || name == "." {
			continue
		}
		n, err = m.child(n, name)
	}
	return n, err
}

// pathMax is PATH_MAX; kernfs has no other limit for a name.
const pathMax = 4096

// Child finds a name in directory n.
func (m *Model) Child(n Node, name string) (Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.child(n, name)
}

func (m *Model) child(n Node, name string) (Node, error) {
	if !n.IsDir() {
		return Node{}, syscall.ENOTDIR
	}
	for _, e := range m.entries(n) {
		if e.Name == name {
			return e.Node, nil
		}
	}
	return Node{}, syscall.ENOENT
}

// Entries lists directory n: files first, then directories, each by name.
func (m *Model) Entries(n Node) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !n.IsDir() {
		return nil, syscall.ENOTDIR
	}
	if n.g.removed {
		return nil, syscall.ENOENT
	}
	return m.entries(n), nil
}

func (m *Model) entries(n Node) []Entry {
	if n.g.removed || n.g == m.bare {
		return nil
	}
	var list []Entry
	files := func(names ...string) {
		for _, name := range names {
			list = append(list, Entry{name, Node{g: n.g, dir: n.dir, sub: n.sub, file: name}})
		}
	}
	switch n.dir {
	case dirGroup:
		return m.groupEntries(n.g)
	case dirMonGroups:
		for _, child := range n.g.children {
			list = append(list, Entry{child.name, Node{g: child}})
		}
	case dirMonData:
		for i := range m.cfg.L3Domains {
			name := fmt.Sprintf("mon_L3_%02d", i)
			list = append(list, Entry{name, Node{g: n.g, dir: dirDomain, sub: name}})
		}
	case dirDomain:
		files("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes")
	case dirInfo:
		files("last_cmd_status")
		for _, res := range m.resources() {
			list = append(list, Entry{res, Node{g: n.g, dir: dirResource, sub: res}})
		}
	case dirResource:
		files(m.resourceFiles(n.sub)...)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

func (m *Model) groupEntries(g *group) []Entry {
	names := []string{"cpus", "cpus_list", "tasks"}
	if !g.monitoring() {
		names = append(names, "mode", "schemata", "size")
	}
	var list []Entry
	for _, name := range names {
		list = append(list, Entry{name, Node{g: g, file: name}})
	}
	if m.cfg.Monitoring {
		list = append(list, Entry{"mon_data", Node{g: g, dir: dirMonData}})
		if !g.monitoring() {
			list = append(list, Entry{"mon_groups", Node{g: g, dir: dirMonGroups}})
		}
	}
	if g == m.root {
		list = append(list, Entry{"info", Node{g: g, dir: dirInfo}})
		for name, control := range m.groups {
			list = append(list, Entry{name, Node{g: control}})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// Attr is stat(2) of n; that of a removed group's nodes still answers.
func (m *Model) Attr(n Node) Attr {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := Attr{Ino: m.ino(n), Dir: n.IsDir(), Perm: n.perm(), UID: n.g.uid, GID: n.g.gid, Mtime: n.g.made}
	if o, ok := n.g.attrs[n]; ok {
		a.Perm, a.UID, a.GID = o.perm, o.uid, o.gid
	}
	if n.dir == dirGroup && n.file == "tasks" {
		a.Mtime = n.g.moved
	}
	return a
}

// SetAttr is chmod and chown; nil leaves a value as it is. kernfs allows both,
// until the group or the mount is gone.
func (m *Model) SetAttr(n Node, perm, uid, gid *uint32) {
	a := m.Attr(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	o := override{perm: a.Perm, uid: a.UID, gid: a.GID}
	if perm != nil {
		o.perm = *perm & 0o7777
	}
	if uid != nil {
		o.uid = *uid
	}
	if gid != nil {
		o.gid = *gid
	}
	n.g.attrs[n] = o
}

func (m *Model) ino(n Node) uint64 {
	if i, ok := n.g.inos[n]; ok {
		return i
	}
	m.nextIno++
	n.g.inos[n] = m.nextIno
	return m.nextIno
}

// perm is the mode that the kernel gives: a group's directory as mkdir said,
// files that can be written 0644.
func (n Node) perm() uint32 {
	switch {
	case n.IsDir() && n.dir == dirGroup:
		return n.g.perm
	case n.IsDir() && (n.dir == dirMonGroups || n.dir == dirMonData || n.dir == dirDomain) && n.g.perm != 0o555:
		return n.g.perm
	case n.IsDir():
		return 0o555
	case n.writable():
		return 0o644
	}
	return 0o444
}

func (n Node) writable() bool {
	switch n.dir {
	case dirGroup:
		return n.file != "size"
	case dirResource:
		return n.file == "max_threshold_occupancy"
	}
	return false
}
