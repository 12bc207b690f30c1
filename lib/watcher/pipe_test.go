package watcher

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// newPipeBench has a watcher that writes to the FIFO.
func newPipeBench(t *testing.T) *bench {
	b := newBench(t)
	b.opts.Stdout = nil
	b.opts.Config.Watcher.Heartbeat.Duration = 10 * time.Millisecond
	return b
}

func TestHelloBringsASnapshot(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	r := b.runtime()
	pod(t, r, "web", "app")
	b.run()
	a := newReader(t, b.opts.Config.Pipe).read()
	first := a.hello("h1")
	if len(first.pods) != 1 || len(first.containers) != 1 {
		t.Errorf("%+v", first)
	}
	a.say(`{"hello":"h1"}`) // a repeat starts nothing
	a.say("garbage")
	pod(t, r, "new")
	if rec := a.next(t); rec.Event != lifecycle.RunPodSandbox || rec.Epoch != first.begin.Epoch || rec.Seq != 5 {
		t.Errorf("after a repeated hello: %+v", rec)
	}
	second := a.hello("h2")
	if len(second.pods) != 2 || second.begin.Epoch == first.begin.Epoch {
		t.Errorf("%+v", second)
	}
}

func TestApplierBeforeTheRuntime(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	b.opts.Config.Watcher.Heartbeat.Duration = time.Hour
	b.run()
	a := newReader(t, b.opts.Config.Pipe).read()
	a.say(`{"hello":"h1"}`)
	// A new reader is told at once how things are.
	if rec := a.any(t); rec.Event != lifecycle.Heartbeat || rec.RuntimeState != "disconnected" {
		t.Fatalf("without a runtime: %+v", rec)
	}
	b.runtime()
	a.answer("h1")
}

// TestReaderVanishesIdle has the applier go and come while nothing happens.
func TestReaderVanishesIdle(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	b.opts.Config.Watcher.Heartbeat.Duration = time.Hour // which would notice it
	r := b.runtime()
	pod(t, r, "web")
	w := b.run()
	a := newReader(t, b.opts.Config.Pipe).read()
	first := a.hello("h1")
	a.close()
	<-a.end
	core := configured(t, w)
	eventually(t, "its end is noticed", func() bool { return !core.pump.state().Reader })
	must(t, r.RemovePod(onlyPod(first)))
	second := newReader(t, b.opts.Config.Pipe).read().hello("h2")
	if len(second.pods) != 0 || second.begin.Epoch == first.begin.Epoch {
		t.Errorf("%+v", second)
	}
}

// configured gives the core once Run has made it.
func configured(t *testing.T, w *Watcher) *core {
	t.Helper()
	<-w.set
	c, _ := w.ready()
	return c
}

func onlyPod(s snapshot) string {
	for _, p := range s.pods {
		return p.ID
	}
	return ""
}

// TestStalledReader fills the pipe and the queue; the runtime is not held up.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	b.opts.Config.Watcher.QueueSize = 20
	r := b.runtime()
	w := b.run()
	a := newReader(t, b.opts.Config.Pipe)
	a.say(`{"hello":"h1"}`)
	core := configured(t, w)
	eventually(t, "an epoch was begun", func() bool { return core.pump.state().Sender.Epochs > 0 })
	sandbox, _ := pod(t, r, "web")
	c, err := r.CreateContainer(sandbox, "app", nrirt.ContainerOptions{PID: 1})
	must(t, err)
	must(t, r.StartContainer(c))
	for core.pump.state().Sender.Overflows == 0 {
		must(t, r.Update(c))
	}
	a.read()
	a.heartbeat("the dropped records", func(rec *lifecycle.Record) bool { return *rec.QueueDropped >= 20 })
	if s := a.hello("h2"); len(s.containers) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPathsAreReplaced(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	r := b.runtime()
	pod(t, r, "web")
	b.run()
	cfg := b.opts.Config.Pipe
	a := newReader(t, cfg).read()
	a.hello("h1")
	must(t, os.Remove(cfg.Path))
	must(t, os.Remove(cfg.AckPath))
	if s := newReader(t, cfg).read().hello("h2"); len(s.pods) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestNoFIFO(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"pipe", "acknowledgements"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			b := newPipeBench(t)
			cfg := b.opts.Config.Pipe
			path := cfg.Path
			if which == "acknowledgements" {
				path = cfg.AckPath
			}
			must(t, os.MkdirAll(b.dir+"/run", 0o750))
			must(t, os.WriteFile(path, []byte("mine"), 0o600))
			r := b.runtime()
			b.run()
			pod(t, r, "web", "app") // is not held up
			eventually(t, "it is said", func() bool { return b.log.count(path) > 0 })
			if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
				t.Errorf("the file was changed: %q, %v", text, err)
			}
			must(t, os.Remove(path))
			newReader(t, cfg).read().hello("h1")
		})
	}
}

