package resctrl

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// realOS makes the system calls.
type realOS struct{}

var _ OS = realOS{}

// The lock of the root is asked for again and again: a flock that waits would
// hold a descriptor open, and with it block an administrator's umount, for as
// long as another tool has the lock. Our own programs never compete for it, since
// they hold writer.lock; others hold it for moments.
const (
	lockPollMin = 100 * time.Microsecond
	lockPollMax = 5 * time.Millisecond
)

// pathError says which call failed on which path; nil for nil.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// retry makes a call again that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (realOS) FilesystemType(path string) (int64, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Statfs(path, &st) })
	return int64(st.Type), pathError("statfs", path, err)
}

func (realOS) Mkdir(path string) error {
	return pathError("mkdir", path, retry(func() error { return unix.Mkdir(path, 0o755) }))
}

// Rmdir never removes a file, as os.Remove would.
func (realOS) Rmdir(path string) error {
	return pathError("rmdir", path, retry(func() error { return unix.Rmdir(path) }))
}

func (realOS) Rename(from, to string) error {
	return pathError("rename", from, retry(func() error { return unix.Rename(from, to) }))
}

func (realOS) IsDir(path string) (bool, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return st.IsDir(), nil
}

func (realOS) ReadDir(path string) ([]DirEntry, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	out := make([]DirEntry, 0, len(entries))
	for _, e := range entries {
		out = append(out, DirEntry{Name: e.Name(), Dir: e.IsDir()})
	}
	return out, nil
}

// open is open(2) without the runtime's poller, whose epoll calls would cost more
// than the write itself.
func open(path string, flags int) (int, error) {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, pathError("open", path, err)
}

func (realOS) ReadFile(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 4096)
	for {
		if len(data) == cap(data) {
			data = append(data, make([]byte, cap(data))...)[:len(data)]
		}
		var n int
		err := retry(func() (err error) {
			n, err = unix.Read(fd, data[len(data):cap(data)])
			return err
		})
		if err != nil {
			return nil, pathError("read", path, err)
		}
		if n == 0 {
			return data, nil
		}
		data = data[:len(data)+n]
	}
}

func (realOS) WriteFile(path string, data []byte) error {
	fd, err := open(path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, data)
	if err == nil && n != len(data) {
		err = unix.EIO // the kernel takes all or says why not
	}
	return pathError("write", path, err)
}

func (realOS) Lock(ctx context.Context, path string) (func(), error) {
	wait := lockPollMin
	for {
		fd, err := open(path, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		err = retry(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		if err == nil {
			return func() { _ = unix.Close(fd) }, nil
		}
		_ = unix.Close(fd)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, pathError("flock", path, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, lockPollMax)
	}
}

func (realOS) Mount(target string) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RELATIME)
	return pathError("mount", target, unix.Mount("resctrl", target, "resctrl", flags, ""))
}
