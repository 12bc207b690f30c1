package stream

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

func at(d time.Duration) time.Time { return start.Add(d) }

func TestBarrierOff(t *testing.T) {
	t.Parallel()
	b := NewBarrier(0)
	if d := b.Budget(at(0), Ticket{"e", 1}); d != 0 {
		t.Errorf("Budget = %v, want 0", d)
	}
	b.Skip()
	if got, want := b.Stats(), (BarrierStats{Skips: 2}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

func TestBarrierSpendsItsLimitInAnySecond(t *testing.T) {
	t.Parallel()
	b := NewBarrier(100 * ms)
	steps := []struct {
		at, want, wait time.Duration
	}{
		{0, 100 * ms, 40 * ms},
		{40 * ms, 60 * ms, 60 * ms},
		{500 * ms, 0, 0},
		{1000 * ms, 0, 0},             // the window is [0, 1000 ms]
		{1030 * ms, 30 * ms, 10 * ms}, // [30 ms, 1030 ms] holds 10 + 60 ms
		{3000 * ms, 100 * ms, 1 * ms},
	}
	for i, s := range steps {
		ticket := Ticket{"e", uint64(i + 1)}
		if d := b.Budget(at(s.at), ticket); d != s.want {
			t.Fatalf("step %d: Budget = %v, want %v", i, d, s.want)
		}
		if s.want > 0 {
			b.Waited(at(s.at), at(s.at+s.wait), ticket, Acked)
		}
	}
	if got, want := b.Stats(), (BarrierStats{Hits: 4, Skips: 2}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

func TestBarrierPromisesOnlyOnce(t *testing.T) {
	t.Parallel()
	b := NewBarrier(100 * ms)
	if d := b.Budget(at(0), Ticket{"e", 1}); d != 100*ms {
		t.Fatalf("Budget = %v, want 100ms", d)
	}
	// Handlers of an old and a new connection may overlap.
	if d := b.Budget(at(0), Ticket{"e", 2}); d != 0 {
		t.Fatalf("Budget of a second one meanwhile = %v, want 0", d)
	}
	b.Waited(at(0), at(30*ms), Ticket{"e", 1}, Acked)
	if d := b.Budget(at(30*ms), Ticket{"e", 3}); d != 70*ms {
		t.Errorf("Budget = %v, want 70ms", d)
	}
}

func TestBarrierAfterAMiss(t *testing.T) {
	t.Parallel()
	miss := func() *Barrier {
		b := NewBarrier(100 * ms)
		b.Budget(at(0), Ticket{"e1", 5})
		b.Waited(at(0), at(100*ms), Ticket{"e1", 5}, Waiting)
		return b
	}
	later := at(10 * time.Second)
	tests := []struct {
		name string
		then func(*Barrier)
		next Ticket
		want time.Duration
	}{
		{"nothing came", func(*Barrier) {}, Ticket{"e1", 6}, 0},
		{"an acknowledgement before it", func(b *Barrier) { b.Acked(Ticket{"e1", 4}) }, Ticket{"e1", 6}, 0},
		{"its acknowledgement", func(b *Barrier) { b.Acked(Ticket{"e1", 5}) }, Ticket{"e1", 6}, 100 * ms},
		{"one beyond it", func(b *Barrier) { b.Acked(Ticket{"e1", 9}) }, Ticket{"e1", 10}, 100 * ms},
		{"one of another epoch", func(b *Barrier) { b.Acked(Ticket{"e0", 9}) }, Ticket{"e1", 6}, 0},
		{"a new epoch", func(*Barrier) {}, Ticket{"e2", 3}, 100 * ms},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := miss()
			tt.then(b)
			if d := b.Budget(later, tt.next); d != tt.want {
				t.Errorf("Budget = %v, want %v", d, tt.want)
			}
		})
	}
}

func TestBarrierWaitThatItsEpochEnded(t *testing.T) {
	t.Parallel()
	b := NewBarrier(100 * ms)
	b.Budget(at(0), Ticket{"e1", 5})
	b.Waited(at(0), at(20*ms), Ticket{"e1", 5}, Ended)
	if d := b.Budget(at(20*ms), Ticket{"e2", 3}); d != 80*ms {
		t.Errorf("Budget in the new epoch = %v, want 80ms", d)
	}
	if got, want := b.Stats(), (BarrierStats{Misses: 1}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

// TestBarrierWindow: whatever is waited, and however callbacks overlap, no
// second holds more than the limit.
func TestBarrierWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit = 100 * ms
		b := NewBarrier(limit)
		var now time.Duration
		var waits []span
		open := map[Ticket]span{} // promised until end
		for i := range rapid.IntRange(1, 60).Draw(t, "starts") {
			now += time.Duration(rapid.IntRange(0, 400).Draw(t, "pause")) * ms
			for ticket, s := range open { // each ends by now, or sooner
				end := min(s.end.Sub(start), max(now, s.start.Sub(start)))
				b.Waited(s.start, at(end), ticket, Acked)
				waits = append(waits, span{s.start, at(end)})
				delete(open, ticket)
			}
			for k := range rapid.IntRange(1, 3).Draw(t, "at once") {
				ticket := Ticket{fmt.Sprint(i), uint64(k + 1)}
				if d := b.Budget(at(now), ticket); d > 0 {
					use := time.Duration(rapid.Int64Range(0, int64(d)).Draw(t, "use"))
					open[ticket] = span{at(now), at(now + use)}
				}
			}
		}
		for _, w := range waits {
			if spent := spentIn(waits, w.end); spent > limit {
				t.Fatalf("the second before %v holds %v of waiting", w.end.Sub(start), spent)
			}
		}
	})
}

// spentIn sums what of the waits lies in the second before end.
func spentIn(waits []span, end time.Time) time.Duration {
	var sum time.Duration
	for _, w := range waits {
		from, to := w.start, w.end
		if first := end.Add(-time.Second); from.Before(first) {
			from = first
		}
		if to.After(end) {
			to = end
		}
		sum += max(0, to.Sub(from))
	}
	return sum
}
