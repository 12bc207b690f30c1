// Package applier is the daemon behind resctrl-applier: it reads lifecycle
// records from the pipe, has the engine carry them out, and answers with
// hellos and acknowledgements.
package applier

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

const (
	// holdFor is how much of what waits in the pipe is taken as one hold of the
	// writer's lock and one transaction.
	holdFor = 20 * time.Millisecond
	// tick is how often a hello is repeated, and what is broken tried again.
	tick = time.Second
	// repeats is how often a hello is repeated before another takes its place, at
	// first; each time twice as long, up to mostRepeats.
	repeats     = 4
	mostRepeats = 64
	// lookEvery is how often the paths of the pipe and the mount are looked at,
	// where heartbeats are not more frequent (SPEC: at every heartbeat).
	lookEvery = 10 * time.Second
)

// Keys of the table meta that the applier writes.
const (
	MetaApplier     = "applier"        // this process: Status
	MetaHeartbeat   = "last_heartbeat" // the latest HEARTBEAT, as it came
	MetaRuntimeLost = "runtime_lost"   // the latest RUNTIME_LOST, as it came
)

// Status is the value of MetaApplier, as JSON.
type Status struct {
	PID          int       `json:"pid"`
	Version      string    `json:"version"`
	Started      time.Time `json:"started"`
	Resctrl      string    `json:"resctrl"` // "ok", or the reason
	ResctrlError string    `json:"resctrl_error,omitempty"`
	UnknownSeen  uint64    `json:"unknown_events,omitempty"` // records of a later version, skipped
}

// Options are the parts of an Applier.
type Options struct {
	Engine  *engine.Engine
	Resctrl *resctrl.FS
	// AutoMount mounts resctrl at the start, if it is not.
	AutoMount bool
	// Cleanup removes groups of no pod at the first snapshot, and at the first
	// after an outage of the state.
	Cleanup bool
	// Heartbeat is the time between two of the watcher's; 0 is the default.
	Heartbeat time.Duration
	Version   string
	Logger    *slog.Logger
	// Notify is told a line for people whenever the state of things changed.
	Notify func(status string)
}

// Applier carries out lifecycle records. It is for one goroutine, except for
// Beat.
type Applier struct {
	Options
	recv    *stream.Receiver
	replies replies
	cleaned bool // the first snapshot was applied, since the start or since state was lost
	status  Status
	told    string // the export error that was logged
	uttered int    // how often the present hello was
	giveUp  int    // after that many
	without bool   // people were told that there is no state
	beat    atomic.Int64
}

// replies is where hellos and acknowledgements go; nil sends none.
type replies interface {
	send(v any)
}

func newApplier(o Options, recv *stream.Receiver) *Applier {
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	if o.Heartbeat <= 0 || o.Heartbeat > lookEvery {
		o.Heartbeat = lookEvery
	}
	return &Applier{Options: o, recv: recv, status: Status{
		PID: os.Getpid(), Version: o.Version, Started: time.Now().UTC(),
	}}
}

// Beat is when the applier was last seen at work, for a watchdog.
func (a *Applier) Beat() time.Time { return time.Unix(0, a.beat.Load()) }

func (a *Applier) alive() { a.beat.Store(time.Now().UnixNano()) }

// begin mounts resctrl where that is wanted, and records who we are.
func (a *Applier) begin(ctx context.Context) error {
	a.alive()
	if a.AutoMount && resctrl.ReasonOf(a.Resctrl.Mounted()) == "not_mounted" {
		// What is wrong, and what to do, is told by look.
		if err := a.Resctrl.Mount(ctx); err == nil {
			a.Logger.Info("resctrl mounted")
		}
	}
	return a.hold(ctx, func(h *engine.Hold) error { a.look(h, true); return nil })
}

// look tells, when it changed, whether resctrl can be used.
func (a *Applier) look(h *engine.Hold, first bool) {
	err := a.Resctrl.Mounted()
	reason := resctrl.ReasonOf(err)
	if reason == "" {
		reason = "ok"
	}
	if a.status.Resctrl == reason && !first {
		return
	}
	switch {
	case err != nil:
		a.status.ResctrlError = err.Error()
		a.Logger.Error("resctrl cannot be used: pods get no groups until it can; nothing is lost", "reason", reason, "error", err)
	case a.status.Resctrl != "":
		a.Logger.Info("resctrl can be used again")
		fallthrough
	default:
		a.status.ResctrlError = ""
	}
	a.status.Resctrl = reason
	a.saveStatus(h)
}

