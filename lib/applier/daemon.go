package applier

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/run"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/fifo"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

// hungAfter is how long the applier may be silent before it counts as hung.
// Another tool may hold resctrl's flock for a while; that is no hang.
const hungAfter = time.Minute

// Run carries out the records of the pipe until ctx ends.
func Run(ctx context.Context, o Options, p config.Pipe, systemd *program.Systemd) error {
	a := newApplier(o, stream.NewReceiver(stream.ReceiverOptions{RequireHello: true}))
	d := &daemon{Applier: a, pipe: pipe{path: p.Path, log: o.Logger}, acks: acks{path: p.AckPath, log: o.Logger}}
	a.replies = &d.acks
	defer d.pipe.close()
	defer d.acks.close()

	var g run.Group
	work, stopWork := context.WithCancel(ctx)
	g.Add(func() error { return d.run(work, systemd) }, func(error) { stopWork() })
	watch, stopWatch := context.WithCancel(ctx)
	g.Add(func() error {
		return systemd.Watchdog(watch, func() bool { return time.Since(a.Beat()) < hungAfter })
	}, func(error) { stopWatch() })
	err := g.Run()
	systemd.Stopping()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		o.Logger.Info("stopped; groups and state stay as they are")
		return nil
	}
	return err
}

// daemon is an applier on the pipe.
type daemon struct {
	*Applier
	pipe   pipe
	acks   acks
	looked time.Time // when paths and mount were looked at
	idled  time.Time // when what is due once a tick was done
	wished time.Time // when the stream was last found broken and a new one asked for
	later  string    // why it is to be asked for at the next tick; "" is not
}

func (d *daemon) run(ctx context.Context, systemd *program.Systemd) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	d.looked = time.Now()
	// The pipe first, then the acknowledgements: the watcher does it the other
	// way round, so neither waits for the other.
	if d.pipe.open() {
		d.wish("the pipe was opened")
	}
	systemd.Ready("waiting for the first snapshot of nri-watcher")
	for {
		if err := d.turn(ctx); err != nil {
			return err
		}
	}
}

// turn waits for a line, at most a tick, and takes what is there. Once a tick
// it does what else is due, however many lines there are.
func (d *daemon) turn(ctx context.Context) error {
	d.alive()
	if time.Since(d.idled) >= tick {
		d.idled = time.Now()
		if err := d.idle(ctx); err != nil {
			return err
		}
	}
	wait, cancel := context.WithTimeout(ctx, tick)
	line, err := d.pipe.read(wait)
	cancel()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return d.batch(ctx, line, err)
}

// batch takes a line and, in the same hold, what waits behind it: at most
// holdFor of it.
func (d *daemon) batch(ctx context.Context, line []byte, readErr error) error {
	in := d.input(line, readErr)
	if in.Kind == stream.KindNothing {
		return nil
	}
	return d.heal(ctx, d.hold(ctx, func(h *engine.Hold) error {
		for begin := time.Now(); ; {
			if err := d.take(h, in, line); err != nil {
				return err
			}
			if time.Since(begin) >= holdFor || ctx.Err() != nil {
				return nil
			}
			var ok bool
			if line, ok, readErr = d.pipe.tryRead(); !ok && readErr == nil {
				return nil
			}
			in = d.input(line, readErr)
		}
	}))
}

// input is what a line, or the error in place of one, means.
func (d *daemon) input(line []byte, err error) stream.Input {
	switch {
	case err == nil:
		return d.recv.Line(line)
	case errors.Is(err, fifo.ErrLineTooLong):
		return d.recv.Bad(err.Error())
	}
	d.pipe.fail(err)
	return stream.Input{}
}

// heal makes good what went wrong in a hold: records may be lost, so a new
// epoch is asked for, at the next tick where asking at once could spin.
func (d *daemon) heal(ctx context.Context, err error) error {
	var broken *brokenError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &broken):
		d.Logger.Warn("the stream of records is broken", "reason", broken.reason)
		d.wishSoon("the stream was broken")
		return nil
	}
	d.Logger.Error("records could not be carried out", "error", err)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(tick):
	}
	d.wish("records were not carried out")
	return nil
}

// wishSoon asks for a new epoch, once a tick at most: a writer of garbage would
// have us ask, and the watcher answer, without end.
func (d *daemon) wishSoon(why string) {
	if time.Since(d.wished) < tick {
		d.later = why
		return
	}
	d.wished, d.later = time.Now(), ""
	d.wish(why)
}

// idle repeats an unanswered hello, opens what is not open, and tries again
// what waits.
func (d *daemon) idle(ctx context.Context) error {
	look := time.Since(d.looked) >= d.Heartbeat
	if look {
		d.looked = time.Now()
		d.acks.refresh()
		d.pipe.refresh()
	}
	if d.pipe.open() {
		d.wish("the pipe was opened")
	}
	if look {
		d.acks.open() // what is wrong with it is told also while nothing is to be sent
	}
	if d.later != "" {
		d.wishSoon(d.later)
	}
	d.greet()
	if !look && d.Engine.Exported() {
		return nil
	}
	return d.heal(ctx, d.hold(ctx, func(h *engine.Hold) error {
		d.look(h, false)
		return nil
	}))
}
