package watcher

import (
	"context"
	"fmt"
)

// heartbeats is the actor that asks for a HEARTBEAT now and then, and has the
// paths looked at again.
func (w *Watcher) heartbeats(ctx context.Context, c *core) error {
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
	}
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
