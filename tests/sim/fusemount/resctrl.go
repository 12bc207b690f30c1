package fusemount

import (
	"context"
	"errors"
	"path"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// Inode numbers: the tree in the upper bits keeps the three apart.
const (
	resctrlIno = 1 << 48
	cgroupIno  = 2 << 48
	procIno    = 3 << 48
	fixedIno   = 4 << 48
)

// resNode is a file or directory of the resctrl tree.
type resNode struct {
	fs.Inode
	m *Mount
	n sim.Node
}

var (
	_ fs.NodeLookuper       = (*resNode)(nil)
	_ fs.NodeGetattrer      = (*resNode)(nil)
	_ fs.NodeSetattrer      = (*resNode)(nil)
	_ fs.NodeOpendirHandler = (*resNode)(nil)
	_ fs.NodeOpener         = (*resNode)(nil)
	_ fs.NodeMkdirer        = (*resNode)(nil)
	_ fs.NodeRmdirer        = (*resNode)(nil)
	_ fs.NodeRenamer        = (*resNode)(nil)
	_ fs.NodeUnlinker       = (*resNode)(nil)
	_ fs.NodeCreater        = (*resNode)(nil)
	_ fs.NodeSymlinker      = (*resNode)(nil)
	_ fs.NodeMknoder        = (*resNode)(nil)
	_ fs.NodeLinker         = (*resNode)(nil)
)

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	}
	return fs.ToErrno(err)
}

func caller(ctx context.Context) sim.Caller {
	if c, ok := fuse.FromContext(ctx); ok {
		return sim.Caller{TID: int(c.Pid), UID: c.Uid}
	}
	return sim.Caller{}
}

func (m *Mount) fill(a *fuse.Attr, n sim.Node) {
	from := m.Model.Attr(n)
	a.Ino = resctrlIno | from.Ino
	a.Mode, a.Nlink = syscall.S_IFREG|from.Perm, 1
	if from.Dir {
		a.Mode, a.Nlink = syscall.S_IFDIR|from.Perm, 2
	}
	a.Owner = fuse.Owner{Uid: from.UID, Gid: from.GID}
	if from.UID == 0 {
		a.Owner = m.owner
	}
	a.SetTimes(nil, &from.Mtime, &from.Mtime)
}

func (m *Mount) resChild(ctx context.Context, parent *fs.Inode, n sim.Node, out *fuse.EntryOut) *fs.Inode {
	m.fill(&out.Attr, n)
	return parent.NewInode(ctx, &resNode{m: m, n: n}, fs.StableAttr{Mode: out.Mode & syscall.S_IFMT, Ino: out.Ino})
}

// path is below resctrl/, for faults.
func (r *resNode) path(name string) string {
	p := path.Join(r.Path(nil), name)
	if p == ResctrlDir {
		return ""
	}
	return p[min(len(ResctrlDir)+1, len(p)):]
}

func (r *resNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n, err := r.m.Model.Child(r.n, name)
	if err != nil {
		return nil, errnoOf(err)
	}
	return r.m.resChild(ctx, &r.Inode, n, out), 0
}

func (r *resNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	r.m.fill(&out.Attr, r.n)
	return 0
}

// Setattr takes chmod and chown; a new size (O_TRUNC) means nothing here.
func (r *resNode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	var perm, uid, gid *uint32
	if v, ok := in.GetMode(); ok {
		perm = &v
	}
	if v, ok := in.GetUID(); ok {
		uid = &v
	}
	if v, ok := in.GetGID(); ok {
		gid = &v
	}
	if perm != nil || uid != nil || gid != nil {
		r.m.Model.SetAttr(r.n, perm, uid, gid)
	}
	r.m.fill(&out.Attr, r.n)
	return 0
}

func (r *resNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if errno := r.m.Faults.hit("mkdir", r.path(name)); errno != 0 {
		return nil, errno
	}
	n, err := r.m.Model.Mkdir(r.n, name, mode&0o7777, caller(ctx))
	if err != nil {
		return nil, errnoOf(err)
	}
	return r.m.resChild(ctx, &r.Inode, n, out), 0
}

func (r *resNode) Rmdir(_ context.Context, name string) syscall.Errno {
	if errno := r.m.Faults.hit("rmdir", r.path(name)); errno != 0 {
		return errno
	}
	return errnoOf(r.m.Model.Rmdir(r.n, name))
}

func (r *resNode) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := r.m.Faults.hit("rename", r.path(name)); errno != 0 {
		return errno
	}
	to, ok := newParent.(*resNode)
	switch {
	case !ok:
		return syscall.EXDEV
	case flags != 0:
		return syscall.EINVAL
	}
	return errnoOf(r.m.Model.Rename(r.n, name, to.n, newName))
}

// Unlink: no file of resctrl can be removed.
func (r *resNode) Unlink(context.Context, string) syscall.Errno { return syscall.EPERM }

// Create is asked for names that do not exist only.
func (r *resNode) Create(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.EACCES
}

func (r *resNode) Mknod(context.Context, string, uint32, uint32, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (r *resNode) Symlink(context.Context, string, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (r *resNode) Link(context.Context, fs.InodeEmbedder, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (r *resNode) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	entries, err := r.m.Model.Entries(r.n)
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	d := &dirHandle{release: r.m.Model.Hold()}
	for _, e := range entries {
		d.add(e.Name, e.Node.IsDir(), resctrlIno|r.m.Model.Attr(e.Node).Ino)
	}
	return d, 0, 0
}

func (r *resNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if errno := r.m.Faults.hit("open", r.path("")); errno != 0 {
		return nil, 0, errno
	}
	f, err := r.m.Model.Open(r.n, flags&syscall.O_ACCMODE != syscall.O_RDONLY)
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	return &resHandle{r: r, f: f}, openFlags, 0
}

// resHandle is an open file.
type resHandle struct {
	r *resNode
	f *sim.File
}

var (
	_ fs.FileReader   = (*resHandle)(nil)
	_ fs.FileWriter   = (*resHandle)(nil)
	_ fs.FileReleaser = (*resHandle)(nil)
)

func (h *resHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if errno := h.r.m.Faults.hit("read", h.r.path("")); errno != 0 {
		return nil, errno
	}
	n, err := h.f.ReadAt(dest, off)
	if err != nil {
		return nil, errnoOf(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

func (h *resHandle) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	if errno := h.r.m.Faults.hit("write", h.r.path("")); errno != 0 {
		return 0, errno
	}
	if err := h.f.Write(data, caller(ctx)); err != nil {
		return 0, errnoOf(err)
	}
	return uint32(len(data)), 0
}

func (h *resHandle) Release(context.Context) syscall.Errno {
	h.f.Close()
	return 0
}
