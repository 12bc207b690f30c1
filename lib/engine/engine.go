// Package engine puts the rules to work: it holds the locks, reads the state,
// lets the rules decide on the real hands, commits what came of it and exports
// the events. The applier and the retry job are both thin around it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/cgroup"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// Sources of events, as they stand in the event log.
const (
	SourceApplier = "resctrl-applier"
	SourceRetry   = "resctrl-retry"
)

// Resctrl is what the engine needs of the resctrl filesystem; see lib/resctrl.
type Resctrl interface {
	Mounted() error
	Create(ctx context.Context, path string) (created bool, err error)
	Remove(ctx context.Context, path string) error
	Exists(path string) (bool, error)
	Locate(name string) ([]string, error)
	Move(ctx context.Context, from, to string) (string, error)
	Assign(ctx context.Context, group string, tasks func() ([]int, error)) (resctrl.Assignment, error)
	Cleanup(ctx context.Context, keep func(path string) bool) (resctrl.CleanupReport, error)
}

// Cgroups is what the engine needs of the cgroup filesystem; see lib/cgroup.
type Cgroups interface {
	Resolve(cgroup.Ref) (string, error)
	Tasks(path string) ([]int, error)
	ParentExists(cgroupParent string) (bool, error)
}

// Exporter appends committed events to the event log; see lib/outbox.
type Exporter interface {
	Export(ctx context.Context) error
}

// Locker gives the writer's turn; see lib/lock.
type Locker interface {
	Writer(ctx context.Context) (unlock func(), err error)
}

// Options are the parts of an Engine.
type Options struct {
	Resctrl Resctrl
	Cgroups Cgroups
	Locks   Locker
	// OpenState opens the state, and the event log fed by it; also anew when
	// the file turned out to be damaged.
	OpenState func() (*state.Store, Exporter, error)
	// Patient goes on without a state that cannot be opened yet, or written (no
	// room, read-only), until it can. Else a Hold that could not record is an error, and
	// the last one: others write the same state, and nothing brings what it lacks.
	Patient bool
	Naming  rules.Naming
	Source  string // of the events: SourceApplier or SourceRetry
	Logger  *slog.Logger
	Now     func() time.Time
	// BootID names this boot of the machine (/proc/sys/kernel/random/boot_id).
	BootID string
	// BootTime is the boot-time clock (CLOCK_BOOTTIME), which no one sets.
	BootTime func() time.Duration
}

// Engine applies lifecycle records, snapshots and retries.
// It is for one goroutine.
type Engine struct {
	Options
	Store    *state.Store
	events   Exporter
	view     *view
	exported bool         // nothing is known to wait for its export
	failing  rules.Reason // why the last group could not be made, or moved, or removed; told
	// degraded counts what was done while state could not be written.
	degraded *outage
	// unrecorded are pods of a time in which state could not be used: perhaps no
	// row names their groups until the next snapshot.
	unrecorded map[string]rules.Pod
}

