package fusemount

import (
	"context"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// dirHandle is an open directory: its list is that of the moment of opening.
type dirHandle struct {
	release func() // may be nil

	mu   sync.Mutex
	list []fuse.DirEntry
	next int
}

var (
	_ fs.FileReaddirenter = (*dirHandle)(nil)
	_ fs.FileReleasedirer = (*dirHandle)(nil)
	_ fs.FileSeekdirer    = (*dirHandle)(nil)
)

func (d *dirHandle) add(name string, dir bool, ino uint64) {
	mode := uint32(syscall.S_IFREG)
	if dir {
		mode = syscall.S_IFDIR
	}
	d.list = append(d.list, fuse.DirEntry{Name: name, Mode: mode, Ino: ino, Off: uint64(len(d.list) + 1)})
}

func (d *dirHandle) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next >= len(d.list) {
		return nil, 0
	}
	d.next++
	return &d.list[d.next-1], 0
}

func (d *dirHandle) Seekdir(_ context.Context, off uint64) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = int(min(off, uint64(len(d.list))))
	return 0
}

func (d *dirHandle) Releasedir(context.Context, uint32) {
	if d.release != nil {
		d.release()
	}
}

// textNode is a file whose content is made when it is read.
type textNode struct {
	fs.Inode
	m     *Mount
	ino   uint64
	read  func() (string, error)
	write func(ctx context.Context, data string) error // nil: read-only
}

var (
	_ fs.NodeGetattrer = (*textNode)(nil)
	_ fs.NodeSetattrer = (*textNode)(nil)
	_ fs.NodeOpener    = (*textNode)(nil)
)

func (t *textNode) fill(a *fuse.Attr) {
	a.Ino, a.Nlink, a.Owner = t.ino, 1, t.m.owner
	a.Mode = syscall.S_IFREG | 0o444
	if t.write != nil {
		a.Mode = syscall.S_IFREG | 0o644
	}
}

func (t *textNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	t.fill(&out.Attr)
	return 0
}

func (t *textNode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if _, ok := in.GetMode(); ok {
		return syscall.EPERM
	}
	t.fill(&out.Attr)
	return 0
}

func (t *textNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY && t.write == nil {
		return nil, 0, syscall.EACCES
	}
	return &textHandle{t: t}, openFlags, 0
}

type textHandle struct {
	t *textNode

	mu    sync.Mutex
	text  string
	taken bool
}

var (
	_ fs.FileReader = (*textHandle)(nil)
	_ fs.FileWriter = (*textHandle)(nil)
)

func (h *textHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.taken || off == 0 {
		text, err := h.t.read()
		if err != nil {
			return nil, errnoOf(err)
		}
		h.text, h.taken = text, true
	}
	if off >= int64(len(h.text)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, h.text[off:])]), 0
}

func (h *textHandle) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	if h.t.write == nil {
		return 0, syscall.EBADF
	}
	if err := h.t.write(ctx, string(data)); err != nil {
		return 0, errnoOf(err)
	}
	return uint32(len(data)), 0
}

// entry puts a text file below parent.
func (t *textNode) entry(ctx context.Context, parent *fs.Inode, out *fuse.EntryOut) *fs.Inode {
	t.fill(&out.Attr)
	return parent.NewInode(ctx, t, fs.StableAttr{Mode: syscall.S_IFREG, Ino: t.ino})
}
