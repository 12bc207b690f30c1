package watcher

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// patience bounds what a test waits for; it is never part of what is tested.
const patience = 30 * time.Second

// output is a standard output whose records the test reads one by one.
type output struct {
	mu    sync.Mutex
	all   bytes.Buffer
	lines chan string
}

func newOutput() *output { return &output{lines: make(chan string, 10000)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Write(p)
	if line := strings.TrimSuffix(string(p), "\n"); line != "" {
		o.lines <- line
	}
	return len(p), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// next is the next record in the sequence.
func (o *output) next(t *testing.T) *lifecycle.Record {
	t.Helper()
	for {
		rec := o.any(t)
		if rec.Event != lifecycle.Heartbeat && rec.Event != lifecycle.RuntimeLost {
			return rec
		}
	}
}

// any is the next record.
func (o *output) any(t *testing.T) *lifecycle.Record {
	t.Helper()
	select {
	case line := <-o.lines:
		rec, err := lifecycle.Decode([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		return rec
	case <-time.After(patience):
		t.Fatal("no record came")
		return nil
	}
}

// snapshot reads a whole SYNCHRONIZE.
type snapshot struct {
	begin      *lifecycle.Record
	pods       map[string]lifecycle.Pod       // by name
	containers map[string]lifecycle.Container // by name
}

func (o *output) snapshot(t *testing.T) snapshot {
	t.Helper()
	begin := o.next(t)
	if begin.Event != lifecycle.Synchronize || begin.Phase != lifecycle.PhaseBegin || begin.Seq != 1 {
		t.Fatalf("instead of a begin: %+v", begin)
	}
	return o.rest(t, begin)
}

// rest reads a SYNCHRONIZE whose begin was read.
func (o *output) rest(t *testing.T, begin *lifecycle.Record) snapshot {
	t.Helper()
	s := snapshot{begin: begin, pods: map[string]lifecycle.Pod{}, containers: map[string]lifecycle.Container{}}
	for seq := uint64(2); ; seq++ {
		rec := o.next(t)
		if rec.Event != lifecycle.Synchronize || rec.Epoch != s.begin.Epoch || rec.Seq != seq {
			t.Fatalf("in a snapshot: %+v", rec)
		}
		switch {
		case rec.Pod != nil:
			s.pods[rec.Pod.Name] = *rec.Pod
		case rec.Container != nil:
			s.containers[rec.Container.Name] = *rec.Container
		case rec.Phase == lifecycle.PhaseEnd:
			if *rec.Pods != len(s.pods) || *rec.Containers != len(s.containers) {
				t.Fatalf("the end counts %d pods and %d containers, there were %d and %d",
					*rec.Pods, *rec.Containers, len(s.pods), len(s.containers))
			}
			return s
		}
	}
}

// want reads the next records' events.
func (o *output) want(t *testing.T, events ...lifecycle.Event) []*lifecycle.Record {
	t.Helper()
	var all []*lifecycle.Record
	for _, e := range events {
		rec := o.next(t)
		if rec.Event != e {
			t.Fatalf("got %s, want %s", rec.Event, e)
		}
		all = append(all, rec)
	}
	return all
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

func (b *logBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// bench is a watcher to test, not yet running.
type bench struct {
	t    *testing.T
	dir  string
	opts Options
	out  *output
	log  *logBuffer
	done chan error
	end  context.CancelFunc
}

// newBench has a watcher on --stdout with a configuration for tests.
func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "nriw") // a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Watcher.NRISocket = filepath.Join(dir, "nri.sock")
	cfg.Watcher.ReconnectBackoffMax.Duration = time.Millisecond
	cfg.Pipe.Path, cfg.Pipe.AckPath = filepath.Join(dir, "run", "lifecycle.pipe"), filepath.Join(dir, "run", "ack.pipe")
	cfg.Events.Node = "node-1"
	b := &bench{t: t, dir: dir, out: newOutput(), log: &logBuffer{}}
	b.opts = Options{Config: cfg, Stdout: b.out,
		Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	return b
}

// run runs the watcher until the test ends.
func (b *bench) run() *Watcher {
	b.t.Helper()
	w := New(b.opts)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	b.done, b.end = done, cancel
	b.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				b.t.Errorf("the watcher ended with %v", err)
			}
		case <-time.After(patience):
			b.t.Error("the watcher does not end")
		}
		if b.t.Failed() {
			b.t.Log(b.log.text())
		}
	})
	return w
}

// runtime starts a runtime on the bench's socket.
func (b *bench) runtime() *nrirt.Runtime {
	b.t.Helper()
	r, err := nrirt.New(nrirt.Options{SocketPath: b.opts.Config.Watcher.NRISocket})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return r
}

// pod runs a pod with containers, which run as well, all without processes.
func pod(t *testing.T, r *nrirt.Runtime, name string, containers ...string) (sandbox string, ids []string) {
	t.Helper()
	sandbox, err := r.RunPod(name, "ns", "uid-"+name, nrirt.PodOptions{PID: 50})
	must(t, err)
	for i, c := range containers {
		id, err := r.CreateContainer(sandbox, c, nrirt.ContainerOptions{PID: 100 + i})
		must(t, err)
		must(t, r.StartContainer(id))
		ids = append(ids, id)
	}
	return sandbox, ids
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, nrirt.WaitFor(ctx, what, ok))
}

// once gives a hook that does f at the first call of the method.
func once(method string, f func(context.Context) error) (hook nrirt.Hook, calls func() int) {
	var mu sync.Mutex
	n := 0
	hook = func(ctx context.Context, m string) error {
		if m != method {
			return nil
		}
		mu.Lock()
		n++
		first := n == 1
		mu.Unlock()
		if first {
			return f(ctx)
		}
		return nil
	}
	return hook, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}
