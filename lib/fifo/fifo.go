// Package fifo is the hand that holds the named pipes between nri-watcher and
// resctrl-applier: who makes them, which ones are refused, and whole lines in
// and out of them, with every wait bounded by a context.
package fifo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrRefused is what every RefusedError is.
	ErrRefused = errors.New("refused")
	// ErrNoReader says that nobody has the FIFO open for reading (ENXIO at
	// open, EPIPE at write; fifo(7), pipe(7)).
	ErrNoReader = errors.New("no reader has the pipe open")
	// ErrLineTooLong says that a line is longer than lifecycle.MaxLine.
	ErrLineTooLong = errors.New("line is too long")
)

// RefusedError says that what stands at a path is not a FIFO of ours alone:
// whatever came out of it would be done to the kernel by root.
type RefusedError struct {
	Path string
	Why  string // what is wrong
	Do   string // what a person can do about it
}

// Error returns one line with path, reason and remedy.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refuse %s: it %s; %s", e.Path, e.Why, e.Do)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// The modes of what whoever comes first makes.
const (
	dirMode  = 0o750
	fifoMode = 0o600
)

// Ensure makes the directory dir (mode 0750) and the FIFO at path (mode 0600)
// where they are missing; that another process made them first is success. It
// returns a *RefusedError when what stands at path is no FIFO of ours.
func Ensure(dir, path string) error {
	if err := ensureDir(dir); err != nil {
		return err
	}
	if err := unix.Mkfifo(path, fifoMode); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make pipe %s: %w", path, err)
	}
	return checkPath(path)
}

func ensureDir(dir string) error {
	_, err := os.Stat(dir)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make directory of pipes: %w", err)
	}
	// MkdirAll, as the path is a person's choice; the umask may take bits.
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make directory of pipes: %w", err)
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return fmt.Errorf("make directory of pipes: %w", err)
	}
	return nil
}

// checkPath checks what stands at path, before it is opened: opening a device
// may already do something.
func checkPath(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at pipe %s: %w", path, err)
	}
	return check(path, &st)
}

func check(path string, st *unix.Stat_t) error {
	const remake = "remove it, and it will be made anew"
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFIFO:
		return &RefusedError{Path: path, Why: "is a " + kindOf(st.Mode) + ", not a pipe (FIFO)", Do: remake + ", or set another path"}
	case int(st.Uid) != os.Geteuid():
		return &RefusedError{
			Path: path, Why: fmt.Sprintf("belongs to user %d, not to %d", st.Uid, os.Geteuid()),
			Do: remake + ", and run all programs as the same user",
		}
	case st.Mode&0o077 != 0:
		return &RefusedError{
			Path: path, Why: fmt.Sprintf("can be used by others than its owner (mode %04o)", st.Mode&0o7777),
			Do: "chmod 0600 it, or " + remake,
		}
	}
	return nil
}

func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "regular file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// end is one open end of a FIFO.
type end struct {
	path     string
	file     *os.File
	closed   atomic.Bool
	dev, ino uint64
}

// open opens path with flags and O_NONBLOCK, never through a symbolic link,
// and checks both what stands there and what was really opened.
func open(path string, flags int) (*end, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	return openChecked(path, flags)
}

// openChecked is open for a path that was a FIFO of ours a moment ago.
func openChecked(path string, flags int) (*end, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	switch {
	case errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("open pipe %s: %w", path, ErrNoReader)
	case errors.Is(err, unix.ELOOP):
		return nil, &RefusedError{Path: path, Why: "is a symbolic link, not a pipe (FIFO)", Do: "remove it, and it will be made anew"}
	case err != nil:
		return nil, fmt.Errorf("open pipe %s: %w", path, err)
	}
	// The descriptor is non-blocking, so the runtime's poller takes it: then
	// deadlines work and Close wakes whoever waits.
	file := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = file.Close() // the descriptor was never used
		return nil, fmt.Errorf("look at open pipe %s: %w", path, err)
	}
	if err := check(path, &st); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &end{path: path, file: file, dev: uint64(st.Dev), ino: st.Ino}, nil
}

// Changed tells whether the path no longer leads to the pipe that is open: it
// was removed or replaced. The open pipe keeps its inode, so the number cannot
// have been given to another.
func (e *end) Changed() bool {
	var st unix.Stat_t
	if err := unix.Lstat(e.path, &st); err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	}
	return uint64(st.Dev) != e.dev || st.Ino != e.ino
}

// Close closes the pipe and wakes whoever waits on it, with os.ErrClosed.
// Any goroutine may call it.
func (e *end) Close() error {
	e.closed.Store(true)
	if err := e.file.Close(); err != nil {
		return fmt.Errorf("close pipe %s: %w", e.path, err)
	}
	return nil
}

// ended says why a wait on the pipe ended with err: os.ErrClosed, ctx's own
// error, or err. (A RawConn has an error of its own for a closed file.)
func (e *end) ended(ctx context.Context, err error) error {
	switch {
	case e.closed.Load():
		return fmt.Errorf("pipe %s: %w", e.path, os.ErrClosed)
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// until makes the end of ctx end the waits that the deadline rules, and
// returns what undoes that.
func until(ctx context.Context, setDeadline func(time.Time) error) (release func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = setDeadline(time.Unix(1, 0)) // fails only when closed, and then nobody waits
	})
	return func() {
		if !stop() {
			<-ended
		}
		_ = setDeadline(time.Time{})
	}
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