// New opens the state and makes an engine on it.
func New(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{Options: o}
	e.view = newView(e)
	// Opening may move a damaged file aside, from under another writer.
	unlock, err := e.Locks.Writer(ctx)
	if err != nil {
		return nil, fmt.Errorf("take the writer's turn: %w", err)
	}
	defer unlock()
	err = e.open()
	if e.Patient && (errors.Is(err, state.ErrUnwritable) || errors.Is(err, state.ErrBusy)) {
		e.degrade(err)
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// open opens the state in place of one that was closed.
func (e *Engine) open() error {
	store, events, err := e.OpenState()
	if err != nil {
		return err
	}
	e.Store, e.events, e.exported = store, events, false
	return nil
}

// Close closes the state.
func (e *Engine) Close() error {
	if e.Store == nil {
		return nil
	}
	return e.Store.Close()
}

// Hold is the writer's turn: everything between its begin and its end is
// decided on rows that nobody else changes.
type Hold struct {
	*Engine
	ctx   context.Context
	rules rules.Rules
	batch state.Batch
}

// Hold runs fn while no other process writes resctrl, state or event log;
// afterwards it commits what is left and exports the events.
func (e *Engine) Hold(ctx context.Context, fn func(*Hold) error) error {
	unlock, err := e.Locks.Writer(ctx)
	if err != nil {
		return fmt.Errorf("take the writer's turn: %w", err)
	}
	defer unlock()
	if e.degraded != nil && !e.Patient {
		return e.degraded.cause
	}
	// What is begun is finished: a change that is cut off would look failed.
	h := &Hold{Engine: e, ctx: context.WithoutCancel(ctx)}
	h.rules = rules.Rules{Hands: &hands{h}, Naming: e.Naming, Now: e.Now}
	if e.degraded == nil {
		e.view.reset() // another process may have written since
	}
	// What was decided before a failure has happened on resctrl: it is
	// committed all the same.
	err = fn(h)
	err = errors.Join(err, h.Commit(), h.export())
	if !e.Patient {
		err = errors.Join(err, e.Degraded()) // no snapshot will bring to it what was not recorded
	}
	return err
}

// Commit makes what was decided so far durable. While that cannot be done the
// engine goes on from memory and counts; ErrRecovered tells the end of it.
func (h *Hold) Commit() error {
	if h.degraded != nil {
		return h.recover()
	}
	if h.empty() {
		return nil
	}
	err := h.Store.Commit(h.ctx, h.batch)
	if err != nil {
		h.degrade(err)
		h.count()
		return nil
	}
	for _, e := range h.batch.Events {
		h.logEvent(e.Event)
	}
	h.exported = h.exported && len(h.batch.Events) == 0
	h.batch = state.Batch{}
	return nil
}

func (h *Hold) empty() bool {
	b := h.batch
	return len(b.Pods)+len(b.Deleted)+len(b.Orphans)+len(b.DroppedContainers)+len(b.Events)+len(b.Meta) == 0
}

func (h *Hold) logEvent(e rules.Event) {
	attrs := []any{"pod_uid", e.PodUID, "pod_namespace", e.Namespace, "pod_name", e.Name}
	if e.Type == rules.AddOrUpdate {
		attrs = append(attrs, "group_state", string(e.GroupState), "total_containers", e.Total, "reconciled_containers", e.Reconciled)
		if e.Reason != "" {
			attrs = append(attrs, "reason", string(e.Reason))
		}
	}
	h.Logger.Info(string(e.Type), attrs...)
}

// export appends what was committed to the event log. Its failure loses
// nothing: the events stay in the table, and the next hold tries again.
func (h *Hold) export() error {
	if h.exported || h.degraded != nil {
		return nil
	}
	err := h.events.Export(h.ctx)
	if errors.Is(err, state.ErrCorrupt) {
		h.degrade(err) // the table, not the log
		return nil
	}
	if err != nil {
		return &ExportError{err}
	}
	h.exported = true
	return nil
}

// ExportError says that committed events wait in the table, since the event
// log could not be written.
type ExportError struct{ err error }

func (e *ExportError) Error() string { return "export events: " + e.err.Error() }

// Unwrap gives the cause.
func (e *ExportError) Unwrap() error { return e.err }

// take puts a change of the pod into the batch.
func (h *Hold) take(uid string, ch rules.Change) {
	for _, e := range ch.Events {
		h.batch.Events = append(h.batch.Events, state.SourcedEvent{Event: e, Source: h.Source})
	}
	for _, id := range ch.Adopted {
		h.dropOrphan(id)
	}
	if !ch.Changed {
		return
	}
	h.batch.Pods = dropPod(h.batch.Pods, uid)
	if ch.State == nil {
		h.batch.Deleted = append(h.batch.Deleted, uid)
	} else {
		h.batch.Pods = append(h.batch.Pods, ch.State)
	}
	h.view.put(uid, ch.State)
}

func dropPod(pods []*rules.PodState, uid string) []*rules.PodState {
	kept := pods[:0]
	for _, p := range pods {
		if p.Pod.UID != uid {
			kept = append(kept, p)
		}
	}
	return kept
}

// Exported says whether nothing is known to wait for its export.
func (e *Engine) Exported() bool { return e.exported && e.degraded == nil }
