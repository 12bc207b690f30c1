package engine_test

import (
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

// TestPodThatNobodyWasToldOf: killed right before the first mkdir, then no RMID
// for the job: its end is no event either.
func TestPodThatNobodyWasToldOf(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runtimeRun("a", "s1")
	r.os.Before(memfs.OpMkdir, 1, func(memfs.Call) error { panic("killed") })
	r.crash(func() { r.event(lifecycle.RunPodSandbox, "s1", "") })
	r.model.SetNumRMIDs(1)
	if pass := r.retryAll(); !pass.OutOfCapacity() {
		t.Errorf("the pass: %+v", pass)
	}
	delete(r.pods, "s1")
	r.snapshot(false)
	r.expect()
	r.checkGroups("")
}
