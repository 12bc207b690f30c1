package fusemount

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// procNode is a directory of proc/: the root, a task's, or one of those that
// lead to boot_id.
type procNode struct {
	fs.Inode
	m   *Mount
	ino uint64
	// names lists what readdir shows; lookup may know more, as proc(5) does.
	names  func() []procName
	lookup func(name string) fs.InodeEmbedder
}

type procName struct {
	name string
	dir  bool
}

var (
	_ fs.NodeLookuper       = (*procNode)(nil)
	_ fs.NodeGetattrer      = (*procNode)(nil)
	_ fs.NodeOpendirHandler = (*procNode)(nil)
)

func (p *procNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	p.m.fillDir(&out.Attr, p.ino)
	return 0
}

func (p *procNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	switch child := p.lookup(name).(type) {
	case *procNode:
		p.m.fillDir(&out.Attr, child.ino)
		return p.NewInode(ctx, child, fs.StableAttr{Mode: syscall.S_IFDIR, Ino: child.ino}), 0
	case *textNode:
		return child.entry(ctx, &p.Inode, out), 0
	}
	return nil, syscall.ENOENT
}

func (p *procNode) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	d := &dirHandle{}
	for _, n := range p.names() {
		d.add(n.name, n.dir, 0)
	}
	return d, 0, 0
}

// fixed is a directory with one name in it.
func (m *Mount) fixed(ino uint64, name string, child fs.InodeEmbedder) *procNode {
	_, dir := child.(*procNode)
	return &procNode{
		m: m, ino: ino,
		names: func() []procName { return []procName{{name, dir}} },
		lookup: func(n string) fs.InodeEmbedder {
			if n == name {
				return child
			}
			return nil
		},
	}
}

func (m *Mount) procRoot(ctx context.Context, parent *fs.Inode, out *fuse.EntryOut) *fs.Inode {
	bootID := &textNode{m: m, ino: fixedIno | 4, read: func() (string, error) { return m.BootID() + "\n", nil }}
	sys := m.fixed(fixedIno|1, "kernel", m.fixed(fixedIno|2, "random", m.fixed(fixedIno|3, "boot_id", bootID)))
	root := &procNode{m: m, ino: fixedIno | 5}
	root.names = func() []procName {
		list := []procName{{"sys", true}}
		processes, _ := m.source.Processes()
		for _, t := range processes {
			list = append(list, procName{strconv.Itoa(t.TID), true})
		}
		return list
	}
	root.lookup = func(name string) fs.InodeEmbedder {
		if name == "sys" {
			return sys
		}
		tid, err := strconv.Atoi(name)
		if _, ok := m.source.Task(tid); err != nil || !ok {
			return nil
		}
		return m.taskDir(tid)
	}
	m.fillDir(&out.Attr, root.ino)
	return parent.NewInode(ctx, root, fs.StableAttr{Mode: syscall.S_IFDIR, Ino: root.ino})
}

// taskFiles are those of proc(5) that the programs may read. The first two are
// the simulator's; the others are the host's, where the processes are real.
var taskFiles = []string{"cgroup", "cpu_resctrl_groups", "comm", "status", "stat", "cmdline"}

func (m *Mount) taskDir(tid int) *procNode {
	base := procIno | uint64(tid)<<4
	return &procNode{
		m: m, ino: base,
		names: func() []procName {
			var list []procName
			for _, name := range taskFiles {
				list = append(list, procName{name, false})
			}
			return list
		},
		lookup: func(name string) fs.InodeEmbedder {
			for i, file := range taskFiles {
				if name == file {
					read := func() (string, error) { return m.taskFile(tid, file) }
					return &textNode{m: m, ino: base | uint64(i+1), read: read}
				}
			}
			return nil
		},
	}
}

func (m *Mount) taskFile(tid int, file string) (string, error) {
	switch file {
	case "cgroup":
		p, err := m.Cgroups.Of(tid)
		return "0::" + p + "\n", err
	case "cpu_resctrl_groups":
		return m.Model.TaskGroup(tid)
	}
	if m.hostProc != "" {
		data, err := os.ReadFile(filepath.Join(m.hostProc, strconv.Itoa(tid), file))
		return string(data), err
	}
	return sim.TaskFile(m.source, tid, file)
}
