package attribution_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

// controlGroups makes control groups of another tool.
func (w *world) controlGroups(names ...string) {
	w.Helper()
	for _, name := range names {
		w.must(attribution.Make(filepath.Join(attribution.Root, name)))
	}
}

// give writes all tasks of the containers to a group, as another tool does.
func (w *world) give(group string, containers ...*attribution.Container) {
	w.Helper()
	for _, c := range containers {
		w.must(attribution.Put(group, attribution.TasksBelow(c.Cgroup)...))
	}
}

func groupIn(ctrl, uid string) string {
	return filepath.Join(attribution.Root, ctrl, "mon_groups", "pod_"+uid)
}

// traffic is a group's mbm_total_bytes.
func (w *world) traffic(group string) uint64 {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(group, "mon_data", "mon_L3_00", "mbm_total_bytes"))
	w.must(err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	w.must(err)
	return n
}

// caseControlGroup: rename keeps the RMID, so that the counters go on. Linux 6.1
// cannot rename a group: there they start from 0.
func caseControlGroup(w *world) {
	w.controlGroups("g1", "g2")
	w.StartApplier()
	pod, _ := w.RunPod("ctrl")
	c := pod.Create()
	c.Init.Do("busy 1")
	w.give(attribution.Root+"/g1", c)
	c.Start().Wait()
	at := groupIn("g1", pod.UID)
	w.WantIn(at, c)
	c.WantState("Reconciled")
	w.wantGone(pod.Group)

	w.Until("it has some traffic", func() error {
		if n := w.traffic(at); n < 2<<30 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	for _, next := range []string{"g2", "", "g1"} {
		before, ino := w.traffic(at), inode(at)
		w.give(filepath.Join(attribution.Root, next), c)
		w.Sweep()
		from := at
		at = groupIn(next, pod.UID)
		w.WantIn(at, c)
		w.wantGone(from)
		after := w.traffic(at)
		if same := inode(at) == ino; same == kernel61() {
			w.Errorf("%s is the group that %s was: %t", at, from, same)
		}
		if !kernel61() && after < before {
			w.Errorf("mbm_total_bytes was %d in %s, and is %d in %s", before, from, after, at)
		}
		w.Logf("%s to %s: mbm_total_bytes %d, then %d", from, at, before, after)
		w.Settled()
		events := w.Events()
		if last := events[len(events)-1]; last.GroupPath != at || last.String() != "Exists 1/1" {
			w.Errorf("told last was %s", last.Line)
		}
	}
}

func (w *world) wantGone(group string) {
	w.Helper()
	if inode(group) != 0 {
		w.Errorf("%s is there", group)
	}
}

// inode of a path; 0 where it is not there.
func inode(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Ino
}

// caseTwoControlGroups: the group is where the first task is, and follows when
// all are elsewhere.
func caseTwoControlGroups(w *world) {
	w.controlGroups("g1")
	w.StartApplier()
	pod, _ := w.RunPod("two")
	first, second := pod.Create(), pod.Create()
	first.Start().Wait()
	w.give(attribution.Root+"/g1", second)
	second.Start().Wait()
	w.WantIn(pod.Group, first)
	first.WantState("Reconciled")
	second.WantState("Partial other_control_group")
	if in, _ := attribution.Share(second.Cgroup, attribution.Root+"/g1"); in == 0 {
		w.Errorf("the other tool's choice for the second container was changed")
	}
	w.give(attribution.Root+"/g1", first)
	w.Sweep()
	w.WantIn(groupIn("g1", pod.UID), first, second)
	first.WantState("Reconciled")
	second.WantState("Reconciled")
	w.Settled()
	if got, want := w.History(pod.UID, 0), "Exists 0/0, Exists 1/0, Exists 2/0, Exists 2/1, Exists 2/2"; got != want {
		w.Logf("told was %s", got)
	}
}
