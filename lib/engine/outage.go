package engine

import (
	"errors"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// outage is a time in which state could not be written.
type outage struct {
	cause   error
	since   time.Time
	changes int // of pods and containers
	events  int // that were never recorded
	probed  time.Time
	closed  bool // it must be opened (again) first
}

// ErrRecovered says that state can be written again after an outage, and lacks
// what came and went meanwhile: the caller asks for a new epoch.
var ErrRecovered = errors.New("state can be written again")

// degrade goes on without state: pods still get their groups.
func (e *Engine) degrade(err error) {
	if e.degraded != nil {
		return
	}
	now := e.Now()
	e.degraded = &outage{cause: err, since: now, probed: now, closed: e.Store == nil}
	e.Logger.Error("state cannot be used; pods still get their groups, but nothing is recorded until it can", "error", err)
}

// count takes the batch for lost: the next snapshot brings what is left of it.
func (h *Hold) count() {
	d, b := h.degraded, h.batch
	d.changes += len(b.Pods) + len(b.Deleted) + len(b.Orphans) + len(b.DroppedContainers)
	d.events += len(b.Events)
	h.batch = state.Batch{}
}

// probeEvery is how often a state that could not be used is tried again: a
// try may wait for SQLite's busy timeout.
const probeEvery = time.Second

// metaProbe is the key of table meta that a try writes.
const metaProbe = "state_recovered"

func (h *Hold) recover() error {
	h.count()
	now := h.Now()
	if now.Sub(h.degraded.probed) < probeEvery {
		return nil
	}
	h.degraded.probed = now
	if h.degraded.closed || errors.Is(h.degraded.cause, state.ErrCorrupt) {
		if err := h.reopen(); err != nil {
			h.degraded.cause = err
			return nil
		}
	}
	if err := h.Store.SetMeta(h.ctx, map[string]string{metaProbe: now.UTC().Format(time.RFC3339Nano)}); err != nil {
		h.degraded.cause = err
		return nil
	}
	d := h.degraded
	h.degraded, h.exported = nil, false
	for _, p := range h.view.pods {
		if p != nil && p.Pod.GroupState == rules.GroupExists {
			h.unrecord(p.Pod)
		}
	}
	h.view.reset()
	h.Logger.Warn("state can be used again; it lacks what came and went meanwhile, a new snapshot brings the rest",
		"since", d.since.UTC().Format(time.RFC3339), "unrecorded_changes", d.changes, "unrecorded_events", d.events)
	return ErrRecovered
}

// reopen lets state.Open move a damaged file aside.
func (h *Hold) reopen() error {
	if err := h.Close(); err != nil {
		h.Logger.Warn("close damaged state", "error", err)
	}
	h.degraded.closed = true
	if err := h.open(); err != nil {
		return err
	}
	h.degraded.closed = false
	return nil
}

// unrecord remembers a group that perhaps no row names.
func (h *Hold) unrecord(pod rules.Pod) {
	if h.unrecorded == nil {
		h.unrecorded = map[string]rules.Pod{}
	}
	h.unrecorded[pod.UID] = pod
}

// removeUnrecorded removes the groups of an outage whose pods ended before the
// snapshot that tells of the rest.
func (h *Hold) removeUnrecorded(pods []rules.SnapshotPod) {
	present := map[string]bool{}
	for _, p := range pods {
		present[p.UID] = true
	}
	for uid, pod := range h.unrecorded {
		if !present[uid] && h.view.pod(h.ctx, uid) == nil && h.rules.Hands.RemoveGroup(pod).Reason != "" {
			continue // the next snapshot tries again
		}
		delete(h.unrecorded, uid)
	}
}

// Degraded says why state cannot be used at present; nil is that it can.
func (e *Engine) Degraded() error {
	if e.degraded == nil {
		return nil
	}
	return e.degraded.cause
}
