package world

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
)

// Options says what node to be. Its zero value is usable.
type Options struct {
	// Sim is the simulated CPU; nil is sim.DefaultConfig with 32 RMIDs.
	Sim *sim.Config
	// Clock is the simulated CPU's; nil is the machine's.
	Clock sim.Clock
	// Tasks are the node's tasks; nil is the processes of this machine that the
	// runtime starts.
	Tasks sim.TaskSource
	// Config replaces or adds settings: "watcher.queue_size" to a TOML value.
	Config map[string]string
	// NoRuntime leaves the runtime down until Runtime.Up is called.
	NoRuntime bool
}

// World is one node. Its methods are for one goroutine; what Runtime and Model
// allow is theirs.
type World struct {
	Dir     string
	Model   *sim.Model
	Cgroups *sim.Cgroups
	Mount   *fusemount.Mount
	Runtime *nrirt.Runtime

	Watcher *Daemon // the latest started; nil before the first
	Applier *Daemon

	shop *Workshop
	opts Options

	ctx    context.Context // ends with the world
	cancel context.CancelFunc
	runs   sync.WaitGroup // programs that run to their end

	mu      sync.Mutex
	daemons []*Daemon
	closed  bool

	ended  sync.Once
	endErr error
}

// New makes a node in a directory of its own. Nothing of ours runs yet.
func New(shop *Workshop, opts Options) (*World, error) {
	if err := shop.Build(); err != nil {
		return nil, err
	}
	w := &World{shop: shop, opts: opts}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	if err := w.make(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *World) make() (err error) {
	opts := w.opts
	if w.Dir, err = w.shop.room(w); err != nil {
		return err
	}
	for _, d := range []string{"run", "log", "lib", "out"} {
		if err := os.Mkdir(filepath.Join(w.Dir, d), 0o750); err != nil {
			return err
		}
	}
	cfg := sim.DefaultConfig()
	if opts.Sim != nil {
		cfg = *opts.Sim
	}
	source := opts.Tasks
	if source == nil {
		source = sim.NewProcSource("/proc", false)
	}
	clock := opts.Clock
	if clock == nil {
		clock = sim.RealClock{}
	}
	w.Model, w.Cgroups = sim.New(cfg, clock, source), sim.NewCgroups(source)
	w.Mount, err = fusemount.New(filepath.Join(w.Dir, "node"), fusemount.Options{
		Model: w.Model, Cgroups: w.Cgroups, Source: source, HostProc: "/proc",
	})
	if err != nil {
		return err
	}
	w.Runtime, err = nrirt.New(nrirt.Options{SocketPath: w.NRISocket(), Cgroups: cgroups{w.Cgroups}})
	if err != nil {
		return err
	}
	if opts.NoRuntime {
		w.Runtime.Down()
	}
	return w.WriteConfig(nil)
}

// cgroups is the simulator's tree as the runtime wants it.
type cgroups struct{ *sim.Cgroups }

// RemoveCgroup removes the cgroup; it may be gone already, or never have been
// there.
func (c cgroups) RemoveCgroup(path string) error {
	err := c.Cgroups.RemoveCgroup(path)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Context ends with the world.
func (w *World) Context() context.Context { return w.ctx }

// NRISocket is where plugins connect to the runtime.
func (w *World) NRISocket() string { return filepath.Join(w.Dir, "run", "nri.sock") }

// Pipe is the FIFO of lifecycle records.
func (w *World) Pipe() string { return filepath.Join(w.Dir, "run", "lifecycle.pipe") }

// AckPipe is the FIFO of acknowledgements.
func (w *World) AckPipe() string { return filepath.Join(w.Dir, "run", "ack.pipe") }

// Database is the state's file.
func (w *World) Database() string { return filepath.Join(w.Dir, "lib", "state.db") }

// EventLog is the event log's file.
func (w *World) EventLog() string { return filepath.Join(w.Dir, "out", "events.jsonl") }

// ConfigFile is the programs' configuration.
func (w *World) ConfigFile() string { return filepath.Join(w.Dir, "config.toml") }

// GroupPath is where the group of a pod with a plain UID lies under the root.
func (w *World) GroupPath(uid string) string {
	return filepath.Join(w.Mount.Resctrl(), "mon_groups", "pod_"+uid)
}

// Close ends every process, unmounts and removes the directory. It says what
// the programs should never have logged: a panic, a data race.
func (w *World) Close() error {
	w.ended.Do(func() { w.endErr = w.end() })
	return w.endErr
}

func (w *World) end() error {
	w.mu.Lock()
	w.closed = true
	daemons := w.daemons
	w.mu.Unlock()
	w.cancel()
	w.runs.Wait()

	var errs []error
	for _, d := range daemons {
		d.Kill()
		errs = append(errs, d.confessed())
	}
	if w.Runtime != nil {
		errs = append(errs, w.Runtime.Close())
	}
	if w.Mount != nil {
		errs = append(errs, w.Mount.Unmount())
	}
	if w.Dir != "" {
		errs = append(errs, os.RemoveAll(w.Dir))
	}
	w.shop.forget(w)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end the world at %s: %w", w.Dir, err)
	}
	return nil
}
