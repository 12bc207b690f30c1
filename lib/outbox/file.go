package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	fileMode = 0o640
	dirMode  = 0o750
	// openFlags: never through a link, and never hanging on something that
	// is no file.
	openFlags = os.O_RDWR | os.O_APPEND | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
)

// open opens the present log, and makes it (and its directory) where it is absent.
func (l *Log) open() (*os.File, error) {
	f, err := os.OpenFile(l.path, openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return l.create()
	}
	if errors.Is(err, syscall.ELOOP) {
		return nil, errors.New("it is a symbolic link, which is not followed: name the file itself in events.path")
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("it is no regular file (%s): move it away or change events.path", st.Mode())
	}
	if err == nil && !l.opened {
		err = l.admit(filepath.Dir(l.path))
	}
	if err == nil && !l.opened && int(st.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
		err = l.permit(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (l *Log) create() (*os.File, error) {
	dir := filepath.Dir(l.path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, dirMode); err == nil {
		if err := l.permitDir(dir); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, err
	} else if err := l.admit(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(l.path, openFlags|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := l.permit(f); err != nil {
		f.Close()
		return nil, err
	}
	if l.o.Fsync {
		if err := syncDir(dir); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// permitDir lets the group into a directory that we made, whatever the umask.
func (l *Log) permitDir(dir string) error {
	gid, err := groupID(l.o.Group)
	if err != nil {
		return err
	}
	if gid >= 0 {
		if err := os.Lchown(dir, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(dir, dirMode)
}

// admit lets the group into a directory of ours that is there, as a unit makes
// it, for this group or another. A mode that somebody chose stays.
func (l *Log) admit(dir string) error {
	if l.o.Group == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	own := st.Sys().(*syscall.Stat_t)
	if st.Mode().Perm() != dirMode || int(own.Uid) != os.Geteuid() {
		return nil
	}
	return l.permitDir(dir)
}

// permit gives a log file its mode and the group that may read it: a file that
// we made, and the one that a process finds first.
func (l *Log) permit(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	gid, err := groupID(l.o.Group)
	if err != nil {
		return err
	}
	if gid >= 0 && int(st.Sys().(*syscall.Stat_t).Gid) != gid {
		if err := f.Chown(-1, gid); err != nil {
			return fmt.Errorf("give it to group %s: %w", l.o.Group, err)
		}
	}
	if st.Mode().Perm() != fileMode {
		return f.Chmod(fileMode)
	}
	return nil
}

func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if g, err := user.LookupGroup(name); err == nil {
		return strconv.Atoi(g.Gid)
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, nil
	}
	return 0, fmt.Errorf("state.group %q: there is no such group", name)
}

// kept says whether what we wrote to f stays: what compresses a rotated log
// may have read it before our write, and removed it since. So the present log
// must still have its name, and a rotated one a name.
func (l *Log) kept(f *os.File, present bool) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	if !present {
		return own.Sys().(*syscall.Stat_t).Nlink > 0
	}
	st, err := os.Lstat(l.path)
	return err == nil && os.SameFile(st, own)
}

// candidates gives the files to read, in the order in which they were written:
// the recorded one under its rotated name, and the present one, last.
func (l *Log) candidates(present *os.File, p position) ([]candidate, error) {
	dev, inode, size, err := stat(present)
	if err != nil {
		return nil, err
	}
	if dev == p.dev && inode == p.inode {
		c := candidate{file: present}
		if l.startsAt(present, size, p) {
			c.from = p.offset
		}
		return []candidate{c}, nil
	}
	files := []candidate{{file: present}}
	if p.inode == 0 {
		return files, nil
	}
	f, err := l.rotated(p)
	if f == nil && err == nil {
		f, err = l.rotated(p) // a listing may miss a name that is changed meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("rotated log: %w", err)
	}
	if f != nil {
		files = []candidate{{file: f, from: p.offset}, {file: present}}
	}
	return files, nil
}

// startsAt says whether everything up to the recorded offset of f is known.
func (l *Log) startsAt(f *os.File, size int64, p position) bool {
	return size >= p.offset && (p.seq > 0 && l.endsWith(f, p) || l.beginsAt(f, p))
}

// rotated gives the recorded file, when it is in the log's directory; nil when
// it is not, or when its inode is another file's by now.
func (l *Log) rotated(p position) (*os.File, error) {
	dir := filepath.Dir(l.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() {
			continue // gone since, or no log
		}
		if s := st.Sys().(*syscall.Stat_t); uint64(s.Dev) != p.dev || s.Ino != p.inode {
			continue
		}
		f, err := openRotated(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errMoved
		}
		if err != nil {
			return nil, err
		}
		if d, i, size, err := stat(f); err == nil && d == p.dev && i == p.inode && l.startsAt(f, size, p) {
			return f, nil
		}
		f.Close()
		return nil, nil
	}
	return nil, nil
}

// openRotated opens a rotated log, to complete a line in it where that is allowed.
func openRotated(name string) (*os.File, error) {
	f, err := os.OpenFile(name, openFlags, 0)
	if sealed(err) {
		return os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	}
	return f, err
}

// sealed says whether somebody forbade to write to a file: EBADF is what a
// write to one opened for reading gives.
func sealed(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EBADF)
}

func stat(f *os.File) (dev, inode uint64, size int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, 0, 0, err
	}
	s := st.Sys().(*syscall.Stat_t)
	return uint64(s.Dev), s.Ino, st.Size(), nil
}

func datasync(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
