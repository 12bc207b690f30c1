package watcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

const limit = 100 * time.Millisecond

// gate is a pump that is connected, with an applier that reads or without.
type gate struct {
	t     *testing.T
	clock *fakeClock
	pump  *pump
	gen   generation
	n     int
}

func newGate(t *testing.T, barrier time.Duration, applier bool) *gate {
	clock := newFakeClock()
	g := &gate{t: t, clock: clock, pump: newPump(100, barrier, "node", clock)}
	g.gen = g.pump.connecting()
	inv := stream.Inventory{Pods: []lifecycle.Pod{{ID: "s1", UID: "u1"}}}
	if !g.pump.synchronized(g.gen, inv, "containerd", "v2") {
		t.Fatal("the newest connection does not count")
	}
	if applier {
		g.pump.open()
		g.drain()
	}
	return g
}

// drain writes what there is to write.
func (g *gate) drain() {
	for {
		if _, ok := g.pump.next(); !ok {
			return
		}
	}
}

// start begins a START_CONTAINER; the channel is closed when its callback
// returns.
func (g *gate) start(ctx context.Context) <-chan struct{} {
	g.n++
	rec := lifecycle.Record{Event: lifecycle.StartContainer,
		Pod:       &lifecycle.Pod{ID: "s1", UID: "u1"},
		Container: &lifecycle.Container{ID: fmt.Sprint("c", g.n), PodSandboxID: "s1", State: lifecycle.ContainerCreated, PID: g.n}}
	done := make(chan struct{})
	go func() {
		g.pump.start(ctx, g.gen, rec)
		close(done)
	}()
	return done
}

// wantReturn is that a callback returns without any time passing.
func (g *gate) wantReturn(done <-chan struct{}, why string) {
	g.t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		g.t.Fatalf("the callback waits, although %s", why)
	}
}

func (g *gate) want(hits, misses, skips uint64) {
	g.t.Helper()
	want := stream.BarrierStats{Hits: hits, Misses: misses, Skips: skips}
	if got := g.pump.state().Barrier; got != want {
		g.t.Errorf("counts %+v, want %+v", got, want)
	}
}

// ack acknowledges all that was told.
func (g *gate) ack() {
	g.pump.mu.Lock()
	epoch := g.pump.sender.Epoch()
	g.pump.mu.Unlock()
	// The begin, one pod, the end, the starts.
	g.pump.acked(lifecycle.Ack{Epoch: epoch, Seq: uint64(3 + g.n)})
}

func TestBarrierHit(t *testing.T) {
	t.Parallel()
	g := newGate(t, limit, true)
	done := g.start(t.Context())
	g.clock.waitFor(limit)
	g.clock.advance(30 * time.Millisecond)
	select {
	case <-done:
		t.Fatal("it did not wait for its acknowledgement")
	default:
	}
	g.ack()
	g.wantReturn(done, "its acknowledgement came")
	g.want(1, 0, 0)
}

func TestBarrierMissThenNoWaitUntilAcknowledged(t *testing.T) {
	t.Parallel()
	g := newGate(t, limit, true)
	done := g.start(t.Context())
	g.clock.waitFor(limit)
	g.clock.advance(limit)
	g.wantReturn(done, "its time is over")
	g.want(0, 1, 0)

	g.clock.advance(time.Hour)
	g.wantReturn(g.start(t.Context()), "the applier has not caught up")
	g.want(0, 1, 1)

	g.ack()
	done = g.start(t.Context())
	g.clock.waitFor(limit)
	g.ack()
	g.wantReturn(done, "its acknowledgement came")
	g.want(1, 1, 1)
}

func TestBarrierNeverTakesMoreThanItsLimitInASecond(t *testing.T) {
	t.Parallel()
	g := newGate(t, limit, true)
	spent := time.Duration(0)
	for range 4 { // 40 ms each: 100 ms hold two and a half
		left := limit - spent
		done := g.start(t.Context())
		if left <= 0 {
			g.wantReturn(done, "the second's time is used up")
			continue
		}
		g.clock.waitFor(left) // never promised more than what is left
		wait := min(left, 40*time.Millisecond)
		g.clock.advance(wait)
		spent += wait
		if wait == 40*time.Millisecond {
			g.ack()
		}
		g.wantReturn(done, "it was acknowledged, or the second's time is used up")
	}
	g.want(2, 1, 1)
	g.ack()
	g.clock.advance(time.Second)
	done := g.start(t.Context())
	g.clock.waitFor(limit) // all of it again
	g.ack()
	g.wantReturn(done, "its acknowledgement came")
}

func TestBarrierDoesNotWait(t *testing.T) {
	t.Parallel()
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, 0, true)
		g.wantReturn(g.start(t.Context()), "the barrier is off")
		g.want(0, 0, 1)
	})
	t.Run("no applier", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, limit, false)
		g.wantReturn(g.start(t.Context()), "nobody reads the pipe")
		g.want(0, 0, 1)
	})
	t.Run("applier has gone", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, limit, true)
		g.pump.broken()
		g.wantReturn(g.start(t.Context()), "nobody reads the pipe any more")
		g.want(0, 0, 1)
	})
	t.Run("old connection", func(t *testing.T) {
		t.Parallel()
		g := newGate(t, limit, true)
		g.pump.connecting()
		g.wantReturn(g.start(t.Context()), "the connection is not the newest")
		g.want(0, 0, 0)
		if _, ok := g.pump.next(); ok {
			t.Error("an old connection's event was told")
		}
	})
}

// TestBarrierEnds is what ends a wait before its time.
func TestBarrierEnds(t *testing.T) {
	t.Parallel()
	tests := map[string]func(g *gate, cancel func()){
		"another epoch":      func(g *gate, _ func()) { g.pump.hello("h1") },
		"the pipe is gone":   func(g *gate, _ func()) { g.pump.broken() },
		"a new reader":       func(g *gate, _ func()) { g.pump.open() },
		"synchronized anew":  func(g *gate, _ func()) { g.pump.synchronized(g.gen, stream.Inventory{}, "", "") },
		"the request is off": func(_ *gate, cancel func()) { cancel() },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, limit, true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := g.start(ctx)
			g.clock.waitFor(limit)
			end(g, cancel)
			g.wantReturn(done, name)
			g.want(0, 1, 0)
		})
	}
}

// TestBarrierOfManyAtOnce starts many callbacks at the same time, as a runtime
// would not: together they get no more than the limit.
func TestBarrierOfManyAtOnce(t *testing.T) {
	t.Parallel()
	g := newGate(t, limit, true)
	var all []<-chan struct{}
	for range 10 {
		all = append(all, g.start(t.Context()))
	}
	g.clock.waitFor(limit)
	eventually(t, "all but one are skipped", func() bool { return g.pump.state().Barrier.Skips == 9 })
	g.ack()
	for _, done := range all {
		g.wantReturn(done, "it was acknowledged or skipped")
	}
	g.want(1, 0, 9)
}
