package resctrl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mounted says whether groups can be made: nil, or an *Error of reason
// not_mounted (no resctrl at the root), unsupported (resctrl without
// mon_groups: a CPU that has no monitoring) or permission.
func (f *FS) Mounted() error {
	if err := f.checkMount(); err != nil {
		return err
	}
	return f.checkMonitoring()
}

// checkMount says whether the root is resctrl.
func (f *FS) checkMount() error {
	const op = "use resctrl at"
	notMounted := func(err error) error {
		return &Error{Op: op, Path: f.root, Reason: reasonNotMounted, Err: err,
			Hint: "mount it: mount -t resctrl resctrl " + f.root}
	}
	if f.simulated {
		ok, err := f.os.IsDir(filepath.Join(f.root, dirInfo))
		if err != nil && !gone(err) {
			return fail(op, f.root, err)
		}
		if !ok {
			return &Error{Op: op, Path: f.root, Reason: reasonNotMounted,
				Err: errors.New("no simulator there"), Hint: "start it"}
		}
		return nil
	}
	switch magic, err := f.os.FilesystemType(f.root); {
	case errors.Is(err, unix.ENOENT):
		// The kernel makes /sys/fs/resctrl where it and the CPU have resctrl.
		return &Error{Op: op, Path: f.root, Reason: reasonNotMounted, Err: err,
			Hint: "there is nothing to mount on: either the CPU or its kernel has no resctrl (resctrlctl doctor says more), or resctrl.root is wrong"}
	case err != nil:
		return fail(op, f.root, err)
	case magic != FilesystemMagic:
		return notMounted(errors.New("not mounted"))
	}
	return nil
}

// checkMonitoring says whether the mounted resctrl has monitoring groups.
func (f *FS) checkMonitoring() error {
	dir := filepath.Join(f.root, dirMonGroups)
	ok, err := f.os.IsDir(dir)
	if err != nil && !gone(err) {
		return fail("look for", dir, err)
	}
	if !ok {
		return unsupported("look for", dir)
	}
	return nil
}

func unsupported(op, path string) *Error {
	return &Error{Op: op, Path: path, Reason: reasonUnsupported,
		Err:  fmt.Errorf("resctrl has no %s: this CPU has no monitoring, or the kernel was told not to use it", dirMonGroups),
		Hint: "look for cqm and cqm_llc among the flags in /proc/cpuinfo, and for rdt= on the kernel's command line"}
}

// Mount mounts resctrl at the root unless it is there already, and says as
// Mounted does whether groups can be made then. It is for a program's start: one
// that unmounts resctrl later has his reason.
func (f *FS) Mount(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := f.Mounted()
	if f.simulated || ReasonOf(err) != reasonNotMounted {
		return err
	}
	if err := f.os.Mount(f.root); err != nil {
		return f.mountError(err)
	}
	f.log.Info("resctrl mounted", "root", f.root)
	return f.Mounted()
}

// mountError says why mount(2) failed and what to do.
func (f *FS) mountError(err error) error {
	e := fail("mount resctrl on", f.root, err)
	switch {
	case errors.Is(err, unix.EBUSY):
		e.Reason = reasonNotMounted
		e.Hint = "it is mounted elsewhere, and the kernel mounts it once only: unmount it there, or set resctrl.root"
		if at := f.mountPoints(); at != "" {
			e.Hint = fmt.Sprintf("it is mounted at %s, and the kernel mounts it once only: umount %s, or set resctrl.root to it", at, at)
		}
	case errors.Is(err, unix.ENOENT):
		e.Reason = reasonNotMounted
		e.Hint = "the kernel makes this directory where CPU and kernel (CONFIG_X86_CPU_RESCTRL) have resctrl"
	case errors.Is(err, unix.ENODEV):
		e.Reason = reasonUnsupported
		e.Hint = "this kernel has no resctrl (CONFIG_X86_CPU_RESCTRL)"
	case e.Reason == reasonPermission:
		e.Hint = "mounting needs root with CAP_SYS_ADMIN; or mount it before: mount -t resctrl resctrl " + f.root
	}
	return e
}

// mountPoints gives the first place where resctrl is mounted, by mountinfo (proc(5)).
func (f *FS) mountPoints() string {
	data, err := f.os.ReadFile(filepath.Join(f.procRoot, "self", "mountinfo"))
	if err != nil {
		return ""
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), mountinfo.FSTypeFilter("resctrl"))
	if err != nil || len(mounts) == 0 {
		return ""
	}
	return mounts[0].Mountpoint
}
