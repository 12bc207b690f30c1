package stream

import "time"

// barrierWindow is the span in which all waits together stay under the limit:
// "at most start_barrier in any second".
const barrierWindow = time.Second

// Barrier is the budget of the start barrier: how long the START_CONTAINER
// callback may wait for its acknowledgement. The runtime runs all callbacks of
// the node one after another, so what one of them waits, all of them wait.
type Barrier struct {
	limit    time.Duration
	spent    []span // waits that reach into the window, oldest first
	reserved map[Ticket]time.Duration
	missed   Ticket // the highest place that was waited for in vain; zero: none
	stats    BarrierStats
}

// span is a wait from start until end.
type span struct{ start, end time.Time }

// NewBarrier returns a Barrier with the limit start_barrier; 0 is off.
func NewBarrier(limit time.Duration) *Barrier {
	return &Barrier{limit: limit, reserved: map[Ticket]time.Duration{}}
}

// Budget says how long the callback of the record with ticket t may wait from
// now on. Above 0 it is a promise: the caller waits that long at most and then
// says Waited. 0 is a skip, already counted: the barrier is off, the last
// second is used up, or an earlier wait of this epoch was in vain and no
// acknowledgement at or beyond it has come since.
func (b *Barrier) Budget(now time.Time, t Ticket) time.Duration {
	if b.missed.Epoch != t.Epoch {
		b.missed = Ticket{} // a new epoch
	}
	left := b.limit
	for _, s := range b.recent(now) {
		left -= s.end.Sub(s.start)
	}
	for _, d := range b.reserved {
		left -= d
	}
	if b.missed != (Ticket{}) || left <= 0 {
		b.stats.Skips++
		return 0
	}
	b.reserved[t] = left
	return left
}

// Skip counts a start that was not waited for because its record has no
// ticket: no applier, or no epoch yet.
func (b *Barrier) Skip() { b.stats.Skips++ }

// Waited takes the end of a wait that Budget allowed. how is what the Sender
// says of the ticket at its end: Acked is a hit; Waiting (the budget is spent)
// a miss, after which nobody waits until Acked or another epoch; Ended is a
// miss too, but nothing to hold against the new epoch.
func (b *Barrier) Waited(start, end time.Time, t Ticket, how Settlement) {
	delete(b.reserved, t)
	if end.After(start) {
		b.spent = append(b.recent(end), span{start, end})
	}
	if how == Acked {
		b.stats.Hits++
		return
	}
	b.stats.Misses++
	if how == Waiting && (b.missed.Epoch != t.Epoch || b.missed.Seq < t.Seq) {
		b.missed = t
	}
}

// Acked takes what Sender.Acked returned: the highest place acknowledged.
func (b *Barrier) Acked(t Ticket) {
	if t.Epoch == b.missed.Epoch && t.Seq >= b.missed.Seq {
		b.missed = Ticket{}
	}
}

// Stats returns the counts.
func (b *Barrier) Stats() BarrierStats { return b.stats }

// recent drops the waits that no longer reach into the window before now, and
// cuts off what of the others lies before it.
func (b *Barrier) recent(now time.Time) []span {
	from := now.Add(-barrierWindow)
	kept := b.spent[:0]
	for _, s := range b.spent {
		if !s.end.After(from) {
			continue
		}
		if s.start.Before(from) {
			s.start = from
		}
		kept = append(kept, s)
	}
	b.spent = kept
	return kept
}
