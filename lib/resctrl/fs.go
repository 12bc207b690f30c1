// Package resctrl is the hand that changes and reads the kernel's resctrl
// filesystem (Documentation/filesystems/resctrl.rst): monitoring groups are made,
// removed and moved, tasks are assigned to them. It decides nothing about pods.
//
// Every change is made under flock(LOCK_EX) on the root, as that document asks,
// with the root opened and closed for it: an open descriptor would block an
// administrator's umount. Only monitoring groups whose name has the prefix are
// ever made, moved or removed.
package resctrl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// Names that resctrl has in its root and that are no control groups.
const (
	dirInfo      = "info"
	dirMonGroups = "mon_groups"
	dirMonData   = "mon_data"

	fileTasks = "tasks"
)

// FilesystemMagic is resctrl's f_type in statfs(2), RDTGROUP_SUPER_MAGIC of the
// kernel's include/uapi/linux/magic.h.
const FilesystemMagic = 0x7655821

// Options say where resctrl is and whose groups are ours.
type Options struct {
	Root   string // the mount point, /sys/fs/resctrl
	Prefix string // of our groups' names; with an empty one every change is refused
	// Simulated: Root is a simulator. Its filesystem type is not checked, and a
	// task's membership never comes from ProcRoot.
	Simulated bool
	ProcRoot  string // /proc
	Logger    *slog.Logger
	OS        OS // nil: the real system calls
}

// FS is a resctrl filesystem. It holds no descriptor and may be used by many
// goroutines.
type FS struct {
	root      string
	prefix    string
	procRoot  string
	simulated bool
	log       *slog.Logger
	os        OS

	lists    atomic.Int32 // what is known of comma lists: listsUnknown, listsTaken, listsRefused
	lockWait time.Duration
	lockHeld atomic.Bool // the last wait for the root's lock was in vain

	noProc atomic.Bool // this kernel has no /proc/<tid>/cpu_resctrl_groups
}

// New gives the resctrl at opts.Root. Nothing is opened or checked.
func New(opts Options) *FS {
	f := &FS{
		root:      filepath.Clean(opts.Root),
		prefix:    opts.Prefix,
		procRoot:  filepath.Clean(opts.ProcRoot),
		simulated: opts.Simulated,
		log:       opts.Logger,
		os:        opts.OS,
		lockWait:  lockWait,
	}
	if opts.ProcRoot == "" {
		f.procRoot = "/proc"
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.os == nil {
		f.os = realOS{}
	}
	return f
}

// group names a group: control group ("" is the root) and monitoring group (""
// is the control group itself).
type group struct{ ctrl, mon string }

// path of the group's directory.
func (f *FS) path(g group) string {
	p := f.root
	if g.ctrl != "" {
		p = filepath.Join(p, g.ctrl)
	}
	if g.mon != "" {
		p = filepath.Join(p, dirMonGroups, g.mon)
	}
	return p
}

// parse takes the path of a monitoring group of ours apart, and refuses every
// other path.
func (f *FS) parse(path string) (group, error) {
	refuse := func(why string) (group, error) {
		return group{}, &Error{Op: "use group", Path: fmt.Sprintf("%q", path), Reason: reasonIO,
			Err: fmt.Errorf("%w: %s", ErrNotOurs, why)}
	}
	rel, below := strings.CutPrefix(path, f.root+"/")
	if !below || filepath.Clean(path) != path || strings.ContainsAny(path, "\x00\n") {
		return refuse("not a clean path below " + f.root)
	}
	var g group
	switch parts := strings.Split(rel, "/"); {
	case len(parts) == 2 && parts[0] == dirMonGroups:
		g.mon = parts[1]
	case len(parts) == 3 && parts[1] == dirMonGroups && !reserved(parts[0]):
		g.ctrl, g.mon = parts[0], parts[2]
	default:
		return refuse("not directly in a mon_groups")
	}
	if !f.ours(g.mon) {
		return refuse(fmt.Sprintf("its name lacks the prefix %q", f.prefix))
	}
	return g, nil
}

// ours says whether a name has the prefix and more.
func (f *FS) ours(name string) bool {
	return f.prefix != "" && len(name) > len(f.prefix) && strings.HasPrefix(name, f.prefix)
}

// reserved says whether a directory of the root is no control group.
func reserved(name string) bool {
	return name == dirInfo || name == dirMonGroups || name == dirMonData
}

// How long a change waits for the lock of the root: any user can hold it, for
// ever. After one wait that was in vain the next ones are short, until the lock
// is to be had again.
const (
	lockWait      = 15 * time.Second
	lockWaitAgain = 100 * time.Millisecond
)

// errLockHeld says that another program holds the lock of the root for too long.
var errLockHeld = errors.New("another program holds the lock (flock) of the resctrl filesystem")

func (f *FS) lock(ctx context.Context) (unlock func(), err error) {
	wait := f.lockWait
	if f.lockHeld.Load() {
		wait = min(wait, lockWaitAgain)
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	unlock, err = f.os.Lock(limited, f.root)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = errLockHeld
	}
	f.lockHeld.Store(errors.Is(err, errLockHeld))
	return unlock, err
}

// locked runs change under the lock of the root, after a look whether the root
// is resctrl still: it may have been unmounted while we waited.
func (f *FS) locked(ctx context.Context, op, path string, change func() error) error {
	unlock, err := f.lock(ctx)
	if errors.Is(err, errLockHeld) {
		return &Error{Op: op, Path: path, Reason: reasonIO, Err: fmt.Errorf("%w: %s", err, f.root),
			Hint: "lslocks shows who holds it: that program should end, or release it"}
	}
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: wait for the lock of %s: %w", op, path, f.root, err)
		}
		if merr := f.checkMount(); merr != nil {
			return merr
		}
		e := fail(op, path, err)
		e.Kernel = "" // no command was given
		return e
	}
	defer unlock()
	if err := f.checkMount(); err != nil {
		return err
	}
	return change()
}
