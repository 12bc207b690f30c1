package resctrl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

func kernelCases() []suiteCase {
	return []suiteCase{
		{"nested cgroups", kernelOnly, caseNested},
		{"thread pool that grows", kernelOnly, caseGrowingPool},
		{"zombies", kernelOnly, caseZombies},
		{"mounted elsewhere", kernelOnly, caseMountedElsewhere},
		{"an administrator unmounts", kernelOnly, caseUmount},
	}
}

const kernelCgroups = "/sys/fs/cgroup"

// cgroupDir makes a cgroup for a case.
func (w *world) cgroupDir(path string) string {
	w.Helper()
	dir := filepath.Join(kernelCgroups, path)
	w.must(os.Mkdir(dir, 0o755))
	w.Cleanup(func() {
		for range 200 { // until its processes are gone
			if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
				return
			}
			w.tick()
		}
	})
	return dir
}

func (w *world) enter(dir string, pid int) {
	w.Helper()
	w.must(os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0))
}

// caseNested: 50 processes and more than 200 threads in nested cgroups, running
// before the group is there.
func caseNested(w *world) {
	dirs := []string{w.cgroupDir("c")}
	for _, p := range []string{"c/a", "c/a/b", "c/d"} {
		dirs = append(dirs, w.cgroupDir(p))
	}
	var pids []int
	for i := range 4 {
		pid := w.procs.start()
		w.enter(dirs[i], pid)
		w.procs.clone(pid, 50)
		pids = append(pids, pid)
		for range 12 {
			pids = append(pids, w.procs.fork(pid))
		}
	}
	tree := cgroup.New(kernelCgroups, "/proc")
	path := w.group("", "pod_a")
	w.create(path)
	a := w.assign(path, func() ([]int, error) { return tree.Tasks("/c") })
	all := w.procs.list(pids...)
	// Go's runtime may have started a thread in a helper since.
	if a.Tasks != a.InGroup || a.InGroup > len(all) || a.InGroup < 250 || len(pids) < 50 {
		w.Errorf("%+v; %d tasks of %d processes", a, len(all), len(pids))
	}
	w.wantIn("|pod_a", all...)
}

// caseGrowingPool: a process that starts threads without a pause while it is
// assigned.
func caseGrowingPool(w *world) {
	pid := w.procs.start()
	r := w.procs.(*real)
	path := w.group("", "pod_a")
	w.create(path)
	const n = 600
	before := len(r.list(pid))
	r.say(pid, fmt.Sprintf("grow %d", n))
	for len(r.list(pid)) < before+20 {
		continue // it has begun
	}
	at := len(r.list(pid))
	a := w.assign(path, w.tasks(pid))
	for len(r.list(pid)) < before+n {
		w.tick()
	}
	all := r.list(pid)
	late := 0
	for _, tid := range all {
		if w.where(tid) != "|pod_a" {
			late++
		}
	}
	w.Logf("assigned from %d threads on, %+v; %d of %d threads outside", at, a, late, len(all))
	if a.Unstable || a.Tasks != a.InGroup {
		w.Errorf("%+v", a)
	}
	// A thread that was being cloned in the last pass may be outside: the next
	// sweep has it.
	w.assign(path, w.tasks(pid))
	w.wantIn("|pod_a", all...)
}

func caseZombies(w *world) {
	path := w.group("", "pod_a")
	w.create(path)
	pid := w.procs.start()
	zombie := w.procs.zombie(pid)
	a := w.assign(path, func() ([]int, error) { return append(w.procs.list(pid), zombie), nil })
	if a.Tasks != a.InGroup || a.Unstable {
		w.Errorf("%+v", a)
	}
}

func caseMountedElsewhere(w *world) {
	dir := w.TempDir()
	w.mounted(false)
	w.must(unix.Mount("resctrl", dir, "resctrl", 0, ""))
	err := w.fs.Mount(context.Background())
	w.must(unix.Unmount(dir, 0))
	w.wantReason(err, "not_mounted", unix.EBUSY)
	if !strings.Contains(err.Error(), "umount "+dir) {
		w.Errorf("it does not say where: %v", err)
	}
	w.must(w.fs.Mount(context.Background()))

	nowhere := resctrl.New(resctrl.Options{Root: dir + "/none", Prefix: prefix, ProcRoot: "/proc"})
	w.wantReason(nowhere.Mounted(), "not_mounted", unix.ENOENT)
	_, err = nowhere.Create(context.Background(), dir+"/none/mon_groups/pod_a")
	w.wantReason(err, "not_mounted", unix.ENOENT)
	w.wantReason(nowhere.Mount(context.Background()), "not_mounted", unix.ENOENT)
	w.must(os.Mkdir(dir+"/plain", 0o755))
	plain := resctrl.New(resctrl.Options{Root: dir + "/plain", Prefix: prefix, ProcRoot: "/proc"})
	_, err = plain.Create(context.Background(), dir+"/plain/mon_groups/pod_a")
	w.wantReason(err, "not_mounted", nil)
}

// caseUmount: nothing of ours blocks it after any call.
func caseUmount(w *world) {
	ctx := context.Background()
	path := w.group("", "pod_a")
	pid := w.procs.start()
	for range 5 {
		w.create(path)
		w.assign(path, w.tasks(pid))
		_, err := w.fs.Usage()
		w.must(err)
		_, err = w.fs.Locate("pod_a")
		w.must(err)
		w.must(unix.Unmount(kernelRoot, 0))
		_, err = w.fs.Create(ctx, path)
		w.wantReason(err, "not_mounted", nil)
		w.must(w.fs.Mount(ctx))
	}
}
