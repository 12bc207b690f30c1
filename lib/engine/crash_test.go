package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/state"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestKilledBetweenMkdirAndCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.runtimeStart("s1", "c1", 2)
	r.os.After(memfs.OpMkdir, 1, func(memfs.Call) { panic("killed") })
	r.crash(func() { r.event(lifecycle.RunPodSandbox, "s1", "") })
	// The row that names the group was committed before.
	p, err := r.eng.Store.Pod(t.Context(), "a")
	if err != nil || p == nil || p.Pod.GroupPath != root+"/mon_groups/pod_a" {
		t.Fatalf("the state does not name the group: %+v, %v", p, err)
	}
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (1,1)")
	r.checkGroups("", "pod_a")
}

func TestKilledBetweenAssignAndCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.os.After(memfs.OpWriteFile, 1, func(memfs.Call) { panic("killed") })
	r.runtimeStart("s1", "c1", 2)
	r.crash(func() { r.event(lifecycle.StartContainer, "s1", "c1") })
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (0,0)", "a Exists (1,1)")
}

func TestKilledBetweenRmdirAndCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.os.After(memfs.OpRmdir, 1, func(memfs.Call) { panic("killed") })
	r.crash(func() { r.event(lifecycle.RemovePodSandbox, "s1", "") })
	delete(r.pods, "s1")
	r.snapshot(true)
	r.expect("a Exists (0,0)", "Removed a")
}

func TestKilledBetweenRenameAndCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.os.Mkdir(root + "/gold"))
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	pid := r.runtimeStart("s1", "c1", 1)
	r.must(r.os.WriteFile(root+"/gold/tasks", []byte(itoa(pid))))
	r.os.After(memfs.OpRename, 1, func(memfs.Call) { panic("killed") })
	r.crash(func() { r.event(lifecycle.StartContainer, "s1", "c1") })
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (0,0)", "a Exists (1,1)")
	r.checkGroups("gold", "pod_a")
	r.checkGroups("")
}

func TestKilledBetweenCommitAndAppend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.export = func() error { panic("killed") }
	r.crash(func() { r.event(lifecycle.RunPodSandbox, "s1", "") })
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (0,0)") // the committed one, then the snapshot's
}

func TestEventLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.export = func() error { return errors.New("no room") }
	if err := r.eng.Hold(t.Context(), r.applying(lifecycle.RunPodSandbox, "s1")); err == nil || r.eng.Exported() {
		t.Errorf("a failed export is not told: %v", err)
	}
	r.checkGroups("", "pod_a")
	r.export = nil
	r.hold(nothing)
	r.expect("a Exists (0,0)")
}

func TestStateThatIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *sim.Config) { c.NumRMIDs = 3 }) // for the root, gold and the pod
	r.must(r.os.Mkdir(root + "/gold"))
	r.runtimeRun("a", "s1")
	pid := r.runtimeStart("s1", "c1", 1)
	r.must(r.os.WriteFile(root+"/gold/tasks", []byte(itoa(pid))))
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (1,1)")
	rmid, err := r.model.RMID("gold/mon_groups/pod_a")
	r.must(err)
	r.stop()
	for _, f := range []string{"state.db", "state.db-wal", "state.db-shm", "events.jsonl"} {
		if err := os.Remove(filepath.Join(r.dir, f)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	r.start()
	r.read = 0
	r.snapshot(true)
	r.expect("a Exists (0,0)", "a Exists (1,1)")
	if again, err := r.model.RMID("gold/mon_groups/pod_a"); err != nil || again != rmid {
		t.Errorf("the group lost its counters: RMID %d was %d, %v", again, rmid, err)
	}
}

func TestSeqIsNeverUsedTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.event(lifecycle.RemovePodSandbox, "s1", "")
	r.expect("a Exists (0,0)", "Removed a")
	if n, err := r.eng.Store.Prune(t.Context(), time.Now().Add(100*365*24*time.Hour)); err != nil || n != 2 {
		t.Fatalf("pruned %d, %v", n, err)
	}
	r.restart()
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.expect("a Exists (0,0)") // expect checks that its seq is 3
}

func TestAHoldThatIsInterruptedIsFinished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	ctx, cancel := context.WithCancel(t.Context())
	r.os.Before(memfs.OpMkdir, 1, func(memfs.Call) error { cancel(); return nil })
	if err := r.eng.Hold(ctx, r.applying(lifecycle.RunPodSandbox, "s1")); err != nil {
		t.Fatal(err)
	}
	r.expect("a Exists (0,0)")
	if err := r.eng.Degraded(); err != nil {
		t.Errorf("an interruption counts as lost state: %v", err)
	}
}

// outage plays pods that come and go while state cannot be used, and what is
// told when it can be again.
func (r *rig) outage(end func()) {
	r.t.Helper()
	r.runtimeRun("during", "s2")
	r.event(lifecycle.RunPodSandbox, "s2", "")
	r.startContainer("s2", "c2", 3)
	r.runtimeRun("short", "s3")
	r.event(lifecycle.RunPodSandbox, "s3", "")
	r.event(lifecycle.RemovePodSandbox, "s3", "")
	delete(r.pods, "s3")
	if r.eng.Degraded() == nil {
		r.t.Fatal("state is said to be good")
	}
	if n := r.outside(r.cont["c2"].CgroupsPath, "mon_groups/pod_during"); n != 0 {
		r.t.Errorf("%d tasks outside the group", n)
	}
	end()
	r.hold(nothing) // too early to try again
	r.clock.Advance(2 * time.Second)
	if err := r.eng.Hold(r.t.Context(), nothing); !errors.Is(err, engine.ErrRecovered) {
		r.t.Errorf("the end of the outage: %v", err)
	}
	if r.eng.Degraded() != nil || !strings.Contains(r.log.String(), "unrecorded_changes=") {
		r.t.Error("what was lost is not told")
	}
}

func TestStateThatCannotBeOpenedYet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stop()
	r.openFault = fmt.Errorf("no room: %w", state.ErrUnwritable)
	r.start()
	r.outage(func() { r.openFault = nil })
	r.snapshot(false)
	r.expect("during Exists (0,0)", "during Exists (1,1)")
	r.checkGroups("", "pod_during")
}

func TestStateThatIsDamagedWhileItIsUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.event(lifecycle.RunPodSandbox, "s1", "")
	r.expect("a Exists (0,0)")
	// Somebody replaces the file under the program.
	r.must(os.Rename(filepath.Join(r.dir, "state.db"), filepath.Join(r.dir, "elsewhere.db")))
	r.outage(func() { os.Remove(filepath.Join(r.dir, "events.jsonl")) })
	r.read = 0
	r.snapshot(false)
	r.expect("a Exists (0,0)", "during Exists (0,0)", "during Exists (1,1)")
	r.checkGroups("", "pod_a", "pod_during")
}
