package fusemount

import (
	"context"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// cgroupFiles are the files of every cgroup; what differs for the root is left
// out, since programs only look for cgroup.controllers there.
var cgroupFiles = []string{"cgroup.controllers", "cgroup.events", "cgroup.procs", "cgroup.threads", "cgroup.type"}

// cgroupNode is the directory of one cgroup. Besides the Go API, programs may
// make and remove cgroups with mkdir and rmdir, and move a process by writing
// to cgroup.procs, as on the real one.
type cgroupNode struct {
	fs.Inode
	m    *Mount
	path string
	ino  uint64
}

var (
	_ fs.NodeLookuper       = (*cgroupNode)(nil)
	_ fs.NodeGetattrer      = (*cgroupNode)(nil)
	_ fs.NodeOpendirHandler = (*cgroupNode)(nil)
	_ fs.NodeMkdirer        = (*cgroupNode)(nil)
	_ fs.NodeRmdirer        = (*cgroupNode)(nil)
	_ fs.NodeUnlinker       = (*cgroupNode)(nil)
	_ fs.NodeCreater        = (*cgroupNode)(nil)
)

func cgroupFileIno(ino uint64, i int) uint64 { return cgroupIno | ino<<4 | uint64(i+1) }

func (m *Mount) cgroupChild(ctx context.Context, parent *fs.Inode, p string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	ino := m.Cgroups.Ino(p)
	if ino == 0 {
		return nil, syscall.ENOENT
	}
	n := &cgroupNode{m: m, path: p, ino: ino}
	m.fillDir(&out.Attr, cgroupIno|ino<<4)
	return parent.NewInode(ctx, n, fs.StableAttr{Mode: syscall.S_IFDIR, Ino: out.Ino}), 0
}

func (c *cgroupNode) gone() bool { return c.m.Cgroups.Ino(c.path) != c.ino }

func (c *cgroupNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	c.m.fillDir(&out.Attr, cgroupIno|c.ino<<4)
	return 0
}

func (c *cgroupNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if c.gone() {
		return nil, syscall.ENOENT
	}
	for i, file := range cgroupFiles {
		if name == file {
			return c.file(i).entry(ctx, &c.Inode, out), 0
		}
	}
	return c.m.cgroupChild(ctx, &c.Inode, path.Join(c.path, name), out)
}

func (c *cgroupNode) file(i int) *textNode {
	t := &textNode{m: c.m, ino: cgroupFileIno(c.ino, i)}
	t.read = func() (string, error) {
		if c.gone() {
			return "", syscall.ENODEV
		}
		return c.content(cgroupFiles[i])
	}
	if cgroupFiles[i] == "cgroup.procs" {
		t.write = c.move
	}
	return t
}

func (c *cgroupNode) content(file string) (string, error) {
	switch file {
	case "cgroup.controllers":
		return "cpu memory pids\n", nil
	case "cgroup.type":
		return "domain\n", nil
	case "cgroup.procs":
		list, err := c.m.Cgroups.Procs(c.path)
		return lines(list), err
	case "cgroup.threads":
		list, err := c.m.Cgroups.Threads(c.path, false)
		return lines(list), err
	}
	list, err := c.m.Cgroups.Threads(c.path, true)
	return "populated " + strconv.Itoa(min(len(list), 1)) + "\nfrozen 0\n", err
}

func lines(list []int) string {
	var b strings.Builder
	for _, n := range list {
		b.WriteString(strconv.Itoa(n))
		b.WriteByte('\n')
	}
	return b.String()
}

// move is a write to cgroup.procs: one process, 0 is the writer's.
func (c *cgroupNode) move(ctx context.Context, data string) error {
	pid, err := strconv.Atoi(strings.TrimSpace(data))
	if err != nil || pid < 0 {
		return syscall.EINVAL
	}
	if pid == 0 {
		pid = caller(ctx).TID
	}
	t, ok := c.m.source.Task(pid)
	switch {
	case c.gone():
		return syscall.ENODEV
	case !ok:
		return syscall.ESRCH
	}
	return c.m.Cgroups.MoveProcess(c.path, t.TGID)
}

func (c *cgroupNode) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if c.gone() {
		return nil, 0, syscall.ENOENT
	}
	d := &dirHandle{}
	for i, file := range cgroupFiles {
		d.add(file, false, cgroupFileIno(c.ino, i))
	}
	for _, name := range c.m.Cgroups.Children(c.path) {
		d.add(name, true, 0)
	}
	return d, 0, 0
}

func (c *cgroupNode) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	p := path.Join(c.path, name)
	switch {
	case c.gone():
		return nil, syscall.ENODEV
	case c.m.Cgroups.Exists(p):
		return nil, syscall.EEXIST
	}
	if err := c.m.Cgroups.AddCgroup(p); err != nil {
		return nil, errnoOf(err)
	}
	return c.m.cgroupChild(ctx, &c.Inode, p, out)
}

func (c *cgroupNode) Rmdir(_ context.Context, name string) syscall.Errno {
	p := path.Join(c.path, name)
	if len(c.m.Cgroups.Children(p)) > 0 {
		return syscall.EBUSY
	}
	return errnoOf(c.m.Cgroups.RemoveCgroup(p))
}

func (c *cgroupNode) Unlink(context.Context, string) syscall.Errno { return syscall.EPERM }

func (c *cgroupNode) Create(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EACCES
}
