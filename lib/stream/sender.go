// Package stream is the handshake between nri-watcher and resctrl-applier as
// pure state machines: snapshot then changes, epochs, hellos, acknowledgements
// and the start barrier's budget. It has no goroutines, does no I/O and reads
// no clock but the one it is given; whoever uses a value from several
// goroutines locks it.
package stream

import (
	"fmt"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// DefaultQueueSize is the number of changes that wait for a stalled applier
// where nothing else is said: some minutes of a busy node in a few MB.
const DefaultQueueSize = 8192

// SenderOptions are the settings of a Sender.
type SenderOptions struct {
	QueueSize int              // changes that may wait; 0 is DefaultQueueSize
	Node      string           // told in every begin
	NewEpoch  func() string    // a random id, never the same twice; not empty
	Now       func() time.Time // the time of records
}

// Ticket is a record's place in the stream: what an acknowledgement must reach
// so that the record was attempted on resctrl.
type Ticket struct {
	Epoch string
	Seq   uint64
}

// Settlement says what became of a ticket.
type Settlement int

// Settlements of a ticket.
const (
	Waiting Settlement = iota // neither of the others yet
	Acked                     // an acknowledgement reached it
	Ended                     // its epoch is over: no acknowledgement of it counts any more
)

// BarrierStats are the start barrier's counts since the watcher's start.
type BarrierStats struct {
	Hits, Misses, Skips uint64
}

// SenderStats are a Sender's counts since it was made.
type SenderStats struct {
	Dropped    uint64 // changes that an overflow took away, and Untellable
	Untellable uint64 // pods, containers and records that fit in no line (see Sender.Event)
	Overflows  uint64
	Epochs     uint64 // epochs begun
	Queued     int    // changes that wait now
}

// Sender is the watcher's end of the pipe. It keeps the present pods and
// containers, and turns what the runtime says into the lines of the pipe. What
// is lost, for whatever reason, is made good by a new epoch: a snapshot and
// the changes after it.
//
// An epoch is over as soon as something needs a new one, and the new one
// begins with the next call of Next after which a snapshot may be given: a
// reader is there (Opened) and the runtime has synchronized on the present
// connection (Synchronized). In between changes only go into the inventory.
type Sender struct {
	opt SenderOptions

	inv     inventory
	synced  bool
	runtime string
	version string

	opened  bool
	hello   string // the newest read
	touched bool   // something was written since Opened

	// The epoch; epoch is "" while there is none.
	epoch    string
	begun    time.Time
	snapshot Inventory // being told
	snapNext int       // the snapshot's next line: 0 is the empty line, 1 begin, …
	seq      uint64    // of the newest change
	queue    queue
	acked    uint64
	overflow bool // the next epoch heals an overflow

	heartbeat *BarrierStats
	lost      bool // a RUNTIME_LOST waits

	stats SenderStats
}

// NewSender returns a Sender with an empty inventory, no runtime and no reader.
func NewSender(opt SenderOptions) *Sender {
	if opt.QueueSize <= 0 {
		opt.QueueSize = DefaultQueueSize
	}
	opt.Node = cut(opt.Node)
	return &Sender{opt: opt, inv: newInventory()}
}

// Synchronized says that the runtime has told everything that is present, on a
// new connection. A new epoch begins.
func (s *Sender) Synchronized(inv Inventory, runtime, version string) {
	s.untellable(s.inv.load(inv))
	s.runtime, s.version = cut(runtime), cut(version)
	s.synced, s.lost = true, false
	s.endEpoch()
}

// RuntimeLost says that the connection to the runtime ended. The changes that
// wait are still told; a snapshot that is not told to its end is not, because
// nobody knows whether it is still true. Events are ignored until Synchronized.
func (s *Sender) RuntimeLost() {
	if !s.synced {
		return
	}
	s.synced = false
	s.lost = s.opened
	if s.telling() {
		s.endEpoch()
	}
}

// Event takes what the runtime said: a record with event, pod and container,
// without v, epoch, seq and time. It changes the inventory and, while an epoch
// runs, gives the record its place; then the result is true.
//
// An event of a container that is not there, and that does not bring it, is
// not told (see inventory.apply). A pod or container that fits in no line can
// never be told, in a snapshot as little as in a record, so it does not come
// into the inventory, its records are counted as dropped, and no new epoch
// begins for it, which could not heal it: one whose ids or paths are missing,
// no UTF-8, have a NUL byte or are longer than maxKey. Names that are too long
// are cut. If an earlier form of it was tellable, that one stays.
func (s *Sender) Event(rec lifecycle.Record) (Ticket, bool) {
	if !s.synced {
		return Ticket{}, false
	}
	if err := fit(&rec); err != nil {
		s.untellable(1)
		return Ticket{}, false
	}
	if !s.inv.apply(&rec) {
		return Ticket{}, false
	}
	if s.overflow {
		s.stats.Dropped++
	}
	if s.epoch == "" {
		return Ticket{}, false
	}
	if s.queue.len() >= s.opt.QueueSize {
		s.stats.Dropped += uint64(s.queue.len()) + 1
		s.stats.Overflows++
		s.endEpoch()
		s.overflow = true
		return Ticket{}, false
	}
	s.seq++
	rec.V, rec.Epoch, rec.Seq, rec.Time = lifecycle.Version, s.epoch, s.seq, s.opt.Now()
	s.queue.push(rec)
	return Ticket{Epoch: s.epoch, Seq: s.seq}, true
}

// fit makes rec tellable, or says why it cannot be told. The caller's pod and
// container stay as they are.
func fit(rec *lifecycle.Record) error {
	if rec.Pod != nil {
		p := *rec.Pod
		rec.Pod = &p
		if err := fitPod(rec.Pod); err != nil {
			if !rec.Event.OfContainer() {
				return err
			}
			rec.Pod = nil // the container can still be told, above all its removal
		}
	}
	if rec.Container != nil {
		c := *rec.Container
		rec.Container = &c
		if err := fitContainer(rec.Container); err != nil {
			return err
		}
	}
	rec.Normalize()
	switch {
	case rec.Event.OfPod() && rec.Pod != nil, rec.Event.OfContainer() && rec.Container != nil:
		return nil
	}
	return fmt.Errorf("record %q tells nothing of a pod or container", rec.Event)
}

// Hello takes a hello that was read from the acknowledgement FIFO. A new one
// wants a new epoch; a repeat of the newest starts nothing.
func (s *Sender) Hello(id string) {
	if id == "" || id == s.hello || len(id) > lifecycle.MaxHelloID {
		return
	}
	s.hello = id
	s.endEpoch()
}

// Acked takes an acknowledgement that was read from the acknowledgement FIFO.
// It returns the highest place acknowledged in the present epoch, and whether
// this one raised it; one of another epoch, or of what was never sent, does not.
func (s *Sender) Acked(ack lifecycle.Ack) (Ticket, bool) {
	raised := s.epoch != "" && ack.Epoch == s.epoch && ack.Seq > s.acked && ack.Seq <= s.seq
	if raised {
		s.acked = ack.Seq
	}
	return Ticket{Epoch: s.epoch, Seq: s.acked}, raised
}

// Settled says what became of a ticket. It can change with each call of
// Synchronized, RuntimeLost, Event (by an overflow), Hello, Acked, Opened and
// Broken, never with Next.
func (s *Sender) Settled(t Ticket) Settlement {
	switch {
	case t.Epoch == "" || t.Epoch != s.epoch:
		return Ended
	case t.Seq <= s.acked:
		return Acked
	}
	return Waiting
}

// Epoch returns the id of the running epoch, "" while there is none.
func (s *Sender) Epoch() string { return s.epoch }

// Opened says that the pipe was opened and has a reader. What an earlier
// reader got is nothing to this one: a new epoch begins.
func (s *Sender) Opened() {
	s.endEpoch()
	s.opened, s.touched = true, false
}

// Broken says that the pipe is gone: a write failed, the reader went away, the
// path was replaced. What waited is covered by the next epoch.
func (s *Sender) Broken() {
	s.endEpoch()
	s.opened, s.heartbeat, s.lost, s.overflow = false, nil, false, false
}

// Heartbeat queues a HEARTBEAT; one that still waits is replaced. Without a
// reader it is ignored.
func (s *Sender) Heartbeat(b BarrierStats) {
	if s.opened {
		s.heartbeat = &b
	}
}

// Connected says whether the runtime has synchronized on the present connection.
func (s *Sender) Connected() bool { return s.synced }

// Stats returns the counts.
func (s *Sender) Stats() SenderStats {
	st := s.stats
	st.Queued = s.queue.len()
	return st
}

// Inventory returns what is present, in a stable order.
func (s *Sender) Inventory() Inventory { return s.inv.list() }

// endEpoch ends the epoch, if there is one. The next one is due by that alone.
func (s *Sender) endEpoch() {
	s.epoch, s.seq, s.acked, s.snapNext = "", 0, 0, 0
	s.snapshot = Inventory{}
	s.queue.clear()
}

func (s *Sender) untellable(n int) {
	s.stats.Untellable += uint64(n)
	s.stats.Dropped += uint64(n)
}
