package attribution_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

// rmids of the CPU that TestExhaustion is for; the root has one of them.
const rmids = 8

// TestExhaustion: more pods than RMIDs is a state, not a surprise.
func TestExhaustion(t *testing.T) {
	if text, err := os.ReadFile(attribution.Root + "/info/L3_MON/num_rmids"); err == nil && strings.TrimSpace(string(text)) != fmt.Sprint(rmids) {
		t.Skipf("needs %d RMIDs", rmids)
	}
	runCases(t, []oneCase{
		{"the pod that has failed longest is served first, by the first pass that finds an RMID", caseOldestFirst},
		{"thirty pods come and go for two minutes: no RMID leaks", caseComeAndGo},
	})
}

// interval is how long the job rests between two runs.
const interval = 500 * time.Millisecond

func caseOldestFirst(w *world) {
	w.StartApplier()
	var served, waiting []*attribution.Pod
	for i := range rmids - 1 {
		served = append(served, w.served(fmt.Sprintf("served%d", i)))
	}
	for _, name := range []string{"zeta", "alpha", "mid"} { // the order is not that of names
		pod, _ := w.RunPod(name)
		pod.Create().Start().Wait()
		waiting = append(waiting, pod)
	}
	w.Settled()
	w.status(rmids, len(waiting))
	if text := w.Ctl("pods"); strings.Count(text, "the kernel says: Out of RMIDs") != len(waiting) {
		w.Errorf("the kernel's own reason is not told: %s", text)
	}
	for i, oldest := range waiting {
		left := len(waiting) - i
		w.pass(oldest, left) // none is free
		freed := time.Now()
		served[i].Remove().Wait()
		passes := 1
		for w.pass(oldest, left) {
			passes++
			if passes > 60 {
				w.Fatalf("pod %s is not served in %d passes after an RMID was freed", oldest.UID, passes)
			}
			time.Sleep(interval)
		}
		w.Logf("an RMID was freed; the pod was served %v later, by pass %d (one every %v; the kernel's limbo is a second or more)",
			time.Since(freed).Round(time.Millisecond), passes, interval)
		w.Settled()
		w.status(rmids, left-1)
	}
}

// served is a new pod in its group: at once, or by the job, for the last RMID may
// still be in limbo from what was there before.
func (w *world) served(name string) *attribution.Pod {
	w.Helper()
	pod, _ := w.RunPod(name)
	c := pod.Create()
	c.Start().Wait()
	for range 60 {
		if in, all := attribution.Share(c.Cgroup, pod.Group); all > 0 && in == all {
			return pod
		}
		time.Sleep(interval)
		w.Retry()
	}
	w.Fatalf("no RMID for pod %s", name)
	return nil
}

// pass runs the job once: it must try the oldest failure, and no other before it.
// It says whether that one still waits. What a pass finds taken, the kernel said
// so in that pass: so a free RMID never waits longer than for the next one.
func (w *world) pass(oldest *attribution.Pod, waiting int) (waits bool) {
	w.Helper()
	job := w.Retry()
	tried := job.Pass.Groups
	if len(tried) == 0 || tried[0].PodUID != oldest.UID {
		w.Fatalf("the pass tried %+v, want %s first", tried, oldest.UID)
	}
	last := tried[len(tried)-1]
	if waits = tried[0].Reason == "capacity"; waits && (len(tried) != 1 || job.Pass.NotTried != waiting-1) {
		w.Fatalf("the first capacity error ends a pass, this one went on: %+v, %d not tried", tried, job.Pass.NotTried)
	}
	if last.Reason == "capacity" && job.Code != 75 || last.Reason == "" && job.Code != 0 {
		w.Fatalf("resctrl-retry ended with %d: %+v", job.Code, tried)
	}
	return waits
}

