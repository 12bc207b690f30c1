package kernel_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ok is the errno of a call that works.
const ok = syscall.Errno(0)

// face is one resctrl: paths are below its root. Errors are syscall.Errno.
type face interface {
	mkdir(path string, perm uint32) error
	rmdir(path string) error
	unlink(path string) error
	symlink(target, path string) error
	create(path string) error // open(2) of a new file
	rename(from, to string) error
	chmod(path string, perm uint32) error
	chown(path string, uid uint32) error
	stat(path string) (info, error)
	list(path string) ([]string, error)
	open(path string, flags int) (file, error)
	group(tid int) (string, error)               // /proc/<tid>/cpu_resctrl_groups
	lock(path string) (unlock func(), err error) // EWOULDBLOCK where it is held
	mount() error
	unmount() error
	pass(d time.Duration) // lets time pass
}

type info struct {
	dir  bool
	perm uint32
	ino  uint64
	size int64
	uid  uint32
}

// file is an open descriptor.
type file interface {
	read(n int) (string, error) // from where it stands
	pread(n int, at int64) (string, error)
	write(data string) error // one write(2)
	close()
}

// tasks starts processes.
type tasks interface {
	start() process
	startAs(uid uint32) process
	startApart() process // in a PID namespace of its own, as its first process
}

// process is one with threads and children, all of which do nothing but what
// they are told.
type process interface {
	pid() int
	thread() int                            // starts one; its TID
	all() []int                             // the TIDs of all its threads
	fork(tid int) int                       // by that thread; the child's PID
	orphan(tid int) int                     // a child's child, whose parent has ended
	adopt()                                 // orphans become its children
	write(tid int, path, data string) error // by that thread
	read(path string) string
	busy()                   // the leader runs from now on
	mkdir(path string) error // by the leader
	dropOverride()           // the leader loses CAP_DAC_OVERRIDE
	end(pid int)             // a child, reaped
	zombie(pid int)          // a child, not reaped
}

// env says what a resctrl can do.
type env struct {
	name       string
	face       string // memory, fuse, kernel
	v61        bool
	monitoring bool
	allocation bool
	words      bool // see errorWords
	evicts     bool // see cacheLines
	domains    int
	cpus       int
	rmids      int
	closids    int
}

// world is one case on one face.
type world struct {
	t *testing.T
	env
	face
	tasks
}

// failure ends a case; the runner decides what it means.
type failure string

func (w *world) failf(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...)))
}

func (w *world) want(err error, want syscall.Errno, what string, args ...any) {
	if want == ok && err != nil || want != ok && err != want {
		w.failf("%s: got %v, want %v", fmt.Sprintf(what, args...), text(err), text(want))
	}
}

func text(err error) string {
	if err == nil || err == ok {
		return "success"
	}
	return fmt.Sprintf("%v", err)
}

func (w *world) mkdir(path string, want ...syscall.Errno) {
	w.want(w.face.mkdir(path, 0o755), first(want), "mkdir %s", path)
}

func (w *world) rmdir(path string, want ...syscall.Errno) {
	w.want(w.face.rmdir(path), first(want), "rmdir %s", path)
}

func (w *world) rename(from, to string, want ...syscall.Errno) {
	w.want(w.face.rename(from, to), first(want), "rename %s to %s", from, to)
}

// clearStatus empties last_cmd_status, which not every call does.
func (w *world) clearStatus() {
	if w.allocation {
		w.write("mode", "shareable\n")
		return
	}
	w.write("tasks", "999999999", syscall.ESRCH)
	w.write("tasks", strconv.Itoa(w.start().pid()))
}

func first(list []syscall.Errno) syscall.Errno {
	if len(list) == 0 {
		return ok
	}
	return list[0]
}

// open opens or fails the case.
func (w *world) open(path string, flags int) file {
	f, err := w.face.open(path, flags)
	w.want(err, ok, "open %s", path)
	return f
}

// write opens a file and writes once.
func (w *world) write(path, data string, want ...syscall.Errno) {
	f, err := w.face.open(path, syscall.O_WRONLY)
	if err == nil {
		err = f.write(data)
		f.close()
	}
	w.want(err, first(want), "write %.60q to %s", data, path)
}

// move writes tasks to a group, one after the other.
func (w *world) move(group string, tids ...int) {
	for _, tid := range tids {
		w.write(in(group, "tasks"), strconv.Itoa(tid))
	}
}

func in(group, name string) string { return strings.TrimPrefix(group+"/"+name, "/") }

func (w *world) read(path string) string {
	f := w.open(path, syscall.O_RDONLY)
	defer f.close()
	var all strings.Builder
	for {
		part, err := f.read(4096)
		w.want(err, ok, "read %s", path)
		if part == "" {
			return all.String()
		}
		all.WriteString(part)
	}
}

func (w *world) wantFile(path, want string) {
	if got := w.read(path); got != want {
		w.failf("%s is %q, want %q", path, got, want)
	}
}

// status wants info/last_cmd_status.
func (w *world) status(want string) { w.wantFile("info/last_cmd_status", want) }

// wantIn wants tasks to be in "<control group>|<monitoring group>", by
// cpu_resctrl_groups and by the tasks files.
func (w *world) wantIn(where string, tids ...int) {
	ctrl, mon, _ := strings.Cut(where, "|")
	for _, tid := range tids {
		got, err := w.face.group(tid)
		w.want(err, ok, "group of task %d", tid)
		res := ctrl
		if ctrl == "" {
			res = "/"
		}
		if want := fmt.Sprintf("res:%s\nmon:%s\n", res, mon); got != want {
			w.failf("task %d is in %q, want %q", tid, got, want)
		}
		if mon != "" {
			w.listed(in(ctrl, "mon_groups/"+mon), true, tid)
		}
		if w.allocation { // without it the kernel lists no task of a control group
			w.listed(ctrl, true, tid)
		}
	}
}

// listed wants tasks in a group's tasks, or not there.
func (w *world) listed(group string, want bool, tids ...int) {
	list := strings.Fields(w.read(in(group, "tasks")))
	for _, tid := range tids {
		if slices.Contains(list, strconv.Itoa(tid)) != want {
			w.failf("task %d in tasks of %q: %t, want %t", tid, group, !want, want)
		}
	}
}

func (w *world) number(path string) uint64 {
	got := w.read(path)
	n, err := strconv.ParseUint(strings.TrimSuffix(got, "\n"), 10, 64)
	if err != nil {
		w.failf("%s is %q, want a number", path, got)
	}
	return n
}

// fill makes monitoring groups until no RMID is left, and waits for those that
// earlier cases left in limbo. It returns their paths.
func (w *world) fill() []string {
	var made []string
	for tries := 0; ; tries++ {
		path := fmt.Sprintf("mon_groups/fill%d", len(made))
		switch err := w.face.mkdir(path, 0o755); {
		case err == nil:
			made = append(made, path)
		case err == syscall.ENOSPC:
			return made
		case err == syscall.EBUSY && tries < 200:
			w.pass(100 * time.Millisecond)
		default:
			w.failf("mkdir %s: %v", path, err)
		}
	}
}
