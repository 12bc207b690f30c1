package attribution_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

// TestAttribution: every task of a container is in its pod's group.
func TestAttribution(t *testing.T) {
	runCases(t, []oneCase{
		{"a container that ran before we came: no task is forgotten", caseBefore},
		{"a start is acknowledged when all that it starts will be in the group", caseStart},
		{"tasks of a fork storm are in the group one sweep after it", caseStorm},
		{"processes that exec brought in are in the group after one sweep", caseExec},
		{"zombies and a process whose first thread ended are no trouble", caseZombies},
		{"a foreign task that got an id again does not stay in the group", caseReuse},
		{"a pod in a control group of others has its group there", caseControlGroup},
		{"containers of one pod in two control groups", caseTwoControlGroups},
	})
}

// caseBefore: 50 processes and more than 200 threads in nested cgroups.
func caseBefore(w *world) {
	pod, _ := w.RunPod("before")
	c := pod.Create()
	cgroups := []string{c.Cgroup}
	for _, name := range []string{"a", "a/b", "d"} {
		cgroups = append(cgroups, filepath.Join(c.Cgroup, name))
		w.must(os.Mkdir(cgroups[len(cgroups)-1], 0o755))
	}
	processes := 1
	for i, dir := range cgroups {
		p := c.Init
		if i > 0 {
			p = w.Start(dir)
			processes++
		}
		p.Do("threads 50")
		processes += len(p.IDs("children 12"))
	}
	c.Start() // nobody listens yet
	all := attribution.TasksBelow(c.Cgroup)
	if processes < 50 || len(all) < 250 {
		w.Fatalf("%d processes, %d tasks", processes, len(all))
	}
	w.StartApplier()
	w.WantIn(pod.Group, c)
	c.WantState("Reconciled")
	if got := w.Value("SELECT tasks FROM containers WHERE container_id = ?", c.ID); got != strconv.Itoa(len(all)) {
		w.Errorf("the state counts %s tasks of %d", got, len(all))
	}
	w.Logf("%d processes, %d tasks in %d cgroups", processes, len(all), len(cgroups))
	w.Settled()
	// What they start from now on is born there.
	c.Init.Do("threads 3")
	c.Init.Do("children 3")
	w.WantIn(pod.Group, c)
}

// caseStart: the first process is in its group before it executes the user's
// program, which says so as its first act.
func caseStart(w *world) {
	w.StartApplier()
	const pods, containers = 4, 10
	var took []time.Duration
	for i := range pods {
		pod, _ := w.RunPod("start" + strconv.Itoa(i))
		for range containers {
			c := pod.Create()
			c.Init.Do("threads 6") // as runc's init has them
			begin := time.Now()
			c.Start().Wait()
			took = append(took, time.Since(begin))
			if got, want := c.Init.Do("exec"), "res:/|mon:pod_"+pod.UID; got != want {
				w.Fatalf("container %s: its first act was in %q, want %q", c.ID, got, want)
			}
			c.Init.Do("threads 2")
			w.WantIn(pod.Group, c)
		}
	}
	slices.Sort(took)
	w.Logf("%d starts, all in their group at their first act; from record to acknowledgement median %v, longest %v (a slow guest)",
		len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	w.Settled()
}

// caseStorm: parents whose children come and go, and processes that start their
// successor and end, so that they are never where they were seen.
func caseStorm(w *world) {
	w.StartApplier()
	pod, _ := w.RunPod("storm")
	c := pod.Create()
	c.Init.Do("threads 20")
	c.Init.Do("children 5")
	c.Init.Do("storm 4 6 2500") // up to 4,000 a second, on a machine that can
	loose := time.Now()
	w.Until("the storm is there", func() error {
		if n := c.Init.Number("count"); n < 200 {
			return fmt.Errorf("%d processes so far", n)
		}
		return nil
	})
	began, count := time.Now(), c.Init.Number("count")
	alone := float64(count) / began.Sub(loose).Seconds()
	ack := c.Start()
	var curve []string
	for sample := 0; sample < 12; sample++ {
		at := time.Since(began)
		in, all := attribution.Share(c.Cgroup, pod.Group)
		curve = append(curve, fmt.Sprintf("%d ms %d of %d", at.Milliseconds(), in, all))
		if sample == 5 {
			ack.Wait()
			curve = append(curve, fmt.Sprintf("acknowledged by %d ms", time.Since(began).Milliseconds()))
		}
	}
	sweeps := 0
	for ; sweeps < 2; sweeps++ { // during the storm
		w.Retry()
		in, all := attribution.Share(c.Cgroup, pod.Group)
		curve = append(curve, fmt.Sprintf("sweep, %d ms %d of %d", time.Since(began).Milliseconds(), in, all))
	}
	took := time.Since(began)
	rate := float64(c.Init.Number("calm")-count) / took.Seconds()
	w.Logf("storm of %.0f short processes a second before the assignment, of %.0f beside it and two sweeps; tasks in the group: %s",
		alone, rate, strings.Join(curve, "; "))
	w.Sweep()
	w.WantIn(pod.Group, c)
	c.WantState("Reconciled")
	if strings.Contains(w.ApplierLog(), "level=ERROR") {
		w.Errorf("an error in the applier's log")
	}
	w.Settled()
}

// caseExec: what kubectl exec and exec probes start is born outside the group,
// and no event tells of it.
func caseExec(w *world) {
	w.StartApplier()
	pod, c := w.Serve("exec")
	w.Settled()
	events := len(w.Events())
	for i := range 10 {
		p := w.Start(c.Cgroup)
		p.Do("threads %d", i)
		p.Do("children %d", i%3)
	}
	in, all := attribution.Share(c.Cgroup, pod.Group)
	w.Sweep()
	w.WantIn(pod.Group, c)
	w.Logf("%d of %d tasks were in the group before the sweep", in, all)
	if in > all-10 {
		w.Errorf("%d of %d were in the group before", in, all)
	}
	if got := w.History(pod.UID, events); got != "" {
		w.Errorf("strays are no event, told was %s", got)
	}
	c.WantState("Reconciled")
	w.Settled()
}

func caseZombies(w *world) {
	w.StartApplier()
	pod, _ := w.RunPod("zombies")
	c := pod.Create()
	c.Init.Do("zombies 5")
	headless := w.Start(c.Cgroup)
	headless.Do("threads 5")
	headless.Do("leave")
	w.Until("its first thread is dead", func() error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", headless.PID))
		if err == nil && !strings.Contains(string(status), "\nState:\tZ") {
			err = fmt.Errorf("it is not: %s", status)
		}
		return err
	})
	c.Start().Wait()
	c.WantState("Reconciled")
	w.WantIn(pod.Group, c)
	w.Settled()
	for _, tid := range headless.IDs("threads 3") {
		if got, want := attribution.GroupOf(tid), attribution.GroupName(pod.Group); got != want {
			w.Errorf("task %d of the process without its first thread is in %q, want %q", tid, got, want)
		}
	}
	before := w.History(pod.UID, 0)
	for range 2 {
		if job := w.Sweep(); len(job.Sweep.Changed) > 0 {
			w.Errorf("the sweep changed %v", job.Sweep.Changed)
		}
	}
	if after := w.History(pod.UID, 0); after != before {
		w.Errorf("told was %s, then %s", before, after)
	}
	w.Settled()
}
