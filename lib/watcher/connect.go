package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	nrinet "github.com/containerd/nri/pkg/net"
	"github.com/containerd/nri/pkg/stub"
)

const (
	// firstBackoff is the shortest wait before connecting again. A
	// registration while a pod is being stopped holds up the whole runtime
	// until that is done (containerd issue 14083), so it is never hurried.
	firstBackoff = 500 * time.Millisecond
	// absentBackoff is the longest wait while there is no socket: to look for
	// it costs the runtime nothing.
	absentBackoff = 2 * time.Second
)

// connector keeps the watcher connected to the runtime.
type connector struct {
	w    *Watcher
	core *core
	told string // what was last told of why there is no connection
	wait time.Duration
}

// run connects and connects again until ctx ends.
func (c *connector) run(ctx context.Context) error {
	for {
		began := c.w.clock.Now()
		err := c.attempt(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		most := c.core.cfg.Watcher.ReconnectBackoffMax.Duration
		if c.tell(err) == "absent" {
			most = min(most, absentBackoff)
		}
		// Only a connection that lasted counts as one: a runtime that drops
		// us after every synchronize is left in peace as well.
		if c.w.clock.Now().Sub(began) >= most {
			c.wait = 0
		}
		c.wait = min(max(2*c.wait, firstBackoff), most)
		over, stop := c.w.clock.After(jitter(c.wait))
		select {
		case <-over:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// jitter is between half of d and d, so that the plugins of a node do not
// come back all at once.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}

// attempt is one connection from dial to end.
func (c *connector) attempt(ctx context.Context) error {
	cfg := c.core.cfg.Watcher
	var d net.Dialer
	socket, err := d.DialContext(ctx, "unix", cfg.NRISocket)
	if err != nil {
		return err
	}
	gen := c.core.pump.connecting()
	p := newPlugin(c.w, gen)
	conn, err := newConnection(c.w.clock, p, socket,
		stub.WithPluginName(cfg.PluginName), stub.WithPluginIdx(cfg.PluginIndex))
	if err != nil {
		return err
	}
	err = conn.run(ctx)
	c.core.pump.lost(gen)
	if p.synced.isSet() {
		c.told = "" // it was connected in between
	}
	c.w.tellStatus()
	return err
}

// tell logs why there is no connection, once for each reason in a row, and
// gives the reason a name.
func (c *connector) tell(err error) string {
	socket := c.core.cfg.Watcher.NRISocket
	log := c.w.logger().With("nri_socket", socket, "error", err)
	var reason string
	say := log.Warn
	var advice string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		reason, say = "absent", log.Info
		advice = "the NRI socket is not there: waiting for it; start the runtime and enable NRI in its configuration (containerd: disable = false under plugins.\"io.containerd.nri.v1.nri\"; CRI-O: enable_nri = true), or set watcher.nri_socket"
	case errors.Is(err, syscall.ECONNREFUSED):
		reason, say = "absent", log.Info
		advice = "nobody listens on the NRI socket: waiting for the runtime to start"
	case errors.Is(err, fs.ErrPermission):
		reason = "permission"
		advice = "the NRI socket may not be opened: run this program as root, or as a user who may"
	case errors.Is(err, errDropped), errors.Is(err, errHandler):
		reason = "dropped"
		advice = "the connection to the runtime is lost: connecting again"
	default:
		reason = "failed"
		advice = "no connection to the runtime: trying again; its log says more"
	}
	if c.told == reason {
		say = log.Debug
	}
	c.told = reason
	say(advice)
	return reason
}

// launched serves the one connection that the runtime gave to this program
// when it launched it (NRI_PLUGIN_SOCKET), and returns when that ends.
func (w *Watcher) launched(ctx context.Context, fd int) error {
	socket, err := nrinet.NewFdConn(fd)
	if err != nil {
		return fmt.Errorf("use the connection that the runtime gave: %w", err)
	}
	const gen = generation(1)
	p := newPlugin(w, gen)
	conn, err := newConnection(w.clock, p, socket) // name and index are in the environment
	if err != nil {
		return err
	}
	err = conn.run(ctx)
	if core, ok := w.ready(); ok {
		core.pump.lost(gen)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !p.synced.isSet() {
		return unavailable(fmt.Errorf("launched by the runtime, never synchronized: %w", err))
	}
	w.logger().Info("the runtime that launched this plugin has gone; ending with it", "reason", err)
	return nil
}
