// Package watcher is nri-watcher: an NRI plugin that turns what the runtime
// says into lifecycle records on the pipe. It knows NRI and nothing of
// resctrl.
//
// Actors, each of which ends the others: the connection to the runtime, the
// writer of the pipe, the reader of the acknowledgements, the heartbeat. What
// they share is the pump.
package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/oklog/run"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
)

// InstanceLock is the name of the lock of the one watcher of a node.
const InstanceLock = "watcher"

// exitUnavailable is the exit code where a needed service or lock is not to be
// had (SPEC: 69).
const exitUnavailable = 69

// Notifier is told how the daemon fares, for people and the service manager.
type Notifier interface {
	Ready(status string)
	Status(status string)
	Stopping()
}

// Options is what a Watcher works with.
type Options struct {
	Config *config.Config
	Logger *slog.Logger

	// Stdout, where it is set, gets the records in place of the pipe; there
	// is no applier then, and no lock: it runs beside the daemon.
	Stdout io.Writer

	// LaunchedFD is the connection's file descriptor where the runtime
	// launched this program from its plugin directory (NRI_PLUGIN_SOCKET);
	// 0 connects to the socket. LaunchedName names the configuration that
	// the runtime gives then, and NewLogger makes the logger for it.
	LaunchedFD   int
	LaunchedName string
	NewLogger    func(config.Log) (*slog.Logger, error)

	Notifier Notifier // may be nil
	Clock    Clock    // nil is the system's

	onEvent func(lifecycle.Event) // tests: called in the handlers
}

// Watcher is the daemon.
type Watcher struct {
	opts  Options
	clock Clock
	fatal chan error // has room for the first

	mu     sync.Mutex
	log    *slog.Logger
	core   *core
	set    chan struct{} // closed when core is there
	status string        // the last told
}

// core is what depends on the configuration.
type core struct {
	cfg     *config.Config
	pump    *pump
	pipe    *pipe
	filter  filter
	release func() // the instance lock
}

// New gives a Watcher, which does nothing until Run.
func New(opts Options) *Watcher {
	if opts.Clock == nil {
		opts.Clock = systemClock{}
	}
	if opts.Notifier == nil {
		opts.Notifier = silence{}
	}
	return &Watcher{opts: opts, clock: opts.Clock, log: opts.Logger, fatal: make(chan error, 1), set: make(chan struct{})}
}

// Run lives until ctx ends, which is no error, or something ends it for good:
// another watcher has the lock, or the runtime that launched it has gone.
func (w *Watcher) Run(ctx context.Context) error {
	if w.opts.LaunchedFD == 0 {
		if err := w.configure(w.opts.Config); err != nil {
			return err
		}
	}
	defer func() {
		if c, ok := w.ready(); ok {
			c.release()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g run.Group
	w.actor(ctx, &g, w.supervise)
	w.actor(ctx, &g, w.runtime)
	w.actor(ctx, &g, w.whenReady(w.heartbeats))
	if w.opts.Stdout != nil {
		w.actor(ctx, &g, w.whenReady(w.toStdout))
	} else {
		w.actor(ctx, &g, w.whenReady(w.readReplies))
		w.actor(ctx, &g, w.whenReady(w.writeRecords))
	}
	err := g.Run()
	w.opts.Notifier.Stopping()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// actor adds an actor whose interrupt ends its context, which is what every
// one of them waits on.
func (w *Watcher) actor(ctx context.Context, g *run.Group, execute func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error { return execute(ctx) }, func(error) { cancel() })
}

// supervise is the actor that ends with the process's signal or with what is
// fatal. It runs when the others do, so it says so.
func (w *Watcher) supervise(ctx context.Context) error {
	w.opts.Notifier.Ready("starting")
	select {
	case err := <-w.fatal:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runtime is the actor of the connection.
func (w *Watcher) runtime(ctx context.Context) error {
	if w.opts.LaunchedFD != 0 {
		return w.launched(ctx, w.opts.LaunchedFD)
	}
	core, _ := w.ready()
	return (&connector{w: w, core: core}).run(ctx)
}

// whenReady waits for the configuration first.
func (w *Watcher) whenReady(execute func(context.Context, *core) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-w.set:
			c, _ := w.ready()
			return execute(ctx, c)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ready gives the core once there is one.
func (w *Watcher) ready() (*core, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.core, w.core != nil
}

// logger is the one to log to; a launched plugin's changes once, with its
// configuration.
func (w *Watcher) logger() *slog.Logger {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log
}

// configured takes the text of a Configure. Only a launched plugin gets one;
// an error in it ends the program, not the call.
func (w *Watcher) configured(text string) {
	if w.opts.LaunchedFD == 0 {
		return
	}
	if _, done := w.ready(); done {
		return
	}
	cfg := w.opts.Config
	var err error
	if text != "" {
		cfg, err = config.Parse(w.opts.LaunchedName, []byte(text))
	}
	if err == nil {
		err = w.configure(cfg)
	}
	if err != nil {
		select {
		case w.fatal <- err:
		default:
		}
	}
}

// configure makes the core: everything that the configuration decides.
func (w *Watcher) configure(cfg *config.Config) error {
	node := cfg.Events.Node
	if node == "" {
		var err error
		if node, err = os.Hostname(); err != nil {
			return fmt.Errorf("find the host's name (or set events.node): %w", err)
		}
	}
	barrier := cfg.Watcher.StartBarrier.Duration
	release := func() {}
	if w.opts.Stdout != nil {
		barrier = 0 // nobody acknowledges
	} else {
		var err error
		release, err = takeLock(filepath.Dir(cfg.Pipe.Path))
		if err != nil {
			return err
		}
	}
	c := &core{
		cfg: cfg, release: release, pipe: newPipe(),
		pump:   newPump(cfg.Watcher.QueueSize, barrier, node, w.clock),
		filter: filter{namespaces: cfg.Watcher.Namespaces, labels: cfg.Watcher.LabelSelector},
	}
	log := w.logger()
	if w.opts.LaunchedFD != 0 {
		c.pump.connecting() // the one connection is there already
		if w.opts.NewLogger != nil {
			var err error
			if log, err = w.opts.NewLogger(cfg.Log); err != nil {
				release()
				return err
			}
		}
	}
	w.mu.Lock()
	w.core, w.log = c, log
	w.mu.Unlock()
	close(w.set)
	return nil
}

// takeLock makes this process the one watcher of the node.
func takeLock(dir string) (release func(), err error) {
	release, err = lock.New(dir).Instance(InstanceLock)
	var held *lock.HeldError
	if errors.As(err, &held) {
		return nil, unavailable(fmt.Errorf("another nri-watcher runs: %w; stop it first, or give this one its own [pipe] paths", err))
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("take the lock of the one nri-watcher: %w", err))
	}
	return release, nil
}

// codedError has the exit code of the process.
type codedError struct{ error }

func (codedError) ExitCode() int { return exitUnavailable }

func (e codedError) Unwrap() error { return e.error }

func unavailable(err error) error { return codedError{err} }

// silence is nobody to tell.
type silence struct{}

func (silence) Ready(string)  {}
func (silence) Status(string) {}
func (silence) Stopping()     {}