// status wants resctrlctl to tell how many RMIDs are used, and how many pods wait.
func (w *world) status(used, failed int) {
	w.Helper()
	var s struct {
		Resctrl struct {
			Used  int `json:"rmids_used"`
			RMIDs int
		}
		Pods struct {
			Failed map[string]int
			Why    string `json:"failed_error"`
		}
	}
	text := w.Ctl("status", "--json")
	w.must(json.Unmarshal([]byte(text), &s))
	if s.Resctrl.Used != used || s.Resctrl.RMIDs != rmids || s.Pods.Failed["capacity"] != failed {
		w.Errorf("want %d of %d RMIDs used and %d pods without one: %s", used, rmids, failed, text)
	}
	text = w.Ctl("status")
	if !strings.Contains(text, fmt.Sprintf("%d of %d RMIDs used", used, rmids)) {
		w.Errorf("it does not say %d of %d: %s", used, rmids, text)
	}
	const why = "the kernel says: Out of RMIDs"
	if told := strings.Contains(text, why); told != (failed > 0) || strings.Contains(s.Pods.Why, why) != told {
		w.Errorf("the kernel's own reason is told: %t, with %d pods without a group: %s; %q", told, failed, text, s.Pods.Why)
	}
}

// caseComeAndGo keeps up to thirty pods on seven RMIDs for two minutes.
func caseComeAndGo(w *world) {
	w.StartApplier()
	random := rand.New(rand.NewPCG(1, 2))
	var alive []*attribution.Pod
	leave := func() {
		i := random.IntN(len(alive))
		alive[i].Remove()
		alive = slices.Delete(alive, i, i+1)
	}
	came, most, passes := 0, 0, 0
	for begin := time.Now(); came < 30 || time.Since(begin) < 2*time.Minute; {
		if came < 30 || len(alive) < 5 || len(alive) < 30 && random.IntN(2) > 0 {
			pod, _ := w.RunPod(fmt.Sprintf("come%d", came))
			pod.Create().Start()
			alive = append(alive, pod)
			came++
			most = max(most, len(alive))
		} else {
			leave()
		}
		if random.IntN(6) == 0 {
			w.Retry()
			passes++
		}
	}
	for len(alive) > rmids-1 {
		leave()
	}
	w.Until("all that are left are served", func() error {
		passes++
		if job := w.Retry(); job.Code != 0 {
			return fmt.Errorf("resctrl-retry ended with %d", job.Code)
		}
		if left := w.Value("SELECT count(*) FROM unreconciled"); left != "0" {
			return fmt.Errorf("%s containers are not reconciled", left)
		}
		return nil
	})
	w.Settled()
	if got := w.Value("SELECT count(*) FROM pods WHERE group_state = 'Exists'"); got != fmt.Sprint(len(alive)) {
		w.Errorf("%s of %d pods are served with %d RMIDs", got, len(alive), rmids)
	}
	for len(alive) > 0 {
		leave()
	}
	w.Until("all are removed", func() error {
		if left := w.Value("SELECT count(*) FROM pods"); left != "0" {
			return fmt.Errorf("%s pods are left", left)
		}
		return nil
	})
	w.Settled()
	w.Logf("%d pods came and went, at most %d at once on %d RMIDs, %d passes of the job, %d events", came, most, rmids, passes, len(w.Events()))
	if left := attribution.OurGroups(); len(left) > 0 {
		w.Errorf("groups left: %v", left)
	}
	w.allFree()
}

// allFree takes every RMID but the root's, so that one that leaked is missed.
func (w *world) allFree() {
	w.Helper()
	for i := range rmids {
		path := fmt.Sprintf("%s/mon_groups/free%d", attribution.Root, i)
		err := attribution.Make(path)
		switch {
		case i == rmids-1 && !errors.Is(err, unix.ENOSPC):
			w.Errorf("%d RMIDs, and one more: %v", rmids, err)
		case i < rmids-1 && err != nil:
			w.Fatalf("only %d of %d RMIDs are free again: %v", i, rmids-1, err)
		}
	}
}
