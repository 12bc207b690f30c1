package engine_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/state"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

// TestGroupOfAnOutageThatNobodyNames: a pod came while state could not be used,
// and ended before the snapshot after it; no row ever named its group, and
// startup cleanup is off.
func TestGroupOfAnOutageThatNobodyNames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stop()
	r.openFault = fmt.Errorf("no room: %w", state.ErrUnwritable)
	r.start()
	r.outage(func() { r.openFault = nil })
	delete(r.pods, "s2")
	delete(r.cont, "c2")
	r.snapshot(false)
	r.expect()
	r.checkGroups("")
}

// TestRemovalThatStateCouldNotRead: the end of a pod is told while the state
// that knew of it cannot be read, and the state is begun anew.
func TestRemovalThatStateCouldNotRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.runtimeRun("stays", "s4")
	r.event(lifecycle.RunPodSandbox, "s4", "")
	r.checkGroups("", "pod_a", "pod_stays")
	r.stop()
	r.must(os.Remove(filepath.Join(r.dir, "state.db")))
	r.must(os.Remove(filepath.Join(r.dir, "events.jsonl")))
	r.openFault = fmt.Errorf("no room: %w", state.ErrUnwritable)
	r.start()
	r.event(lifecycle.RemovePodSandbox, "s1", "")
	r.event(lifecycle.RemovePodSandbox, "s4", "")
	delete(r.pods, "s1") // s4 was one of several, say
	r.outage(func() { r.openFault = nil })
	r.snapshot(false)
	r.checkGroups("", "pod_during", "pod_stays")
}

// TestAJobThatCannotRecord fails, and does no more: nothing would bring to the
// state what it did.
func TestAJobThatCannotRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.must(r.fs.Remove(t.Context(), root+"/mon_groups/pod_a"))
	r.eng.Patient = false
	db, err := sql.Open("sqlite3", filepath.Join(r.dir, "state.db"))
	r.must(err)
	defer db.Close()
	_, err = db.Exec("DROP TABLE events")
	r.must(err)
	if _, err := r.eng.Sweep(t.Context(), engine.SweepOptions{VanishedAfter: time.Minute}); err == nil {
		t.Error("the sweep says nothing")
	}
	r.must(r.fs.Remove(t.Context(), root+"/mon_groups/pod_a"))
	if _, err := r.eng.Sweep(t.Context(), engine.SweepOptions{VanishedAfter: time.Minute}); err == nil {
		t.Error("the sweep after it says nothing")
	}
	r.checkGroups("")
}

// TestAGroupThatFailsForGood is an error of the pass, with the kernel's words.
func TestAGroupThatFailsForGood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.os.Fail(memfs.OpMkdir, 0, syscall.EIO)
	r.event(lifecycle.RunPodSandbox, "s1", "")
	_, err := r.eng.RetryAllOnce(t.Context())
	if err == nil || !strings.Contains(err.Error(), "pod a has no group (io): ") {
		t.Errorf("the pass says: %v", err)
	}
}
