package watcher

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// backoffs are the waits between attempts: what was asked of the clock that is
// none of the other limits.
func (c *fakeClock) backoffs(others ...time.Duration) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.asked), func(d time.Duration) bool { return slices.Contains(others, d) })
}

// wantBackoffs lets time pass until there were as many waits as are wanted,
// each between half of it and itself.
func wantBackoffs(t *testing.T, clock *fakeClock, others []time.Duration, want ...time.Duration) {
	t.Helper()
	for n := range want {
		eventually(t, "it waits before it connects again", func() bool { return len(clock.backoffs(others...)) > n })
		clock.advance(clock.backoffs(others...)[n])
	}
	for n, most := range want {
		if got := clock.backoffs(others...)[n]; got < most/2 || got > most {
			t.Errorf("wait %d was %s, want %s to %s", n, got, most/2, most)
		}
	}
}

func TestBackoffWithoutASocket(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clock := newFakeClock()
	b.opts.Clock = clock
	b.opts.Config.Watcher.ReconnectBackoffMax.Duration = 30 * time.Second
	b.opts.Config.Watcher.Heartbeat.Duration = time.Hour
	b.run()
	wantBackoffs(t, clock, []time.Duration{time.Hour},
		firstBackoff, 2*firstBackoff, absentBackoff, absentBackoff, absentBackoff)
}

// TestBackoffOfARuntimeThatDrops must not come down while every connection is
// dropped, and not go above the configured time.
func TestBackoffOfARuntimeThatDrops(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	clock := newFakeClock()
	b.opts.Clock = clock
	b.opts.Config.Watcher.ReconnectBackoffMax.Duration = 8 * time.Second
	b.opts.Config.Watcher.Heartbeat.Duration = time.Hour
	r := b.runtime()
	r.SetHook(func(_ context.Context, method string) error {
		if method == "Synchronize" {
			return nrirt.ErrCut
		}
		return nil
	})
	b.run()
	wantBackoffs(t, clock, []time.Duration{time.Hour, startTimeout, syncTimeout},
		firstBackoff, 2*firstBackoff, 4*firstBackoff, 8*firstBackoff, 16*firstBackoff, 16*firstBackoff)
	// A connection that lasts ends it.
	waits := func() []time.Duration { return clock.backoffs(time.Hour, startTimeout, syncTimeout) }
	eventually(t, "it waits before it connects again", func() bool { return len(waits()) == 7 })
	r.SetHook(nil)
	clock.advance(waits()[6])
	b.out.snapshot(t)
	clock.advance(8 * time.Second)
	r.CutConnections()
	eventually(t, "it waits before it connects again", func() bool { return len(waits()) == 8 })
	if got := waits()[7]; got > firstBackoff {
		t.Errorf("after a connection that lasted it waits %s", got)
	}
}

func TestOnlyTheNewestConnectionCounts(t *testing.T) {
	t.Parallel()
	g := newGate(t, limit, true)
	old := g.gen
	newest := g.pump.connecting()
	inv := stream.Inventory{Pods: []lifecycle.Pod{{ID: "s9", UID: "u9"}}}
	if g.pump.synchronized(old, inv, "old", "") {
		t.Error("an old connection's synchronize counts")
	}
	if !g.pump.synchronized(newest, stream.Inventory{}, "new", "") {
		t.Error("the newest connection's synchronize does not count")
	}
	g.pump.lost(old)
	if !g.pump.state().Connected {
		t.Error("an old connection's end counts")
	}
	g.pump.lost(newest)
	if g.pump.state().Connected {
		t.Error("the newest connection's end does not count")
	}
}
