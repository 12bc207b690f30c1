package resctrl

import "context"

// DirEntry is one name of a directory.
type DirEntry struct {
	Name string
	Dir  bool
}

// OS is the handful of system calls that FS makes. The real one is the
// default; the simulator's in-memory face is the other. Errors must unwrap to
// the syscall.Errno of the call that failed.
type OS interface {
	// FilesystemType is statfs(2)'s f_type of path.
	FilesystemType(path string) (int64, error)
	Mkdir(path string) error
	Rmdir(path string) error
	Rename(from, to string) error
	// IsDir says whether path is a directory; an absent one is (false, nil).
	IsDir(path string) (bool, error)
	ReadDir(path string) ([]DirEntry, error)
	ReadFile(path string) ([]byte, error)
	// WriteFile opens an existing file for writing and makes exactly one write(2).
	WriteFile(path string, data []byte) error
	// Lock takes flock(LOCK_EX) on path, opened for it and closed by unlock.
	Lock(ctx context.Context, path string) (unlock func(), err error)
	// Mount mounts resctrl on target, which exists.
	Mount(target string) error
}
