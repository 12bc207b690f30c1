package watcher

import (
	"context"
	"fmt"
)

// heartbeats is the actor that asks for a HEARTBEAT now and then, and has the
// paths looked at again.
func (w *Watcher) heartbeats(ctx context.Context, c *core) error {
	var told uint64
	for {
		over, stop := w.clock.After(c.cfg.Watcher.Heartbeat.Duration)
		select {
		case <-over:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
		c.pipe.recheck()
		c.pump.heartbeat()
		w.tellStatus()
		told = w.tellDropped(c, told)
	}
}

// tellDropped logs how many records were dropped since the count last told. At
// a heartbeat only: an overflow under load comes many times a second.
func (w *Watcher) tellDropped(c *core, told uint64) uint64 {
	st := c.pump.state().Sender
	if st.Dropped > told {
		w.logger().Warn("records were dropped, the applier did not take them in time or they could not be told; the next snapshot has what is left",
			"dropped", st.Dropped-told, "dropped_in_all", st.Dropped, "overflows_in_all", st.Overflows, "queue_size", c.cfg.Watcher.QueueSize)
	}
	return st.Dropped
}

// Alive says whether the records still flow from hand to hand, for the service
// manager's watchdog: a deadlock never returns.
func (w *Watcher) Alive() bool {
	if c, ok := w.ready(); ok {
		c.pump.state()
	}
	return true
}

// tellStatus tells the one line for people when it has changed.
func (w *Watcher) tellStatus() {
	c, ok := w.ready()
	if !ok {
		return
	}
	st := c.pump.state()
	line := "no connection to the runtime"
	if st.Connected {
		line = "watching the runtime"
	}
	if w.opts.Stdout == nil {
		if st.Reader {
			line += "; the applier reads"
		} else {
			line += "; no applier reads"
		}
	}
	if st.Sender.Dropped > 0 {
		line += fmt.Sprintf("; %d records dropped in %d overflows", st.Sender.Dropped, st.Sender.Overflows)
	}
	w.mu.Lock()
	changed := line != w.status
	w.status = line
	w.mu.Unlock()
	if changed {
		w.opts.Notifier.Status(line)
	}
}
