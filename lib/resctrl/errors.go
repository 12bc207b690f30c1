package resctrl

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reasons of failure, as the rules, the state and the events name them.
const (
	reasonCapacity    = "capacity"    // ENOSPC, EBUSY from mkdir: no RMID is free
	reasonNotMounted  = "not_mounted" // no resctrl at its root
	reasonUnsupported = "unsupported" // no mon_groups: a CPU without monitoring
	reasonPermission  = "permission"  // EACCES, EPERM
	reasonIO          = "io"          // everything else
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrGroupGone says that the group itself was not there (ENOENT) or was
	// removed while it was used (ENODEV), with resctrl mounted.
	ErrGroupGone = errors.New("the group is gone")
	// ErrControlGroupGone says that the control group that the monitoring group
	// was to be made in is not there.
	ErrControlGroupGone = errors.New("the control group is gone")
	// ErrHasTasks says that a group was not moved because living tasks are in it:
	// they would change their control group with it.
	ErrHasTasks = errors.New("the group has tasks")
	// ErrNotOurs says that a path is no monitoring group with our prefix directly
	// below a mon_groups of the root. Nothing was touched.
	ErrNotOurs = errors.New("not a monitoring group of ours")
)

// Error is a failed operation on resctrl.
type Error struct {
	Op     string // what was tried, "create group"
	Path   string // on what
	Reason string // capacity, not_mounted, unsupported, permission or io
	// Kernel has the kernel's own words from info/last_cmd_status; empty where
	// there are none that belong to this very call.
	Kernel string
	Hint   string // what a person can do; may be empty
	Err    error  // unwraps to the syscall.Errno where one was returned
}

// Error says what was tried on what, the errno by name, the kernel's words and
// what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", e.Op, e.Path)
	b.WriteString(errText(e.Err))
	if e.Kernel != "" {
		fmt.Fprintf(&b, " (the kernel says: %s)", e.Kernel)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// errText names the errno beside its text, and leaves out the path that a
// PathError repeats.
func errText(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	text := errno.Error()
	if name := unix.ErrnoName(errno); name != "" {
		text = name + " " + text
	}
	for _, sentinel := range []error{ErrGroupGone, ErrControlGroupGone, ErrHasTasks} {
		if errors.Is(err, sentinel) {
			return sentinel.Error() + ": " + text
		}
	}
	return text
}

// ReasonOf gives the reason of an error of this package: "capacity",
// "not_mounted", "unsupported", "permission" or "io"; "" for nil. An error of
// another origin is judged by its errno.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return reasonOfErrno(err)
}

// reasonOfErrno judges calls other than mkdir, where EBUSY and ENOSPC say
// nothing of RMIDs.
func reasonOfErrno(err error) string {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return reasonPermission
	}
	return reasonIO
}

// gone says whether err is that of a path or descriptor whose group is removed.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

// fail makes the Error of a call other than mkdir.
func fail(op, path string, err error) *Error {
	e := &Error{Op: op, Path: path, Reason: reasonOfErrno(err), Err: err}
	switch {
	case errors.Is(err, unix.EROFS):
		e.Hint = "resctrl is mounted read-only: remount it read-write"
	case e.Reason == reasonPermission:
		e.Hint = "run as root with CAP_DAC_OVERRIDE, since resctrl's own directories have mode 0555"
	}
	return e
}
