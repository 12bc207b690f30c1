package resctrl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

const prefix = "pod_"

// world is a node on which a case runs: the simulator, or the kernel.
type world struct {
	*testing.T
	root  string
	raw   resctrl.OS // for what others on the node do
	guard *guard     // what fs calls
	fs    *resctrl.FS
	procs processes

	kernel    bool // the real one
	v61       bool // it behaves as Linux 6.1
	simulated bool // Options.Simulated
	rmids     int  // of the CPU

	tick    func()         // lets a little time pass for limbo
	mounted func(bool)     // mounts or unmounts
	where   func(int) text // a task's group by the kernel's own word
}

// text is "control group|monitoring group"; "|" is the default group.
type text = string

// processes make real or scripted tasks.
type processes interface {
	start() int                 // a process outside of every group
	clone(pid, n int) []int     // n threads in a process
	fork(pid int) int           // a child of a process
	zombie(pid int) (child int) // a child that ended and is not reaped
	end(pid int)                // kills a process of start and reaps it
	replace(pid int)            // ends a process of start; a stranger gets its id
	list(pids ...int) []int     // all threads of these processes
	put(pid int, group text)    // somebody puts all its threads into a group
}

// group gives the path of a group: mon below ctrl ("" is the root).
func (w *world) group(ctrl, mon string) string {
	p := filepath.Join(w.root, ctrl)
	if mon != "" {
		p = filepath.Join(p, "mon_groups", mon)
	}
	return p
}

// must ends the case on an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create makes a group of ours, waiting for RMIDs that are in limbo.
func (w *world) create(path string) {
	w.Helper()
	w.patient(func() error {
		_, err := w.fs.Create(context.Background(), path)
		return err
	})
}

// others makes a group as another tool does.
func (w *world) others(path string) {
	w.Helper()
	w.patient(func() error { return w.raw.Mkdir(path) })
}

// patient repeats what fails while RMIDs are in limbo.
func (w *world) patient(do func() error) {
	w.Helper()
	var err error
	for range 200 {
		if err = do(); err == nil {
			return
		}
		if !errors.Is(err, errBusy) && !errors.Is(err, errNoSpace) {
			break
		}
		w.tick()
	}
	w.Fatal(err)
}

// settle waits until every RMID that no group holds can be had.
func (w *world) settle() {
	w.Helper()
	var made []string
	for i := range w.rmids - 1 {
		path := w.group("", fmt.Sprintf("settle%d", i))
		w.others(path)
		made = append(made, path)
	}
	if !w.v61 {
		// Removing them sends them to limbo again; the last is waited for.
		defer func() {
			for range 30 {
				w.tick()
			}
		}()
	}
	for _, path := range made {
		w.must(w.raw.Rmdir(path))
	}
}

// tasks lists all threads of processes, as a container's cgroups would.
func (w *world) tasks(pids ...int) func() ([]int, error) {
	return func() ([]int, error) { return w.procs.list(pids...), nil }
}

// assign assigns and expects no error.
func (w *world) assign(path string, tasks func() ([]int, error)) resctrl.Assignment {
	w.Helper()
	a, err := w.fs.Assign(context.Background(), path, tasks)
	if err != nil {
		w.Fatalf("assign: %v (%+v)", err, a)
	}
	return a
}

// wantIn expects every task in a group.
func (w *world) wantIn(group text, tids ...int) {
	w.Helper()
	if len(tids) == 0 {
		w.Fatal("no task to look at")
	}
	for _, tid := range tids {
		if got := w.where(tid); got != group {
			w.Errorf("task %d is in %q, want %q", tid, got, group)
		}
	}
}

// wantReason expects an error of a reason, and one errno or sentinel in it.
func (w *world) wantReason(err error, reason string, is error) {
	w.Helper()
	if got := resctrl.ReasonOf(err); got != reason {
		w.Fatalf("reason %q, want %q: %v", got, reason, err)
	}
	if is != nil && !errors.Is(err, is) {
		w.Fatalf("%v is not %v", err, is)
	}
}

// exists says whether a directory is there.
func (w *world) exists(path string) bool {
	w.Helper()
	ok, err := w.raw.IsDir(path)
	w.must(err)
	return ok
}

// status is the kernel's last_cmd_status.
func (w *world) status() string {
	data, _ := w.raw.ReadFile(filepath.Join(w.root, "info", "last_cmd_status"))
	return strings.TrimSpace(string(data))
}

// guard is the OS as FS uses it. It fails the test when something is changed
// without the lock, or when something is made, moved or removed that is not ours.
type guard struct {
	resctrl.OS
	t    *testing.T
	root string

	mu     sync.Mutex
	held   bool
	locks  int
	writes []string // of tasks, in order
	calls  []string // all others that change something
	before map[string]func(path string) error

	noProc bool // play a kernel without cpu_resctrl_groups
}

func newGuard(t *testing.T, os resctrl.OS, root string) *guard {
	return &guard{OS: os, t: t, root: root, before: map[string]func(string) error{}}
}

func (g *guard) change(call, path string) error {
	g.mu.Lock()
	if !g.held {
		g.t.Errorf("%s %s without the lock", call, path)
	}
	name := filepath.Base(path)
	if !strings.HasPrefix(name, prefix) && call != "write" {
		g.t.Errorf("%s %s: not ours", call, path)
	}
	if call != "write" {
		g.calls = append(g.calls, call+" "+strings.TrimPrefix(path, g.root+"/"))
	}
	hook := g.before[call]
	g.mu.Unlock()
	if hook != nil {
		return hook(path)
	}
	return nil
}

func (g *guard) Mkdir(path string) error {
	if err := g.change("mkdir", path); err != nil {
		return err
	}
	return g.OS.Mkdir(path)
}

func (g *guard) Rmdir(path string) error {
	if err := g.change("rmdir", path); err != nil {
		return err
	}
	return g.OS.Rmdir(path)
}

func (g *guard) Rename(from, to string) error {
	_ = g.change("rename-to", to)
	if err := g.change("rename", from); err != nil {
		return err
	}
	return g.OS.Rename(from, to)
}

func (g *guard) WriteFile(path string, data []byte) error {
	if filepath.Base(path) != "tasks" {
		g.t.Errorf("write to %s", path)
	}
	if len(data) > 4096 {
		g.t.Errorf("a write of %d bytes", len(data))
	}
	if err := g.change("write", path); err != nil {
		return err
	}
	g.mu.Lock()
	g.writes = append(g.writes, string(data))
	g.mu.Unlock()
	return g.OS.WriteFile(path, data)
}

func (g *guard) ReadFile(path string) ([]byte, error) {
	if g.noProc && filepath.Base(path) == "cpu_resctrl_groups" {
		return nil, unix.ENOENT
	}
	return g.OS.ReadFile(path)
}

func (g *guard) Lock(ctx context.Context, path string) (func(), error) {
	unlock, err := g.OS.Lock(ctx, path)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if path != g.root {
		g.t.Errorf("locked %s", path)
	}
	g.held = true
	g.locks++
	return func() {
		g.mu.Lock()
		g.held = false
		g.mu.Unlock()
		unlock()
	}, nil
}

// reset forgets what was called.
func (g *guard) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.locks, g.writes, g.calls = 0, nil, nil
	clear(g.before)
}

// end looks whether anything is held still.
func (g *guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held {
		g.t.Error("the lock is held still")
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, g.root) {
			g.t.Errorf("descriptor %s is open on %s: it blocks umount", fd.Name(), to)
		}
	}
}
