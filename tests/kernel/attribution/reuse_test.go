package attribution_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

const pidMax = "/proc/sys/kernel/pid_max"

// fewIDs lowers pid_max, so that ids are used again soon. The kernel keeps those
// below 300 for its early threads, and every program of this test needs some.
func (w *world) fewIDs() {
	w.Helper()
	was, err := os.ReadFile(pidMax)
	w.must(err)
	w.must(os.WriteFile(pidMax, []byte("650"), 0))
	w.Cleanup(func() { w.must(os.WriteFile(pidMax, was, 0)) })
}

// reuse is a container whose processes come and go outside the group, and
// strangers who get their ids.
type reuse struct {
	*world
	pod     *attribution.Pod
	c       *attribution.Container
	fs      *resctrl.FS
	cgroups *cgroup.FS
	outside string // directory of the strangers' cgroup
}

// caseReuse assigns a container while the ids of its tasks are used again by
// strangers. Between list and write it waits until a stranger has such an id: the
// race is the kernel's own, only the window is wide.
func caseReuse(w *world) {
	w.StartApplier()
	pod, c := w.Serve("reuse")
	w.StopApplier() // the lock of the writer is ours now
	r := &reuse{
		world: w, pod: pod, c: c, cgroups: cgroup.New(attribution.Cgroups, "/proc"),
		fs: resctrl.New(resctrl.Options{Root: attribution.Root, Prefix: "pod_", ProcRoot: "/proc"}),
	}
	w.fewIDs()
	c.Init.Do("storm 12 0 20000")
	r.outside = filepath.Join(filepath.Dir(filepath.Dir(c.Cgroup)), "strangers")
	w.must(os.Mkdir(r.outside, 0o755))
	strangers := w.Start(r.outside)
	strangers.Do("storm 30 0 50000")

	hits, rounds := r.until(1, false)
	w.Logf("without the check after the write: %d strangers stayed in the group, in %d assignments", hits, rounds)
	putBack, rounds := r.until(2, true)
	w.Logf("with it: %d put back and none left, in %d assignments", putBack, rounds)
	strangers.End()

	// What is left: a stranger that is forking in the moment of the write.
	r.window()
	r.applier()
}

// until assigns until a number of strangers slipped in, and gives how many did.
func (r *reuse) until(enough int, check bool) (hits, rounds int) {
	r.Helper()
	for ; hits < enough; rounds++ {
		if rounds == 30 {
			r.Fatalf("in %d assignments only %d strangers got an id of the container's", rounds, hits)
		}
		a := r.assign(check)
		left := r.strangers()
		if !check {
			hits += len(left)
			r.must(attribution.Put(attribution.Root, left...))
			continue
		}
		hits += a.PutBack
		if len(left) > 0 {
			r.Fatalf("strangers %v stayed in the group; %+v", left, a)
		}
	}
	return hits, rounds
}

// assign assigns the container once. Without check, every list after the first
// is the first one: nothing shows that an id is another task's by now.
func (r *reuse) assign(check bool) resctrl.Assignment {
	r.Helper()
	// Somebody takes the container's tasks out of the group: what they start from
	// then on is outside it.
	r.give(attribution.Root, r.c)
	calls := 0
	var first []int
	a, err := r.fs.Assign(context.Background(), r.pod.Group, func() ([]int, error) {
		calls++
		if calls == 2 {
			r.untilReused(first)
		}
		if calls == 2 || calls > 2 && !check {
			return first, nil
		}
		tids, err := r.cgroups.Tasks(r.c.CgroupPath())
		if calls == 1 {
			first = slices.Clone(tids)
		}
		return tids, err
	})
	r.must(err)
	return a
}

// untilReused waits until a stranger has one of these ids. It looks without a
// pause, since a stranger does not live for long.
func (r *reuse) untilReused(ids []int) {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		for _, id := range ids {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id))
			if strings.HasSuffix(strings.TrimSpace(string(text)), "/"+filepath.Base(r.outside)) {
				return
			}
		}
	}
	r.Fatal("no id was used again in a minute")
}

// strangers are the tasks in the group that are outside the container, and are
// so still when they are looked at again: an id may be used again under our eyes.
func (r *reuse) strangers() []int {
	found := attribution.Foreigners(r.pod.Group, r.c.CgroupPath())
	want := attribution.GroupName(r.pod.Group)
	return slices.DeleteFunc(found, func(tid int) bool { return attribution.GroupOf(tid) != want })
}

// window counts strangers that stay because they were forking when they were
// written: their child comes to light with the group of before. They are chains,
// which do nothing else.
func (r *reuse) window() {
	chains := r.Start(r.outside)
	chains.Do("storm 0 30 50000")
	hits, left, rounds := 0, 0, 0
	for ; rounds < 5; rounds++ {
		hits += r.assign(true).PutBack
		if stayed := r.strangers(); len(stayed) > 0 {
			left += len(stayed)
			r.Until("they are out again", func() error {
				stayed := r.strangers()
				r.must(attribution.Put(attribution.Root, stayed...))
				if len(stayed) > 0 {
					return fmt.Errorf("%v", stayed)
				}
				return nil
			})
		}
	}
	r.Logf("the window that is left, strangers that do nothing but fork: %d put back, %d stayed, in %d assignments", hits, left, rounds)
	chains.End()
	attribution.KillCgroup(r.outside) // what a chain has started is no child of its first process
	if left := r.strangers(); len(left) > 0 {
		r.Errorf("strangers %v are in the group, and all have ended", left)
	}
}

// applier lets the real programs sweep in such a node: with no window but their own.
func (r *reuse) applier() {
	strangers := r.Start("")
	strangers.Do("storm 30 0 50000")
	r.StartApplier()
	n, sweeps := 0, 4
	for range sweeps {
		r.give(attribution.Root, r.c)
		n += strings.Count(r.Sweep().Stderr, "slipped in")
	}
	left := r.strangers()
	r.Logf("%d sweeps by the job: %d strangers put back, %d left", sweeps, n, len(left))
	if len(left) > 0 {
		r.Errorf("strangers %v are in the group", left)
	}
	strangers.End()
	r.c.Init.Do("calm")
	r.Sweep()
	r.WantIn(r.pod.Group, r.c)
	if tids, _ := attribution.TasksOf(r.pod.Group); len(tids) == 0 {
		r.Errorf("%s has no tasks", strconv.Quote(r.pod.Group))
	}
	r.Settled()
}
