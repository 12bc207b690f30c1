package state

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
)

// suffixes of the files that make up one database.
var suffixes = []string{"", "-wal", "-shm"}

// lookupGroup gives the gid of a group name or number; -1 for "".
func lookupGroup(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		if n, nerr := strconv.Atoi(name); nerr == nil && n >= 0 {
			return n, nil
		}
		return 0, &GroupError{fmt.Errorf("state.group %q: %w (make it with groupadd, or change the configuration)", name, err)}
	}
	return strconv.Atoi(g.Gid)
}

// lockOpening keeps two programs from making, migrating or moving aside one
// database at once. The lock is a file of its own that only we can open: a
// reader of the database must not be able to hold us up.
func lockOpening(path string) (unlock func(), err error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state database: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

// makeDir makes the database's directory where it is absent, and lets the
// group into one that is ours. A mode that somebody chose stays.
func makeDir(dir string, gid int) error {
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return permit(dir, dirMode, gid)
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	own := st.Sys().(*syscall.Stat_t)
	if gid >= 0 && st.Mode().Perm() == dirMode && int(own.Uid) == os.Geteuid() {
		return permit(dir, dirMode, gid)
	}
	return nil
}

// makeFile makes an empty database with the right owner and mode: SQLite
// gives them to the -wal and -shm files that it makes, whatever the umask.
// What is there already is put right.
func makeFile(path string, gid int) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, fileMode)
	if err == nil {
		f.Close()
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the state database: %w", err)
	}
	for _, suffix := range suffixes {
		name := path + suffix
		st, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file (%s): move it away", name, st.Mode().Type())
		}
		if int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			continue // root's file, opened by somebody who may: not ours to change
		}
		if err := permit(name, fileMode, gid); err != nil {
			return err
		}
	}
	return nil
}

// permit sets mode and, where gid is not -1, group, where they differ.
func permit(name string, mode fs.FileMode, gid int) error {
	st, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if gid >= 0 && int(st.Sys().(*syscall.Stat_t).Gid) != gid {
		if err := os.Lchown(name, -1, gid); err != nil {
			return fmt.Errorf("give %s to group %d: %w", name, gid, err)
		}
	}
	if st.Mode().Perm() == mode {
		return nil
	}
	if err := os.Chmod(name, mode); err != nil {
		return fmt.Errorf("set the mode of %s: %w", name, err)
	}
	return nil
}

// identity is which files a store has open: SQLite goes on with files that
// somebody deleted or replaced, and what it writes there is lost.
type identity [2]os.FileInfo

func identify(path string) (identity, error) {
	var id identity
	for i, suffix := range suffixes[:2] {
		st, err := os.Lstat(path + suffix)
		if err != nil {
			return id, err
		}
		id[i] = st
	}
	return id, nil
}

// unmoved says whether path and its WAL still are the files of id.
func (id identity) unmoved(path string) error {
	now, err := identify(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	for i := range id {
		if now[i] == nil || !os.SameFile(now[i], id[i]) {
			return fmt.Errorf("%w: %s was deleted or replaced while it was open", ErrCorrupt, path+suffixes[i])
		}
	}
	return nil
}
