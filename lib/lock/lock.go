// Package lock holds the locks that the programs on a node share, as flock(2) on
// files that stay: the kernel releases them with the process that holds them,
// however it ends.
//
// One writer at a time changes resctrl, state and log. flock is unfair: who
// releases and asks again at once mostly wins against one that waits. So a writer
// first takes writer.turn, and releases it once it holds writer.lock: whoever has
// the turn is next, and a long pass of many holds never starves another program.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// File names and modes. A file that others may open could be locked by them for
// ever, so nobody else may.
const (
	fileTurn   = "writer.turn"
	fileWriter = "writer.lock"

	dirMode  = 0o750
	fileMode = 0o600
)

// ErrRefused says that a lock's path is not a file of ours.
var ErrRefused = errors.New("refused lock file")

// HeldError says that another process holds an instance lock.
type HeldError struct {
	Path string
	PID  int // 0 where it could not be told
}

// Error says who holds it.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another process", e.Path)
	}
	return fmt.Sprintf("%s is held by process %d", e.Path, e.PID)
}

// Locks are the locks of one directory.
type Locks struct{ dir string }

// New gives the locks in dir, which is made (0750) when one is taken.
func New(dir string) *Locks { return &Locks{dir: dir} }

// Writer waits until this caller is the one writer, or ctx ends. unlock may be
// called more than once. Two callers in one process exclude each other as well.
func (l *Locks) Writer(ctx context.Context) (unlock func(), err error) {
	turn, err := l.take(ctx, fileTurn)
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	writer, err := l.take(ctx, fileWriter)
	if err != nil {
		return nil, err
	}
	return closer(writer), nil
}

// Instance takes <name>.lock for the life of a daemon, without waiting, and
// writes the process id into it. *HeldError where another has it. release may be
// called more than once; the file stays.
func (l *Locks) Instance(name string) (release func(), err error) {
	path := filepath.Join(l.dir, name+".lock")
	file, err := l.open(path)
	if err != nil {
		return nil, err
	}
	for {
		err := flock(file, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			defer file.Close()
			return nil, &HeldError{Path: path, PID: holder(file)}
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if current(file, path) {
			break
		}
		file.Close()
		if file, err = l.open(path); err != nil {
			return nil, err
		}
	}
	// Emptied first: a reader sees no number or the right one, never a mixture.
	// The number is for people: where there is no room for it, the lock holds
	// all the same.
	if file.Truncate(0) == nil {
		_, _ = file.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	}
	return closer(file), nil
}

// take waits for one lock.
func (l *Locks) take(ctx context.Context, name string) (*os.File, error) {
	path := filepath.Join(l.dir, name)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("wait for %s: %w", path, err)
		}
		file, err := l.open(path)
		if err != nil {
			return nil, err
		}
		if err := wait(ctx, file); err != nil {
			return nil, fmt.Errorf("wait for %s: %w", path, err)
		}
		if current(file, path) {
			return file, nil
		}
		// Removed, or replaced with its directory, while we waited: this lock
		// excludes nobody any more.
		file.Close()
	}
}

// wait locks the file, or closes it. It waits in the kernel, which wakes it at
// once; polling would add its interval to every start that waits. A wait that
// ctx ended goes on behind us until the lock is free, takes it and lets it go in
// the same moment: flock cannot be called off.
func wait(ctx context.Context, file *os.File) error {
	err := flock(file, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		file.Close()
		return err
	}
	got := make(chan error)
	gaveUp := make(chan struct{})
	go func() {
		err := flock(file, unix.LOCK_EX)
		select {
		case got <- err:
		case <-gaveUp:
			file.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			file.Close()
		}
		return err
	case <-ctx.Done():
		close(gaveUp)
		return ctx.Err()
	}
}

// flock is flock(2), again after a signal.
func flock(file *os.File, how int) error {
	for {
		if err := unix.Flock(int(file.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// open opens a lock's file, making directory and file where they are absent.
func (l *Locks) open(path string) (*os.File, error) {
	flags := os.O_RDWR | os.O_CREATE | unix.O_CLOEXEC | unix.O_NOFOLLOW
	file, err := os.OpenFile(path, flags, fileMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(l.dir, dirMode); err != nil {
			return nil, fmt.Errorf("make the directory of locks: %w", err)
		}
		file, err = os.OpenFile(path, flags, fileMode)
	}
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w %s: a symbolic link", ErrRefused, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := check(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// check refuses a file that others own, and closes ours to others.
func check(file *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return fmt.Errorf("look at lock %s: %w", file.Name(), err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%w %s: not a regular file", ErrRefused, file.Name())
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w %s: it belongs to user %d; remove it", ErrRefused, file.Name(), st.Uid)
	case st.Mode&0o077 != 0:
		if err := file.Chmod(fileMode); err != nil {
			return fmt.Errorf("close lock to others: %w", err)
		}
	}
	return nil
}

// current says whether path still names this file.
func current(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, now)
}

// holder reads the process id in a held lock; 0 where there is none that lives.
func holder(file *os.File) int {
	buf := make([]byte, 32)
	n, _ := file.ReadAt(buf, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return 0
	}
	return pid
}

// closer gives a function that closes a file once: closing it unlocks it.
func closer(file *os.File) func() {
	return sync.OnceFunc(func() { _ = file.Close() })
}