// TestBarrierOnTheWire has an applier that acknowledges, and then does not.
func TestBarrierOnTheWire(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	b.opts.Config.Watcher.StartBarrier.Duration = time.Hour // the runtime's own limit is 2 s
	r := b.runtime()
	sandbox, _ := pod(t, r, "web")
	b.run()
	a := newReader(t, b.opts.Config.Pipe).read()
	epoch := a.hello("h1").begin.Epoch
	c, err := r.CreateContainer(sandbox, "app", nrirt.ContainerOptions{PID: 1})
	must(t, err)
	started := make(chan error, 1)
	go func() { started <- r.StartContainer(c) }()
	rec := a.want(t, lifecycle.PostCreateContainer, lifecycle.StartContainer)[1]
	select {
	case <-started:
		t.Fatal("the start did not wait for its acknowledgement")
	default:
	}
	a.ack("another", rec.Seq)
	a.ack(epoch, rec.Seq-1)
	a.ack(epoch, rec.Seq+100) // of what was never sent
	select {
	case <-started:
		t.Fatal("the start took another record's acknowledgement for its own")
	default:
	}
	a.ack(epoch, rec.Seq)
	must(t, <-started)
	a.heartbeat("the hit", func(rec *lifecycle.Record) bool { return *rec.BarrierHits == 1 && *rec.BarrierMisses == 0 })
}

func TestBarrierOnTheWireMisses(t *testing.T) {
	t.Parallel()
	b := newPipeBench(t)
	b.opts.Config.Watcher.StartBarrier.Duration = time.Millisecond
	r := b.runtime()
	w := b.run()
	core := configured(t, w)
	eventually(t, "the runtime has synchronized", func() bool { return core.pump.state().Connected })
	pod(t, r, "before", "app") // no applier: a skip
	a := newReader(t, b.opts.Config.Pipe).read()
	a.hello("h1")
	pod(t, r, "web", "app", "side") // nothing is acknowledged: a miss and a skip
	a.heartbeat("a miss and two skips", func(rec *lifecycle.Record) bool {
		return *rec.BarrierHits == 0 && *rec.BarrierMisses == 1 && *rec.BarrierSkips == 2
	})
}

// TestStdoutEndsThoughNobodyReads is not parallel: no other writer may be there
// to be mistaken for this one.
func TestStdoutEndsThoughNobodyReads(t *testing.T) {
	var fds [2]int
	must(t, unix.Pipe2(fds[:], unix.O_CLOEXEC)) // blocking, as a shell's
	in, out := os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
	t.Cleanup(func() { in.Close(); out.Close() })
	// Full to the last byte: poll(2) tells of whole pages only.
	filler, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fds[1]), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(filler)
	for err == nil {
		_, err = unix.Write(filler, []byte{'\n'})
	}

	b := newBench(t)
	b.opts.Stdout = out
	b.run() // the cleanup ends it
	eventually(t, "it writes", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("watcher.writeAll("))
	})
}
