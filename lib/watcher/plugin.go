package watcher

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// plugin is what the runtime calls on one connection. No method returns an
// error or panics: the runtime would fail the pod's operation for it, or this
// program would end with the pods' events.
type plugin struct {
	w   *Watcher
	gen generation

	runtime, version string // told in Configure
	abandoned        atomic.Bool
	synced           signal // the runtime has told what is present
	failed           signal // a handler could not do its work
}

// signal is a channel that is closed once.
type signal struct {
	once sync.Once
	c    chan struct{}
}

func newSignal() signal { return signal{c: make(chan struct{})} }

func (s *signal) set() { s.once.Do(func() { close(s.c) }) }

func (s *signal) isSet() bool {
	select {
	case <-s.c:
		return true
	default:
		return false
	}
}

func newPlugin(w *Watcher, gen generation) *plugin {
	return &plugin{w: w, gen: gen, synced: newSignal(), failed: newSignal()}
}

// guard is deferred by every handler. After a panic the connection is made
// anew, so that a snapshot heals what was not told.
func (p *plugin) guard(event string) {
	if r := recover(); r != nil {
		p.w.logger().Error("a handler of the runtime's events failed; connecting anew", "event", event, "panic", r, "stack", string(debug.Stack()))
		p.failed.set()
	}
}

// Configure takes the runtime's name and, where the runtime launched this
// program, its configuration. The zero mask subscribes to all that has a
// handler here.
func (p *plugin) Configure(_ context.Context, text, runtime, version string) (mask api.EventMask, err error) {
	if p.abandoned.Load() {
		return 0, errAbandoned // not the runtime: see connection.release
	}
	defer p.guard("Configure")
	p.runtime, p.version = runtime, version
	p.w.configured(text)
	return 0, nil
}

// Synchronize takes everything that is present.
func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) (_ []*api.ContainerUpdate, err error) {
	defer p.guard("Synchronize")
	core, ok := p.w.ready()
	if !ok {
		return nil, nil
	}
	inv := core.filter.inventory(pods, containers)
	if core.pump.synchronized(p.gen, inv, p.runtime, p.version) {
		p.w.logger().Info("synchronized with the runtime", "runtime", p.runtime, "runtime_version", p.version,
			"pods", len(inv.Pods), "containers", len(inv.Containers))
		p.synced.set()
		p.w.tellStatus()
	}
	return nil, nil
}

// tell forwards an event that nobody waits for.
func (p *plugin) tell(event lifecycle.Event, pod *api.PodSandbox, container *api.Container) {
	defer p.guard(string(event))
	if core, rec, ok := p.record(event, pod, container); ok {
		core.pump.event(p.gen, rec)
	}
}

// record makes an event's record; false if it is not to be forwarded.
func (p *plugin) record(event lifecycle.Event, pod *api.PodSandbox, container *api.Container) (*core, lifecycle.Record, bool) {
	core, ok := p.w.ready()
	if !ok || !core.filter.wants(pod) {
		return nil, lifecycle.Record{}, false
	}
	if p.w.opts.onEvent != nil {
		p.w.opts.onEvent(event)
	}
	return core, lifecycle.Record{Event: event, Pod: podOf(pod), Container: containerOf(container)}, true
}

// RunPodSandbox is NRI's event of that name, as are all below.
func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.tell(lifecycle.RunPodSandbox, pod, nil)
	return nil
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.tell(lifecycle.StopPodSandbox, pod, nil)
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.tell(lifecycle.RemovePodSandbox, pod, nil)
	return nil
}

func (p *plugin) PostCreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.tell(lifecycle.PostCreateContainer, pod, c)
	return nil
}

// StartContainer is the one that waits: the container's first process exists
// and runs the user's program only after this has returned.
func (p *plugin) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	defer p.guard(string(lifecycle.StartContainer))
	if core, rec, ok := p.record(lifecycle.StartContainer, pod, c); ok {
		if waited, acked := core.pump.start(ctx, p.gen, rec); waited > 0 {
			p.w.logger().Debug("a container's start waited for its group", "container_id", rec.Container.ID, "ack_wait", waited, "acknowledged", acked)
		}
	}
	return nil
}

func (p *plugin) PostStartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.tell(lifecycle.PostStartContainer, pod, c)
	return nil
}

func (p *plugin) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.tell(lifecycle.PostUpdateContainer, pod, c)
	return nil
}

func (p *plugin) StopContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.tell(lifecycle.StopContainer, pod, c)
	return nil, nil
}

func (p *plugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.tell(lifecycle.RemoveContainer, pod, c)
	return nil
}
