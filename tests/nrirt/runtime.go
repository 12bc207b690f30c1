// Package nrirt is a container runtime for tests and the demo: it keeps pods
// and containers the way containerd does and tells plugins of them with NRI's
// own runtime side (github.com/containerd/nri/pkg/adaptation), so that the
// genuine protocol runs over a real socket. Containers are real processes when
// asked for, held at a gate until StartContainer's callbacks have returned, as
// runc holds its init process.
//
// A program that starts containers with it must call RunWorkload first thing
// in main (or TestMain): the containers' processes are that same program.
package nrirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/ttrpc"
)

// Options says what runtime to be. The zero value of each but SocketPath is
// usable.
type Options struct {
	SocketPath      string // where plugins connect; its directory is made
	PluginDir       string // plugins to launch, NN-name; "" launches none
	PluginConfigDir string // their NN-name.conf; "" has none
	Name            string // "containerd"
	Version         string // "v2.4.2"

	Cgroups       Cgroups   // where processes go; nil is a MemoryCgroups
	SystemdCgroup bool      // name cgroups as the systemd driver does
	Output        io.Writer // standard output and error of the workloads; nil drops them
}

// Runtime is a running runtime. All methods may be called concurrently; those
// on one pod or container one after another.
type Runtime struct {
	opts Options
	cg   Cgroups

	life sync.Mutex // held by Up, Down and Close

	mu         sync.Mutex
	nri        *adaptation.Adaptation // nil while down
	front      *front                 // nil while down
	hook       Hook
	hookCtx    context.Context // ends at Down: a hook that waits is let go
	hookEnd    context.CancelFunc
	pods       map[string]*pod
	containers map[string]*container
	serial     int
	boot       int // how often the runtime came up
}

// ErrDown is returned for what needs a runtime that is up.
var ErrDown = errors.New("the runtime is down")

// ErrNotFound is returned for a sandbox or container that is not known.
var ErrNotFound = errors.New("no such sandbox or container")

// New starts a runtime.
func New(opts Options) (*Runtime, error) {
	if opts.Name == "" {
		opts.Name = "containerd"
	}
	if opts.Version == "" {
		opts.Version = "v2.4.2"
	}
	r := &Runtime{
		opts: opts, cg: opts.Cgroups,
		pods: map[string]*pod{}, containers: map[string]*container{},
	}
	if r.cg == nil {
		r.cg = NewMemoryCgroups()
	}
	return r, r.Up()
}

// Up starts the runtime's NRI side again after Down; the plugins of PluginDir
// are launched and synchronized before it returns.
func (r *Runtime) Up() error {
	r.life.Lock()
	defer r.life.Unlock()
	r.mu.Lock()
	up := r.nri != nil
	r.mu.Unlock()
	if up {
		return nil
	}

	// The adaptation listens where nobody looks and the front relays to it:
	// the adaptation has no way to close the connections that it accepted,
	// as the end of a runtime's process does.
	inner := hiddenAddress()
	ctx, end := context.WithCancel(context.Background())
	n, err := adaptation.New(r.opts.Name, r.opts.Version, r.synchronize, noUpdates,
		adaptation.WithSocketPath(inner),
		adaptation.WithPluginPath(orNowhere(r.opts.PluginDir)),
		adaptation.WithPluginConfigPath(orNowhere(r.opts.PluginConfigDir)),
		adaptation.WithTTRPCOptions(
			[]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(r.interceptCall)},
			[]ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(r.interceptRequest)}),
	)
	if err != nil {
		end()
		return fmt.Errorf("make the NRI adaptation: %w", err)
	}
	r.mu.Lock()
	r.hookCtx, r.hookEnd = ctx, end
	r.takeStock()
	r.mu.Unlock()
	if err := n.Start(); err != nil {
		end()
		return fmt.Errorf("start the NRI adaptation: %w", err)
	}
	f, err := newFront(r.opts.SocketPath, inner)
	if err != nil {
		n.Stop()
		end()
		return err
	}
	r.mu.Lock()
	r.nri, r.front = n, f
	r.mu.Unlock()
	return nil
}

// takeStock begins a new life of the runtime: it notices what ended while it
// was down. r.mu is held.
func (r *Runtime) takeStock() {
	r.boot++
	for _, c := range r.containers {
		if c.state == running && c.proc != nil && !c.proc.alive() {
			c.state = exited
		}
		if c.state != exited {
			c.boot = r.boot
		}
	}
}

// Down ends the runtime's NRI side as the end of its process would: every
// connection closes without a word and the socket is gone. Pods, containers
// and processes live on.
func (r *Runtime) Down() {
	r.life.Lock()
	defer r.life.Unlock()
	r.mu.Lock()
	n, f, end := r.nri, r.front, r.hookEnd
	r.nri, r.front = nil, nil
	r.mu.Unlock()
	if n == nil {
		return
	}
	end()
	f.close()
	n.Stop()
}

// Restart is Down and Up. Afterwards, as with containerd, containers that
// exited are unknown to plugins, and pods from before end without a word
// (FACTS: no StopPodSandbox and RemovePodSandbox for them).
func (r *Runtime) Restart() error {
	r.Down()
	return r.Up()
}

// Close ends the runtime and every process of its containers, and waits for
// them.
func (r *Runtime) Close() error {
	r.Down()
	r.mu.Lock()
	var procs []*process
	for _, c := range r.containers {
		procs = append(procs, c.processes()...)
	}
	for _, p := range r.pods {
		if p.pause != nil {
			procs = append(procs, p.pause)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, p := range procs {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}

// CutConnections closes every plugin's connection; plugins may connect again.
func (r *Runtime) CutConnections() {
	r.mu.Lock()
	f := r.front
	r.mu.Unlock()
	if f != nil {
		f.cut()
	}
}

// Connections counts the connections that plugins have open (those launched
// from PluginDir not counted).
func (r *Runtime) Connections() int {
	r.mu.Lock()
	f := r.front
	r.mu.Unlock()
	if f == nil {
		return 0
	}
	return f.count()
}

// Accepted counts the connections that plugins have opened since the last Up.
func (r *Runtime) Accepted() int {
	r.mu.Lock()
	f := r.front
	r.mu.Unlock()
	if f == nil {
		return 0
	}
	return f.total()
}

// SilenceNRI drops what NRI's own packages log. It is for TestMain: the
// logger is one for the process.
func SilenceNRI() { nrilog.Set(silent{}) }

type silent struct{}

func (silent) Debugf(context.Context, string, ...any) {}
func (silent) Infof(context.Context, string, ...any)  {}
func (silent) Warnf(context.Context, string, ...any)  {}
func (silent) Errorf(context.Context, string, ...any) {}

// noUpdates refuses a plugin's unsolicited updates: nobody here makes any.
func noUpdates(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return nil, errors.New("this runtime updates no containers")
}

// orNowhere keeps the adaptation from its default directories, which are the
// host's.
func orNowhere(dir string) string {
	if dir == "" {
		return "/nonexistent/nrirt"
	}
	return dir
}

// WaitFor asks until ok says yes or the time is over.
func WaitFor(ctx context.Context, what string, ok func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// executable is this program, which is every container's too.
func executable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the program for the containers: %w", err)
	}
	return strings.TrimSuffix(path, " (deleted)"), nil
}
