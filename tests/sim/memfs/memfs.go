// Package memfs is the in-memory face of the simulated resctrl: it implements
// the system calls that lib/resctrl makes, without a mount and without
// processes, deterministic, with hooks before and after each call.
package memfs

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// f_type of statfs(2).
const (
	resctrlMagic = 0x7655821
	sysfsMagic   = 0x62656572
)

// FS serves a model below one virtual root and cpu_resctrl_groups of its tasks
// below another. It implements resctrl.OS and is safe for concurrent use.
type FS struct {
	Model *sim.Model
	root  string
	proc  string

	mu     sync.Mutex
	log    []Call
	count  map[Op]int
	hooks  []hook
	caller sim.Caller
	locks  map[string]chan struct{}
}

var _ resctrl.OS = (*FS)(nil)

// New returns a face whose resctrl is at root (/sys/fs/resctrl, say) and whose
// proc is at proc. Both are names only: nothing of the machine is touched.
func New(model *sim.Model, root, proc string) *FS {
	return &FS{
		Model: model, root: strings.TrimRight(root, "/"), proc: strings.TrimRight(proc, "/"),
		count: map[Op]int{}, locks: map[string]chan struct{}{},
	}
}

// SetCaller says who makes the calls from now on: the user for the permission
// to move tasks (0 is root, the default), the task for a write of "0".
func (f *FS) SetCaller(c sim.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller = c
}

// below is the part of path below the resctrl root.
func (f *FS) below(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, f.root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", syscall.ENOENT
	}
	return strings.Trim(rest, "/"), nil
}

// parent finds the directory that holds path, and path's last name.
func (f *FS) parent(path string) (sim.Node, string, error) {
	rest, err := f.below(path)
	if err != nil {
		return sim.Node{}, "", err
	}
	dir, name := "", rest
	if i := strings.LastIndexByte(rest, '/'); i >= 0 {
		dir, name = rest[:i], rest[i+1:]
	}
	n, err := f.Model.Walk(dir)
	return n, name, err
}

// FilesystemType implements resctrl.OS.
func (f *FS) FilesystemType(path string) (typ int64, err error) {
	err = f.call(Call{Op: OpStatfs, Path: path}, func() error {
		rest, err := f.below(path)
		if err != nil {
			return err
		}
		if _, err := f.Model.Walk(rest); err != nil {
			return err
		}
		typ = sysfsMagic
		if f.Model.Mounted() {
			typ = resctrlMagic
		}
		return nil
	})
	return typ, err
}

// Mkdir implements resctrl.OS.
func (f *FS) Mkdir(path string) error {
	return f.call(Call{Op: OpMkdir, Path: path}, func() error {
		dir, name, err := f.parent(path)
		if err == nil && name == "" {
			err = syscall.EEXIST
		}
		if err == nil {
			_, err = f.Model.Mkdir(dir, name, 0o755, f.who())
		}
		return err
	})
}

// Rmdir implements resctrl.OS.
func (f *FS) Rmdir(path string) error {
	return f.call(Call{Op: OpRmdir, Path: path}, func() error {
		dir, name, err := f.parent(path)
		if err == nil {
			err = f.Model.Rmdir(dir, name)
		}
		return err
	})
}

// Rename implements resctrl.OS.
func (f *FS) Rename(from, to string) error {
	return f.call(Call{Op: OpRename, Path: from, To: to}, func() error {
		dir, name, err := f.parent(from)
		if err != nil {
			return err
		}
		newDir, newName, err := f.parent(to)
		if err != nil {
			return err
		}
		return f.Model.Rename(dir, name, newDir, newName)
	})
}

// IsDir implements resctrl.OS.
func (f *FS) IsDir(path string) (dir bool, err error) {
	err = f.call(Call{Op: OpIsDir, Path: path}, func() error {
		rest, err := f.below(path)
		if err != nil {
			return nil // outside of what is simulated nothing is there
		}
		n, err := f.Model.Walk(rest)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		dir = err == nil && n.IsDir()
		return err
	})
	return dir, err
}

// ReadDir implements resctrl.OS.
func (f *FS) ReadDir(path string) (list []resctrl.DirEntry, err error) {
	err = f.call(Call{Op: OpReadDir, Path: path}, func() error {
		rest, err := f.below(path)
		if err != nil {
			return err
		}
		n, err := f.Model.Walk(rest)
		if err != nil {
			return err
		}
		entries, err := f.Model.Entries(n)
		for _, e := range entries {
			list = append(list, resctrl.DirEntry{Name: e.Name, Dir: e.Node.IsDir()})
		}
		return err
	})
	return list, err
}

// ReadFile implements resctrl.OS. Below the proc root there is
// <tid>/cpu_resctrl_groups alone.
func (f *FS) ReadFile(path string) (data []byte, err error) {
	err = f.call(Call{Op: OpReadFile, Path: path}, func() error {
		if tid, ok := f.taskOf(path); ok {
			text, err := f.Model.TaskGroup(tid)
			if err != nil {
				return syscall.ENOENT
			}
			data = []byte(text)
			return nil
		}
		rest, err := f.below(path)
		if err == nil {
			data, err = f.Model.ReadFile(rest)
		}
		return err
	})
	return data, err
}

func (f *FS) taskOf(path string) (int, bool) {
	rest, ok := strings.CutPrefix(path, f.proc+"/")
	if !ok {
		return 0, false
	}
	name, ok := strings.CutSuffix(rest, "/cpu_resctrl_groups")
	tid, err := strconv.Atoi(name)
	return tid, ok && err == nil
}

// WriteFile implements resctrl.OS.
func (f *FS) WriteFile(path string, data []byte) error {
	return f.call(Call{Op: OpWriteFile, Path: path, Data: string(data)}, func() error {
		rest, err := f.below(path)
		if err != nil {
			return err
		}
		return f.Model.WriteFile(rest, data, f.who())
	})
}

// Mount implements resctrl.OS.
func (f *FS) Mount(target string) error {
	return f.call(Call{Op: OpMount, Path: target}, func() error {
		if strings.TrimRight(target, "/") != f.root {
			return syscall.ENOENT
		}
		return f.Model.Mount()
	})
}

// Lock implements resctrl.OS: an exclusive lock among those who use this face.
func (f *FS) Lock(ctx context.Context, path string) (func(), error) {
	err := f.call(Call{Op: OpLock, Path: path}, func() error {
		rest, err := f.below(path)
		if err != nil {
			return err
		}
		if _, err := f.Model.Walk(rest); err != nil {
			return err
		}
		select {
		case f.lockOf(path) <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return nil, err
	}
	release := f.Model.Hold()
	var once sync.Once
	return func() {
		once.Do(func() {
			release()
			<-f.lockOf(path)
			_ = f.call(Call{Op: OpUnlock, Path: path}, func() error { return nil })
		})
	}, nil
}

func (f *FS) lockOf(path string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks[path] == nil {
		f.locks[path] = make(chan struct{}, 1)
	}
	return f.locks[path]
}

func (f *FS) who() sim.Caller {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.caller
}
