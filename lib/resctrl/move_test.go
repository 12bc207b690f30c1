package resctrl_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

func moveCases() []suiteCase {
	return []suiteCase{
		{"move to a control group and back", controls, caseMove},
		{"move where one is already", controls, caseMoveOnto},
		{"move of what is gone", controls, caseMoveGone},
		{"move of a group with tasks", controls, caseMoveTasks},
		{"move and no RMID left", controls, caseMoveNoRMID},
		{"move keeps the counters", kernelCtrls, caseMoveCounters},
		{"move of a group with a zombie", kernelCtrls, caseMoveZombie},
		{"move of a group with CPUs", kernelCtrls, caseMoveCPUs},
	}
}

func (w *world) move(from, to string) string {
	w.Helper()
	path := ""
	w.patient(func() (err error) {
		path, err = w.fs.Move(context.Background(), from, to)
		if err != nil && path == "" { // 6.1: removed, and the RMID is in limbo
			from = to
			_, err = w.fs.Create(context.Background(), to)
			path = to
		}
		return err
	})
	return path
}

func caseMove(w *world) {
	w.others(w.group("g1", ""))
	here, there := w.group("", "pod_a"), w.group("g1", "pod_a")
	w.create(here)
	w.guard.reset()
	if got := w.move(here, there); got != there {
		w.Errorf("moved to %q", got)
	}
	want := []string{"rename-to g1/mon_groups/pod_a", "rename mon_groups/pod_a"}
	if w.v61 {
		want = append(want, "rmdir mon_groups/pod_a", "mkdir g1/mon_groups/pod_a")
	}
	if !slices.Equal(w.guard.calls, want) || w.guard.locks != 1 {
		w.Errorf("%d locks, calls %q, want %q under one", w.guard.locks, w.guard.calls, want)
	}
	if w.exists(here) || !w.exists(there) {
		w.Error("it is not where it should be")
	}
	if got := w.move(there, here); got != here || !w.exists(here) || w.exists(there) {
		w.Errorf("back to %q", got)
	}
	if got := w.move(here, here); got != here || !w.exists(here) {
		w.Errorf("to itself: %q", got)
	}
}

func caseMoveOnto(w *world) {
	w.others(w.group("g1", ""))
	here, there := w.group("", "pod_a"), w.group("g1", "pod_a")
	w.create(here)
	w.create(there)
	pid := w.procs.start()
	w.procs.put(pid, "g1|")
	w.procs.put(pid, "g1|pod_a")
	if got := w.move(here, there); got != there {
		w.Errorf("moved to %q", got)
	}
	if w.exists(here) || !w.exists(there) {
		w.Error("the empty one is there still, or the other is gone")
	}
	w.wantIn("g1|pod_a", w.procs.list(pid)...)
}

func caseMoveGone(w *world) {
	ctx := context.Background()
	w.others(w.group("g1", ""))
	here, there := w.group("", "pod_a"), w.group("g1", "pod_a")
	path, err := w.fs.Move(ctx, here, there)
	w.wantReason(err, "io", resctrl.ErrGroupGone)
	if path != "" {
		w.Errorf("path %q", path)
	}
	w.create(there)
	path, err = w.fs.Move(ctx, here, there)
	w.must(err)
	if path != there {
		w.Errorf("path %q", path)
	}
	// The control group it is to go to is gone: it stays.
	path, err = w.fs.Move(ctx, there, w.group("g2", "pod_a"))
	w.wantReason(err, "io", resctrl.ErrControlGroupGone)
	if path != there || !w.exists(there) {
		w.Errorf("path %q, there: %v", path, w.exists(there))
	}
}

func caseMoveTasks(w *world) {
	w.others(w.group("g1", ""))
	here := w.group("", "pod_a")
	w.create(here)
	pid := w.procs.start()
	w.procs.put(pid, "|pod_a")
	path, err := w.fs.Move(context.Background(), here, w.group("g1", "pod_a"))
	w.wantReason(err, "io", resctrl.ErrHasTasks)
	if path != here {
		w.Errorf("path %q", path)
	}
	w.wantIn("|pod_a", w.procs.list(pid)...)
}

// caseMoveNoRMID: a rename needs no RMID; 6.1 uses the one that is freed.
func caseMoveNoRMID(w *world) {
	w.others(w.group("g1", ""))
	w.settleAfter(func() {})
	if _, err := w.fill(); resctrl.ReasonOf(err) != "capacity" {
		w.Fatal(err)
	}
	path, err := w.fs.Move(context.Background(), w.group("", "pod_0"), w.group("g1", "pod_0"))
	w.must(err)
	if path != w.group("g1", "pod_0") {
		w.Errorf("path %q", path)
	}
	if w.kernel || !w.v61 {
		return
	}
	// Somebody takes the RMID between: there is no group any more.
	w.guard.before["mkdir"] = func(string) error { return unix.ENOSPC }
	path, err = w.fs.Move(context.Background(), w.group("", "pod_1"), w.group("g1", "pod_1"))
	w.wantReason(err, "capacity", unix.ENOSPC)
	if path != "" || w.exists(w.group("", "pod_1")) {
		w.Errorf("path %q", path)
	}
}

func caseMoveCounters(w *world) {
	if w.v61 {
		w.Log("6.1 cannot rename: the counters begin anew")
		return
	}
	w.others(w.group("g1", ""))
	here, there := w.group("", "pod_a"), w.group("g1", "pod_a")
	w.create(here)
	counter := func(dir string) int {
		data, err := w.raw.ReadFile(filepath.Join(dir, "mon_data", "mon_L3_00", "mbm_total_bytes"))
		w.must(err)
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		w.must(err)
		return n
	}
	pid := w.procs.start()
	w.procs.put(pid, "|pod_a")
	for counter(here) < 1<<20 {
		w.procs.clone(pid, 1)
	}
	before := counter(here)
	// Until none is left: the language's runtime starts threads when it likes.
	for left := true; left; {
		w.procs.put(pid, "g1|")
		tasks, err := w.raw.ReadFile(filepath.Join(here, "tasks"))
		w.must(err)
		left = strings.TrimSpace(string(tasks)) != ""
	}
	w.move(here, there)
	if after := counter(there); after < before {
		w.Errorf("mbm_total_bytes fell from %d to %d", before, after)
	}
}

func caseMoveZombie(w *world) {
	w.others(w.group("g1", ""))
	here, there := w.group("", "pod_a"), w.group("g1", "pod_a")
	w.create(here)
	pid := w.procs.start()
	zombie := w.procs.zombie(pid)
	w.put([]int{zombie}, "|pod_a")
	tasks, err := os.ReadFile(filepath.Join(here, "tasks"))
	w.must(err)
	if strings.TrimSpace(string(tasks)) != strconv.Itoa(zombie) {
		w.Fatalf("the zombie is not in the group: %q", tasks)
	}
	if got := w.move(here, there); got != there {
		w.Errorf("moved to %q", got)
	}
}

// caseMoveCPUs: the kernel does not rename a group that monitors CPUs.
func caseMoveCPUs(w *world) {
	w.others(w.group("g1", ""))
	here, there := w.group("", "pod_a"), w.group("g1", "pod_a")
	w.create(here)
	w.must(w.raw.WriteFile(filepath.Join(here, "cpus_list"), []byte("1\n")))
	if got := w.move(here, there); got != there || w.exists(here) || !w.exists(there) {
		w.Errorf("moved to %q", got)
	}
}