func (a *Applier) saveStatus(h *engine.Hold) {
	b, err := json.Marshal(a.status)
	if err != nil {
		a.Logger.Error("status not recorded", "error", err)
		return
	}
	h.SetMeta(map[string]string{MetaApplier: string(b)})
}

// hold runs fn in the writer's turn. What failed for good is made good by a
// new epoch; what only waits is logged once.
func (a *Applier) hold(ctx context.Context, fn func(*engine.Hold) error) error {
	err := a.Engine.Hold(ctx, fn)
	a.alive()
	if cause := a.Engine.Degraded(); (cause != nil) != a.without {
		a.without = cause != nil
		if a.without {
			a.Notify("state cannot be used, pods still get their groups: " + cause.Error())
		} else {
			a.Notify("state can be used again")
		}
	}
	var export *engine.ExportError
	switch {
	case errors.As(err, &export):
		if a.told != export.Error() {
			a.told = export.Error()
			a.Logger.Error("events wait in the state's table until the event log can be written", "error", err)
		}
	case err == nil && a.told != "" && a.Engine.Exported():
		a.told = ""
		a.Logger.Info("the event log can be written again; the waiting events were appended")
	}
	if errors.Is(err, engine.ErrRecovered) {
		// Groups that were made, or should have been removed, meanwhile may have
		// no row that names them.
		a.cleaned = false
		a.wish("state can be used again")
		return nil
	}
	if export != nil {
		return nil
	}
	return err
}

// wish asks for a new epoch.
func (a *Applier) wish(why string) {
	if a.replies == nil {
		return
	}
	a.Logger.Info("asking for a new snapshot", "reason", why)
	a.recv.Begin(rand.Text())
	a.uttered, a.giveUp = 0, repeats
	a.greet()
}

// greet utters the unanswered wish, if there is one. A watcher whose answer
// did not arrive whole takes every repeat for answered: after some another
// hello takes its place.
func (a *Applier) greet() {
	if a.recv.Wish() == "" || a.replies == nil {
		return
	}
	if a.uttered >= a.giveUp {
		a.uttered, a.giveUp = 0, min(2*a.giveUp, mostRepeats)
		a.recv.Begin(rand.Text())
	}
	a.uttered++
	a.replies.send(lifecycle.Hello{Hello: a.recv.Wish()})
}

// take carries out what a line meant.
func (a *Applier) take(h *engine.Hold, in stream.Input, raw []byte) error {
	switch in.Kind {
	case stream.KindRecord:
		h.Apply(in.Record)
		a.ack(in.Record.Epoch, in.Record.Seq)
	case stream.KindSnapshot:
		return a.snapshot(h, in)
	case stream.KindHeartbeat:
		h.SetMeta(map[string]string{MetaHeartbeat: string(bytes.TrimSpace(raw))})
	case stream.KindRuntimeLost:
		h.SetMeta(map[string]string{MetaRuntimeLost: string(bytes.TrimSpace(raw))})
		a.Logger.Warn("nri-watcher lost its connection to the runtime; pods stay as they are until it is back")
		a.Notify("the runtime is away; pods stay as they are")
	case stream.KindUnknownEvent:
		a.status.UnknownSeen++
		a.Logger.Warn("record of an unknown event skipped; nri-watcher may be of a later version", "event", string(in.Record.Event))
		a.saveStatus(h)
	case stream.KindWantHello:
		return &brokenError{in.Reason}
	}
	return nil
}

// brokenError says that the stream of records is broken.
type brokenError struct{ reason string }

func (e *brokenError) Error() string { return e.reason }

// ExitCode is that of bad input.
func (e *brokenError) ExitCode() int { return 65 }

func (a *Applier) ack(epoch string, seq uint64) {
	if a.replies != nil {
		a.replies.send(lifecycle.Ack{Epoch: epoch, Seq: seq})
	}
}

func (a *Applier) snapshot(h *engine.Hold, in stream.Input) error {
	s := in.Snapshot
	begin := time.Now()
	if err := h.ApplySnapshot(s, a.Cleanup && !a.cleaned); err != nil {
		return err
	}
	a.cleaned = true
	a.ack(s.Begin.Epoch, s.EndSeq)
	a.Logger.Info("snapshot applied", "epoch", s.Begin.Epoch, "runtime", s.Begin.Runtime, "runtime_version", s.Begin.RuntimeVersion,
		"pods", len(s.Pods), "containers", len(s.Containers), "lines_discarded_before", in.Skipped, "took", time.Since(begin).Round(time.Millisecond))
	a.Notify(fmt.Sprintf("following %s %s; the last snapshot had %d pods", s.Begin.Runtime, s.Begin.RuntimeVersion, len(s.Pods)))
	return nil
}
