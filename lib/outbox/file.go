package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

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
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		err = l.chmod(d, dirMode)
		d.Close()
		if err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
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

// permit gives a log file the group that may read it, whatever the umask.
// logrotate's own choice for a new file (its `create`) is left alone.
func (l *Log) permit(f *os.File) error { return l.chmod(f, fileMode) }

func (l *Log) chmod(f *os.File, mode fs.FileMode) error {
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
	if st.Mode().Perm() != mode {
		return f.Chmod(mode)
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

// named says whether the log's path still is f.
func (l *Log) named(f *os.File) bool {
	st, err := os.Lstat(l.path)
	if err != nil {
		return false
	}
	own, err := f.Stat()
	return err == nil && os.SameFile(st, own)
}

// candidates gives the files to read, in the order in which they were written:
// the recorded one under its rotated name, those of ours rotated after it (two
// rotations since), the present one.
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
	var files []candidate
	if p.inode != 0 {
		if files, err = l.rotated(present, p); err != nil {
			return nil, err
		}
	}
	return append(files, candidate{file: present}), nil
}

// startsAt says whether everything up to the recorded offset of f is known.
func (l *Log) startsAt(f *os.File, size int64, p position) bool {
	if size < p.offset {
		return false
	}
	return p.seq == 0 || l.endsWith(f, p)
}

// rotated gives the recorded file, when it is in the log's directory under
// another name, and those rotated later.
func (l *Log) rotated(present *os.File, p position) (files []candidate, err error) {
	dir := filepath.Dir(l.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var recorded candidate
	var since time.Time
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() {
			continue // gone since, or not ours
		}
		if s := st.Sys().(*syscall.Stat_t); uint64(s.Dev) != p.dev || s.Ino != p.inode {
			continue
		}
		f, err := openRotated(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("open rotated log: %w", err)
		}
		if d, i, size, err := stat(f); err != nil || d != p.dev || i != p.inode || !l.startsAt(f, size, p) {
			f.Close()
			return nil, nil // the inode is another file's by now
		}
		recorded, since = candidate{file: f, from: p.offset}, st.ModTime()
		break
	}
	if recorded.file == nil {
		return nil, nil
	}
	later, err := l.later(entries, recorded.file, present, since)
	return append([]candidate{recorded}, later...), err
}

// later gives the rotated logs that were written after the recorded one. There
// is one only when we crashed before a record and the log was rotated again
// before we came back.
func (l *Log) later(entries []fs.DirEntry, recorded, present *os.File, since time.Time) (files []candidate, err error) {
	base := filepath.Base(l.path)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	type named struct {
		info fs.FileInfo
		file *os.File
	}
	var out []named
	skip := make([]fs.FileInfo, 0, 2)
	for _, f := range []*os.File{recorded, present} {
		st, err := f.Stat()
		if err != nil {
			return nil, err
		}
		skip = append(skip, st)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() || !strings.HasPrefix(e.Name(), stem) || packed(e.Name()) ||
			st.ModTime().Before(since) || os.SameFile(st, skip[0]) || os.SameFile(st, skip[1]) {
			continue
		}
		f, err := openRotated(filepath.Join(filepath.Dir(l.path), e.Name()))
		if err != nil {
			continue // not readable: at worst a repeat
		}
		out = append(out, named{st, f})
	}
	slices.SortStableFunc(out, func(a, b named) int {
		return cmp.Or(a.info.ModTime().Compare(b.info.ModTime()), cmp.Compare(b.info.Name(), a.info.Name()))
	})
	for _, n := range out {
		files = append(files, candidate{file: n.file})
	}
	return files, nil
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

// packed says whether a name is that of a compressed log.
func packed(name string) bool {
	switch filepath.Ext(name) {
	case ".gz", ".xz", ".zst", ".bz2", ".lz4":
		return true
	}
	return false
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
