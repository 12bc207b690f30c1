package fusemount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// topNode is the mounted directory: resctrl/ (where the kernel has it),
// cgroup/ and proc/.
type topNode struct {
	fs.Inode
	m *Mount
}

var (
	_ fs.NodeLookuper       = (*topNode)(nil)
	_ fs.NodeOpendirHandler = (*topNode)(nil)
	_ fs.NodeGetattrer      = (*topNode)(nil)
	_ fs.NodeRmdirer        = (*topNode)(nil)
	_ fs.NodeRenamer        = (*topNode)(nil)
)

func (m *Mount) fillDir(a *fuse.Attr, ino uint64) {
	a.Ino, a.Mode, a.Nlink, a.Owner = ino, syscall.S_IFDIR|0o755, 2, m.owner
}

func (t *topNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	t.m.fillDir(&out.Attr, 1)
	return 0
}

func (t *topNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	switch name {
	case ResctrlDir:
		n, err := t.m.Model.Root()
		if err != nil {
			return nil, errnoOf(err)
		}
		return t.m.resChild(ctx, &t.Inode, n, out), 0
	case CgroupDir:
		return t.m.cgroupChild(ctx, &t.Inode, "/", out)
	case ProcDir:
		return t.m.procRoot(ctx, &t.Inode, out), 0
	}
	return nil, syscall.ENOENT
}

func (t *topNode) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	d := &dirHandle{}
	if _, err := t.m.Model.Root(); err == nil {
		d.add(ResctrlDir, true, 0)
	}
	d.add(CgroupDir, true, 0)
	d.add(ProcDir, true, 0)
	return d, 0, 0
}

// Rmdir: the three are mount points, as far as a program can tell.
func (t *topNode) Rmdir(context.Context, string) syscall.Errno { return syscall.EBUSY }

func (t *topNode) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	return syscall.EBUSY
}
