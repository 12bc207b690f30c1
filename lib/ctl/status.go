package ctl

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// Keys of the table meta, written by applier and export.
const (
	metaApplier     = "applier"
	metaHeartbeat   = "last_heartbeat"
	metaRuntimeLost = "runtime_lost"
	metaSnapshot    = "snapshot"
	metaBootID      = "boot_id"
	metaLog         = "log"
	metaExportSeq   = "export_seq"
)

// lateHeartbeats is how many heartbeats must be missing before the watcher is
// said to be silent: one may be waiting in the pipe, one may be on its way.
const lateHeartbeats = 3

// Status is all that status tells; its JSON is the output of --json.
type Status struct {
	Time       time.Time        `json:"time"`
	Node       string           `json:"node"`
	Watcher    WatcherStatus    `json:"watcher"`
	Runtime    RuntimeStatus    `json:"runtime"`
	Applier    ApplierStatus    `json:"applier"`
	Resctrl    ResctrlStatus    `json:"resctrl"`
	Pods       *PodsStatus      `json:"pods"`                  // null where the state cannot be read
	Containers *ContainerStatus `json:"containers"`            // null where the state cannot be read
	Events     *EventsStatus    `json:"events"`                // null where the state cannot be read
	Snapshot   *SnapshotStatus  `json:"snapshot"`              // the last applied one; null: none yet
	Problems   []string         `json:"problems"`              // each with what to do
	StateError string           `json:"state_error,omitempty"` // why the state cannot be read
}

// WatcherStatus is nri-watcher as its lock and its last heartbeat show it.
type WatcherStatus struct {
	State         running    `json:"state"` // running, stopped, unknown
	PID           int        `json:"pid,omitempty"`
	LastHeartbeat *time.Time `json:"last_heartbeat"`
	QueueDropped  uint64     `json:"queue_dropped"`
	BarrierHits   uint64     `json:"barrier_hits"`
	BarrierMisses uint64     `json:"barrier_misses"`
	BarrierSkips  uint64     `json:"barrier_skips"`
}

// RuntimeStatus is the container runtime as the watcher saw it.
type RuntimeStatus struct {
	Name    string     `json:"name"`
	Version string     `json:"version"`
	State   string     `json:"state"`          // connected, disconnected, unknown
	Lost    *time.Time `json:"lost,omitempty"` // when the connection ended
}

// ApplierStatus is resctrl-applier as its lock and its own word show it.
type ApplierStatus struct {
	State         running    `json:"state"`
	PID           int        `json:"pid,omitempty"`
	Version       string     `json:"version,omitempty"`
	Started       *time.Time `json:"started,omitempty"`
	Resctrl       string     `json:"resctrl,omitempty"` // ok, or the reason
	ResctrlError  string     `json:"resctrl_error,omitempty"`
	UnknownEvents uint64     `json:"unknown_events,omitempty"`
}

// ResctrlStatus is the filesystem as resctrlctl itself sees it.
type ResctrlStatus struct {
	Root   string `json:"root"`
	Reason string `json:"reason"` // "" is well; else not_mounted, unsupported, permission, io
	Error  string `json:"error,omitempty"`
	Used   int    `json:"rmids_used"`
	RMIDs  int    `json:"rmids"`
}

// PodsStatus counts pods.
type PodsStatus struct {
	Exists      int            `json:"exists"`
	Failed      map[string]int `json:"failed"` // by reason
	Removing    int            `json:"removing"`
	FailedSince string         `json:"failed_since,omitempty"` // the oldest failure
	FailedError string         `json:"failed_error,omitempty"` // why the oldest failed, with the kernel's own words
}

// ContainerStatus counts containers.
type ContainerStatus struct {
	ByState map[string]int `json:"by_state"`
	Partial map[string]int `json:"partial"` // by reason
}

// EventsStatus is how far the event log is.
type EventsStatus struct {
	Log      string `json:"log"`
	Seq      int64  `json:"seq"`  // the last event; 0: none yet
	Time     string `json:"time"` // of it; "" where it was pruned
	Exported int64  `json:"exported_seq"`
	Lag      int64  `json:"lag"` // events that are not in events.jsonl yet
}

// SnapshotStatus is the last snapshot that the applier carried out.
type SnapshotStatus struct {
	Time       time.Time `json:"time"`
	Epoch      string    `json:"epoch"`
	Runtime    string    `json:"runtime"`
	Version    string    `json:"runtime_version"`
	Node       string    `json:"node"`
	Pods       int       `json:"pods"`
	Containers int       `json:"containers"`
	ThisBoot   bool      `json:"this_boot"`
}

// status prints the status. Where the state cannot be read it prints what it
// can, and the reason is the error.
func (a *app) status(ctx context.Context) error {
	s, stateErr := a.gather(ctx)
	if a.json {
		if err := printJSON(a.out, s); err != nil {
			return err
		}
		return stateErr
	}
	if err := a.printStatus(s); err != nil {
		return err
	}
	return stateErr
}

