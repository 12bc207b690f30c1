package engine_test

import (
	"testing"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// waits has a record of a container come before any of its pod.
func (r *rig) waits(ev lifecycle.Event, id string) {
	r.t.Helper()
	rec := &lifecycle.Record{Event: ev, Container: r.cont[id]}
	r.hold(func(h *engine.Hold) error { h.Apply(rec); return nil })
}

func (r *rig) checkWaiting(want int) {
	r.t.Helper()
	all, err := r.eng.Store.Orphans(r.t.Context(), "")
	r.must(err)
	if len(all) != want {
		r.t.Errorf("containers without a pod: %+v, want %d", all, want)
	}
}

// TestWaitingContainerIsRemoved: a container that waits for its pod goes with
// its own removal, also where that names the pod, and with its sandbox's.
func TestWaitingContainerIsRemoved(t *testing.T) {
	r := newRig(t)
	r.runtimeRun("u", "s")
	for _, id := range []string{"k1", "k2"} {
		r.runtimeCreate("s", id)
		r.waits(lifecycle.PostCreateContainer, id)
	}
	r.checkWaiting(2)
	r.event(lifecycle.RemoveContainer, "s", "k1")
	r.checkWaiting(1)
	r.event(lifecycle.RemovePodSandbox, "s", "")
	r.checkWaiting(0)
	r.expect()
}

// TestWaitingContainerIsFilled: a container that runs when another one's event
// brings its pod is in the pod's new group at once.
func TestWaitingContainerIsFilled(t *testing.T) {
	r := newRig(t)
	r.runtimeRun("u", "s")
	r.runtimeCreate("s", "k1")
	r.waits(lifecycle.PostCreateContainer, "k1")
	r.runtimeStart("s", "k1", 2)
	r.runtimeCreate("s", "k2")
	r.event(lifecycle.PostCreateContainer, "s", "k2")
	r.expect("u Exists (2,1)")
	r.checkCounters("u", 2, 1)
	r.checkWaiting(0)
}
