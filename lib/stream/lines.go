package stream

import (
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// The runtime's states in a HEARTBEAT.
const (
	RuntimeConnected    = "connected"
	RuntimeDisconnected = "disconnected"
)

// emptyLine begins an epoch: it ends the half line that an earlier writer may
// have left in the pipe.
var emptyLine = []byte("\n")

// Next returns the next whole line to write, its newline included; false: there
// is nothing to write now, or no reader. The caller writes it whole, or says
// Broken. An epoch that is due begins here, so the caller asks for a line only
// when the pipe has taken the one before.
func (s *Sender) Next() (line []byte, ok bool) {
	if !s.opened {
		return nil, false
	}
	if s.epoch == "" && s.synced {
		s.beginEpoch()
	}
	if rec, ok := s.outOfBand(); ok {
		if !s.touched {
			s.touched = true // the heartbeat stays; see emptyLine
			return emptyLine, true
		}
		s.heartbeat, s.lost = s.clearTold(rec.Event)
		return s.encode(rec)
	}
	if s.telling() {
		s.touched = true
		return s.snapshotLine()
	}
	if rec, ok := s.queue.pop(); ok {
		return s.encode(rec)
	}
	return nil, false
}

// clearTold returns what still waits outside the sequence when told was written.
func (s *Sender) clearTold(told lifecycle.Event) (*BarrierStats, bool) {
	if told == lifecycle.RuntimeLost {
		return s.heartbeat, false
	}
	return nil, s.lost
}

// outOfBand returns the record outside the sequence that is to be written
// next. These do not wait behind a long queue: they tell that it is long.
func (s *Sender) outOfBand() (lifecycle.Record, bool) {
	state := RuntimeDisconnected
	if s.synced {
		state = RuntimeConnected
	}
	rec := lifecycle.Record{V: lifecycle.Version, Epoch: s.epoch, Time: s.opt.Now(), RuntimeState: state}
	switch {
	case s.lost:
		rec.Event = lifecycle.RuntimeLost
	case s.heartbeat != nil:
		b, dropped := *s.heartbeat, s.stats.Dropped
		rec.Event = lifecycle.Heartbeat
		rec.QueueDropped, rec.BarrierHits, rec.BarrierMisses, rec.BarrierSkips = &dropped, &b.Hits, &b.Misses, &b.Skips
	default:
		return rec, false
	}
	return rec, true
}

// beginEpoch takes the snapshot and gives its lines and all changes after them
// their places.
func (s *Sender) beginEpoch() {
	s.epoch = s.opt.NewEpoch()
	s.begun = s.opt.Now()
	s.snapshot = s.inv.list()
	s.snapNext = 0
	s.seq = uint64(len(s.snapshot.Pods)+len(s.snapshot.Containers)) + 2 // begin and end
	s.overflow = false
	s.stats.Epochs++
}

// telling says whether the snapshot has lines left.
func (s *Sender) telling() bool {
	// The empty line, begin, the pods, the containers, end.
	return s.epoch != "" && s.snapNext < len(s.snapshot.Pods)+len(s.snapshot.Containers)+3
}

// snapshotLine returns the snapshot's next line.
func (s *Sender) snapshotLine() ([]byte, bool) {
	pods, containers := len(s.snapshot.Pods), len(s.snapshot.Containers)
	n := s.snapNext
	s.snapNext++
	if n == 0 {
		return emptyLine, true
	}
	rec := lifecycle.Record{V: lifecycle.Version, Epoch: s.epoch, Seq: uint64(n), Time: s.begun, Event: lifecycle.Synchronize}
	switch i := n - 2; {
	case n == 1:
		rec.Phase, rec.Hello = lifecycle.PhaseBegin, s.hello
		rec.Runtime, rec.RuntimeVersion, rec.Node = s.runtime, s.version, s.opt.Node
	case i < pods:
		rec.Pod = &s.snapshot.Pods[i]
	case i < pods+containers:
		rec.Container = &s.snapshot.Containers[i-pods]
	default:
		rec.Phase, rec.Pods, rec.Containers = lifecycle.PhaseEnd, &pods, &containers
	}
	line, ok := s.encode(rec)
	if rec.Phase == lifecycle.PhaseEnd {
		s.snapshot, s.snapNext = Inventory{}, 3 // told; its memory goes
	}
	return line, ok
}

// encode makes a line. It cannot fail: what goes in was made to fit (see
// maxKey), and the only other value with an error is a time out of RFC 3339's
// range, which no clock of a node gives.
func (s *Sender) encode(rec lifecycle.Record) ([]byte, bool) {
	line, err := lifecycle.Encode(rec)
	if err != nil {
		rec.Time = time.Unix(0, 0).UTC()
		line, err = lifecycle.Encode(rec)
	}
	if err != nil {
		s.endEpoch() // never a gap: rather a new epoch
		return nil, false
	}
	return line, true
}
