package watcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

const (
	// startTimeout bounds the registration. The runtime answers it when it
	// has synchronized the plugins before us; the stub itself gives up on the
	// answer after 5 s, but waits for Configure for ever (NRI v0.12).
	startTimeout = 30 * time.Second
	// syncTimeout bounds the time from there to Synchronize, which waits for
	// all requests in flight: for containerd also for the graceful stop of a
	// pod. To connect anew would only wait again, so this is generous.
	syncTimeout = 5 * time.Minute
	// releaseGrace is how long a stub may take to notice that its connection
	// was closed.
	releaseGrace = 2 * time.Second
)

var (
	errAbandoned   = errors.New("the connection was given up")
	errDropped     = errors.New("the runtime closed the connection")
	errNoConfigure = errors.New("the runtime did not register and configure the plugin in time")
	errNoSync      = errors.New("the runtime did not synchronize the plugin in time")
	errHandler     = errors.New("a handler failed")
)

// watchedConn says when the connection has ended. The stub does not: while it
// waits for Configure it hears nothing of its end (NRI v0.12).
type watchedConn struct {
	net.Conn
	ended signal
	mu    sync.Mutex // orders a write before a later Close, for the race detector too
}

func newWatchedConn(c net.Conn) *watchedConn {
	return &watchedConn{Conn: c, ended: newSignal()}
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.ended.set()
	}
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *watchedConn) Close() error {
	c.ended.set()
	err := c.Conn.Close() // first: it ends a Write that waits
	c.mu.Lock()
	defer c.mu.Unlock()
	return err
}

// connection is one attempt: one socket, one stub, one plugin. A stub whose
// Start failed never recovers, so none is used twice.
type connection struct {
	clock  Clock
	plugin *plugin
	conn   *watchedConn
	stub   stub.Stub
}

// newConnection makes the stub; opts are those of the identity.
func newConnection(clock Clock, p *plugin, conn net.Conn, opts ...stub.Option) (*connection, error) {
	c := &connection{clock: clock, plugin: p, conn: newWatchedConn(conn)}
	s, err := stub.New(p, append(opts,
		stub.WithConnection(c.conn),
		stub.WithLogger(nriLog{p}),
		stub.WithOnClose(c.conn.ended.set))...)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("make the NRI stub: %w", err)
	}
	c.stub = s
	return c, nil
}

// run lives until the connection ends or ctx does. The error says why it
// ended, in its chain one of the errors above.
func (c *connection) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // lets the handlers that still wait return
	started := make(chan error, 1)
	go func() { started <- c.stub.Start(ctx) }()

	err := c.register(ctx, started)
	if err != nil {
		return err
	}
	defer c.stub.Stop()
	err = c.await(ctx, c.plugin.synced.c, syncTimeout, errNoSync)
	if err != nil {
		return err
	}
	return c.await(ctx, nil, 0, nil)
}

// register waits for Start. Where that does not end by itself it is made to.
func (c *connection) register(ctx context.Context, started chan error) error {
	over, stop := c.clock.After(startTimeout)
	defer stop()
	var why error
	select {
	case err := <-started:
		if err != nil {
			c.conn.Close()
			return fmt.Errorf("register with the runtime: %w", err)
		}
		return nil
	case <-c.conn.ended.c:
		why = errDropped
	case <-over:
		why = errNoConfigure
	case <-ctx.Done():
		why = ctx.Err()
	}
	c.release(started)
	return why
}

// release ends a Start that hangs: the end of the connection ends its
// registration, but its wait for Configure only ends by a Configure.
func (c *connection) release(started chan error) {
	c.plugin.abandoned.Store(true)
	c.conn.Close()
	grace := time.NewTimer(releaseGrace)
	defer grace.Stop()
	poll := time.NewTimer(releaseGrace / 40)
	defer poll.Stop()
	for {
		select {
		case err := <-started:
			if err == nil {
				c.stub.Stop()
			}
			return
		case <-poll.C:
			if s, ok := c.stub.(interface {
				Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error)
			}); ok {
				go s.Configure(context.Background(), &api.ConfigureRequest{})
			}
		case <-grace.C:
			c.plugin.w.logger().Warn("the NRI stub does not end; going on without it")
			return
		}
	}
}

// await waits for what is wanted, at most for limit unless that is 0, and for
// the end of the connection.
func (c *connection) await(ctx context.Context, wanted <-chan struct{}, limit time.Duration, late error) error {
	var over <-chan time.Time
	if limit > 0 {
		var stop func()
		over, stop = c.clock.After(limit)
		defer stop()
	}
	select {
	case <-wanted:
		return nil
	case <-c.conn.ended.c:
		return errDropped
	case <-c.plugin.failed.c:
		return errHandler
	case <-over:
		return late
	case <-ctx.Done():
		return ctx.Err()
	}
}
