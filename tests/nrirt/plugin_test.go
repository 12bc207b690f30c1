package nrirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"
)

// recorder is a plugin that writes down what it is told.
type recorder struct {
	mu     sync.Mutex
	lines  []string
	synced chan []string // the pods and containers of each Synchronize, sorted
	closed chan struct{}
	start  func(*api.Container) // called in StartContainer
}

func (p *recorder) add(word string, pod *api.PodSandbox, c *api.Container) {
	line := word + " " + pod.GetName()
	if c != nil {
		line += fmt.Sprintf("/%s %s %d", c.GetName(), strings.TrimPrefix(c.GetState().String(), "CONTAINER_"), c.GetPid())
	} else {
		line += fmt.Sprintf(" %d", pod.GetPid())
	}
	p.mu.Lock()
	p.lines = append(p.lines, line)
	p.mu.Unlock()
}

// take gives the lines so far and forgets them.
func (p *recorder) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

func (p *recorder) Synchronize(_ context.Context, pods []*api.PodSandbox, cs []*api.Container) ([]*api.ContainerUpdate, error) {
	var all []string
	for _, pod := range pods {
		all = append(all, fmt.Sprintf("%s %d", pod.Name, pod.Pid))
	}
	for _, c := range cs {
		all = append(all, fmt.Sprintf("%s %s %d", c.Name, c.State, c.Pid))
	}
	slices.Sort(all)
	p.synced <- all
	return nil, nil
}
func (p *recorder) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.add("run", pod, nil)
	return nil
}
func (p *recorder) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.add("stop", pod, nil)
	return nil
}
func (p *recorder) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.add("remove", pod, nil)
	return nil
}
func (p *recorder) PostCreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.add("created", pod, c)
	return nil
}
func (p *recorder) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	if p.start != nil {
		p.start(c)
	}
	p.add("start", pod, c)
	return nil
}
func (p *recorder) PostStartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.add("started", pod, c)
	return nil
}
func (p *recorder) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.add("updated", pod, c)
	return nil
}
func (p *recorder) StopContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.add("stop", pod, c)
	return nil, nil
}
func (p *recorder) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.add("remove", pod, c)
	return nil
}

// connect starts a new stub for the plugin, which ends with the test.
func (p *recorder) connect(t *testing.T, socket string) {
	t.Helper()
	p.synced, p.closed = make(chan []string, 1), make(chan struct{})
	s, err := stub.New(p, stub.WithPluginName("recorder"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket),
		stub.WithOnClose(sync.OnceFunc(func() { close(p.closed) })))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
}

func (p *recorder) wantSync(t *testing.T, want ...string) {
	t.Helper()
	if got := <-p.synced; !slices.Equal(got, want) {
		t.Errorf("synchronized with %q, want %q", got, want)
	}
}

func (p *recorder) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, p.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// newRuntime starts a runtime that ends with the test.
func newRuntime(t *testing.T, opts Options) *Runtime {
	t.Helper()
	dir, err := os.MkdirTemp("", "nrirt") // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	opts.SocketPath = filepath.Join(dir, "nri.sock")
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// must takes the error of a call that may not fail.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
