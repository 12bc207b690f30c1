// Package retry is the job behind resctrl-retry: one pass over what failed or
// stayed incomplete, read from the state.
package retry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// Exit codes that are the job's own; see the README.
const (
	exitNotFound = 66
	exitCapacity = 75
)

// Options of one run.
type Options struct {
	Pod       Only // retry this pod's group only
	Container Only // retry this container only
	JSON      bool

	Sweep          bool // look after the running too
	VanishedAfter  time.Duration
	EventRetention time.Duration
}

// Only names the one thing to retry; nil is everything. It is a flag.Value that
// tells an empty name, as of a variable that is not set, from none.
type Only struct{ name *string }

// Set takes the name.
func (o *Only) Set(name string) error {
	if name == "" {
		return errors.New("a name is missing; without the option everything is retried")
	}
	o.name = &name
	return nil
}

// String is the name; "" is everything.
func (o *Only) String() string {
	if o.name == nil {
		return ""
	}
	return *o.name
}

// Check says what is wrong with the options.
func (o *Options) Check() error {
	if o.Pod.name != nil && o.Container.name != nil {
		return errors.New("--pod and --container exclude each other")
	}
	return nil
}

// Result is what one run did, as --json prints it.
type Result struct {
	// Waiting says why nothing was done: no snapshot was applied since this
	// boot, so the state may be of before it.
	Waiting   string                  `json:"waiting,omitempty"`
	Pod       *engine.GroupResult     `json:"pod,omitempty"`
	Container *engine.ContainerResult `json:"container,omitempty"`
	Pass      *engine.Pass            `json:"pass,omitempty"`
	Sweep     *engine.Swept           `json:"sweep,omitempty"`
	Pruned    int64                   `json:"pruned_events"`
}

// coded is an error with an exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// ExitCode is the code that the program ends with.
func (e *coded) ExitCode() int { return e.code }

// Run does the job once, and prints what it did.
func Run(ctx context.Context, e *engine.Engine, o Options, out io.Writer, log *slog.Logger) error {
	var res Result
	err := run(ctx, e, o, &res)
	if o.JSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = errors.Join(err, enc.Encode(res))
	} else {
		report(log, &res)
	}
	return code(err, &res)
}

func run(ctx context.Context, e *engine.Engine, o Options, res *Result) error {
	boot, _, err := e.Store.Meta(ctx, engine.MetaBootID)
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if boot != e.BootID {
		res.Waiting = "no snapshot was applied since this boot; is nri-watcher connected to the runtime, and resctrl-applier running?"
		return nil
	}
	switch {
	case o.Pod.name != nil:
		r, err := e.RetryGroupCreation(ctx, *o.Pod.name)
		res.Pod = &r
		return err
	case o.Container.name != nil:
		r, err := e.RetryContainerReconcile(ctx, *o.Container.name)
		res.Container = &r
		return err
	}
	return errors.Join(pass(ctx, e, o, res), prune(ctx, e, o, res))
}

func pass(ctx context.Context, e *engine.Engine, o Options, res *Result) (err error) {
	res.Pass, err = e.RetryAllOnce(ctx)
	if !o.Sweep || ctx.Err() != nil || e.Degraded() != nil {
		return err
	}
	var sweepErr error
	res.Sweep, sweepErr = e.Sweep(ctx, engine.SweepOptions{VanishedAfter: o.VanishedAfter, SkipGroups: res.Pass.EndedBy()})
	return errors.Join(err, sweepErr)
}

func prune(ctx context.Context, e *engine.Engine, o Options, res *Result) error {
	if e.Degraded() != nil {
		return nil // the pass has told why
	}
	for n := int64(state.PruneRows); n == state.PruneRows && ctx.Err() == nil; { // others have their turn between
		err := e.Hold(ctx, func(h *engine.Hold) (err error) {
			n, err = h.Store.Prune(ctx, h.Now().Add(-o.EventRetention))
			return err
		})
		if err != nil {
			return fmt.Errorf("prune events: %w", err)
		}
		res.Pruned += n
	}
	return nil
}

func report(log *slog.Logger, res *Result) {
	if res.Waiting != "" {
		log.Info("nothing to do yet", "reason", res.Waiting)
		return
	}
	if r := res.Pod; r != nil && r.Outcome != "" {
		log.Info("group retried", "pod_uid", r.PodUID, "outcome", string(r.Outcome), "reason", string(r.Reason))
	}
	if r := res.Container; r != nil && r.State != "" {
		log.Info("container retried", "container_id", r.ContainerID, "pod_uid", r.PodUID, "state", string(r.State), "reason", string(r.Reason), "tasks", r.Tasks)
	}
	p, s := res.Pass, res.Sweep
	if p == nil {
		return
	}
	level := slog.LevelDebug // a pass with nothing to do, every ten seconds
	attrs := []any{"groups_tried", len(p.Groups), "groups_not_tried", p.NotTried, "containers_tried", len(p.Containers), "events_pruned", res.Pruned}
	if s != nil {
		attrs = append(attrs, "pods_swept", s.Pods, "pods_changed", len(s.Changed), "pods_removed", len(s.Removed))
	}
	if len(p.Groups)+len(p.Containers) > 0 || s != nil && len(s.Changed)+len(s.Removed) > 0 {
		level = slog.LevelInfo
	}
	log.Log(context.Background(), level, "pass done", attrs...)
}

// code gives the run its exit code: not found and capacity have their own.
func code(err error, res *Result) error {
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return &coded{exitNotFound, err}
	case err != nil:
		return err
	case res.Pass != nil && res.Pass.OutOfCapacity(), res.Sweep != nil && res.Sweep.OutOfCapacity,
		res.Pod != nil && res.Pod.Outcome == engine.GroupCapacity:
		return &coded{exitCapacity, errors.New("no RMID is free: pods still wait for their group; the next run tries again")}
	case res.Pod != nil && res.Pod.Outcome == engine.GroupFailed:
		return fmt.Errorf("pod %s has no group (%s): %s", res.Pod.PodUID, res.Pod.Reason, res.Pod.Error)
	}
	return nil
}
