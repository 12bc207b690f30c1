package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/state"
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