// gather collects the status; err says why the state could not be read.
func (a *app) gather(ctx context.Context) (*Status, error) {
	s := &Status{Time: a.now().UTC(), Node: a.node(), Runtime: RuntimeStatus{State: "unknown"}, Problems: []string{}}
	s.Watcher.State, s.Watcher.PID = a.daemon("watcher")
	s.Applier.State, s.Applier.PID = a.daemon("applier")
	s.Resctrl = a.resctrlStatus()
	sum, err := a.summary(ctx)
	if err != nil {
		s.StateError = err.Error()
	} else {
		a.fromState(s, sum)
	}
	a.problems(s)
	return s, err
}

func (a *app) summary(ctx context.Context) (*state.Summary, error) {
	r, err := a.openState()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Summary(ctx)
}

func (a *app) node() string {
	if a.cfg.Events.Node != "" {
		return a.cfg.Events.Node
	}
	host, _ := os.Hostname()
	return host
}

func (a *app) resctrlStatus() ResctrlStatus {
	s := ResctrlStatus{Root: a.cfg.Resctrl.Root}
	fs := a.resctrl()
	err := fs.Mounted()
	if err == nil {
		var u resctrl.Usage
		u, err = fs.Usage()
		s.Used, s.RMIDs = u.Used, u.NumRMIDs
	}
	if err != nil {
		s.Reason, s.Error = resctrl.ReasonOf(err), err.Error()
	}
	return s
}

// fromState fills in what the state knows.
func (a *app) fromState(s *Status, sum *state.Summary) {
	s.Pods = &PodsStatus{Exists: sum.PodsExists, Failed: sum.PodsFailed, Removing: sum.PodsRemoving, FailedSince: sum.OldestFailure, FailedError: sum.OldestError}
	s.Containers = &ContainerStatus{ByState: sum.Containers, Partial: sum.Unreconciled}
	exported, _ := strconv.ParseInt(sum.Meta[metaExportSeq], 10, 64)
	s.Events = &EventsStatus{Log: sum.Meta[metaLog], Seq: sum.LastEvent, Time: sum.LastEventTime,
		Exported: exported, Lag: max(sum.LastEvent-exported, 0)}
	a.applierFrom(&s.Applier, sum.Meta)
	if snap := new(SnapshotStatus); decode(sum.Meta, metaSnapshot, snap) {
		snap.ThisBoot = sum.Meta[metaBootID] == a.bootID()
		s.Snapshot = snap
	}
	a.runtimeFrom(s, sum.Meta)
}

// applierFrom reads the applier's own word, if it is that of the one that runs.
func (a *app) applierFrom(s *ApplierStatus, meta map[string]string) {
	var word struct {
		PID           int       `json:"pid"`
		Version       string    `json:"version"`
		Started       time.Time `json:"started"`
		Resctrl       string    `json:"resctrl"`
		ResctrlError  string    `json:"resctrl_error"`
		UnknownEvents uint64    `json:"unknown_events"`
	}
	if s.State == stopped || !decode(meta, metaApplier, &word) {
		return
	}
	if s.PID != 0 && s.PID != word.PID {
		return // an earlier one's
	}
	s.PID, s.Version, s.Started = word.PID, word.Version, &word.Started
	s.Resctrl, s.ResctrlError, s.UnknownEvents = word.Resctrl, word.ResctrlError, word.UnknownEvents
}

// runtimeFrom decides by the newest of heartbeat, RUNTIME_LOST and snapshot
// what the runtime's state is.
func (a *app) runtimeFrom(s *Status, meta map[string]string) {
	var newest time.Time
	if s.Snapshot != nil {
		s.Runtime.Name, s.Runtime.Version = s.Snapshot.Runtime, s.Snapshot.Version
		s.Runtime.State, newest = "connected", s.Snapshot.Time
	}
	var beat, lost lifecycle.Record
	if decode(meta, metaHeartbeat, &beat) {
		w := &s.Watcher
		w.LastHeartbeat = &beat.Time
		w.QueueDropped, w.BarrierHits = value(beat.QueueDropped), value(beat.BarrierHits)
		w.BarrierMisses, w.BarrierSkips = value(beat.BarrierMisses), value(beat.BarrierSkips)
		if beat.RuntimeState != "" && beat.Time.After(newest) {
			s.Runtime.State, newest = beat.RuntimeState, beat.Time
		}
	}
	if decode(meta, metaRuntimeLost, &lost) && lost.Time.After(newest) {
		s.Runtime.State, newest = "disconnected", lost.Time
	}
	if s.Runtime.State == "disconnected" && !lost.Time.IsZero() {
		s.Runtime.Lost = &lost.Time
	}
	if s.Runtime.State == "connected" && (s.Watcher.State == stopped || !newest.IsZero() && a.now().Sub(newest) > a.late()) {
		s.Runtime.State = "unknown" // whoever said so is silent
	}
}

// late is the age at which a heartbeat is missing.
func (a *app) late() time.Duration { return lateHeartbeats * a.cfg.Watcher.Heartbeat.Duration }

// bootID is the kernel's random id of this boot (random(4)).
func (a *app) bootID() string {
	text, err := os.ReadFile(a.proc("sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return trim(text)
}

// decode reads a value of meta; a damaged one is as good as none.
func decode(meta map[string]string, key string, into any) bool {
	text, ok := meta[key]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

func value(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}
