package stream

import (
	"bytes"
	"fmt"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// DefaultMaxSnapshot is the most bytes of lines that a snapshot may have: some
// 60,000 pods and containers of the usual 500 bytes, ten times what a big node
// holds (1,000 pods of five containers are 3 MB). The Receiver keeps a snapshot
// in memory until its end, so without a bound a broken writer could fill it.
const DefaultMaxSnapshot = 32 << 20

// Kind says what a line meant.
type Kind int

// Kinds of Input.
const (
	KindNothing      Kind = iota // nothing to do: an empty line, a part of a snapshot, a discarded line
	KindRecord                   // Record is the next change
	KindSnapshot                 // Snapshot is whole; it takes the place of all before
	KindHeartbeat                // Record is a HEARTBEAT
	KindRuntimeLost              // Record is a RUNTIME_LOST
	KindUnknownEvent             // Record's event is of a later version: count and skip it
	KindWantHello                // the stream is broken for Reason: say so, and say hello
)

// String returns the kind's name for logs and tests.
func (k Kind) String() string {
	names := []string{"nothing", "record", "snapshot", "heartbeat", "runtime_lost", "unknown_event", "want_hello"}
	if k < 0 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Snapshot is a whole SYNCHRONIZE: what is present on the node.
type Snapshot struct {
	Begin      lifecycle.Record // with the runtime, its version, the node
	Pods       []lifecycle.Pod
	Containers []lifecycle.Container
	EndSeq     uint64 // of its end: what an acknowledgement of it names
}

// Input is what a line meant.
type Input struct {
	Kind     Kind
	Record   *lifecycle.Record
	Snapshot *Snapshot
	Reason   string // of KindWantHello: what was wrong, for the log
	// Skipped, of KindSnapshot, is the number of lines that were discarded
	// between the break (or the wish) and this snapshot's begin.
	Skipped uint64
}

// ReceiverOptions are the settings of a Receiver.
type ReceiverOptions struct {
	// RequireHello discards everything until the first wish (Begin) and the
	// begin that answers it: the daemon's mode. Without it any begin counts
	// from the start, as under --stdin.
	RequireHello bool
	MaxSnapshot  int // bytes; 0 is DefaultMaxSnapshot
}

// Receiver is the applier's end of the pipe: it turns lines into whole
// snapshots and changes in their order, and tells when something is missing.
// It never guesses: after a gap nothing counts until an epoch begins.
//
// HEARTBEAT and RUNTIME_LOST pass at any time, also while all else is
// discarded: without a runtime no epoch begins and no wish is answered, and
// just then status must be able to say so. One that an earlier reader left in
// the pipe passes too; its own time tells its age, and a newer one follows.
type Receiver struct {
	opt ReceiverOptions

	wish    string // the unanswered hello
	mute    bool   // RequireHello, and no wish yet
	skipped uint64

	epoch    string // "" while everything up to a begin is discarded
	broken   bool   // and that is known to the caller
	seq      uint64 // of the last record taken
	snapshot *Snapshot
	size     int             // bytes of the snapshot's lines
	seen     map[string]bool // its pods and containers
}

// NewReceiver returns a Receiver that has read nothing.
func NewReceiver(opt ReceiverOptions) *Receiver {
	if opt.MaxSnapshot <= 0 {
		opt.MaxSnapshot = DefaultMaxSnapshot
	}
	return &Receiver{opt: opt, mute: opt.RequireHello}
}

// Begin says that a new wish was uttered: the pipe was opened, or something
// was missing. From now on everything is discarded up to the begin that
// carries helloID. Repeating a wish is not a new one.
func (r *Receiver) Begin(helloID string) {
	if helloID == "" || helloID == r.wish {
		return
	}
	r.wish, r.mute = helloID, false
	r.discard()
}

// Wish returns the hello that has no answer yet and is to be repeated, "" when
// there is none. One that was repeated for long is best given up for a new one
// (Begin): a watcher that has answered it, in a line that did not arrive whole,
// takes every repeat for one that starts nothing.
func (r *Receiver) Wish() string { return r.wish }

// Epoch returns the id of the epoch whose records count, "" while none does.
func (r *Receiver) Epoch() string { return r.epoch }

// Complete says whether nothing is missing: an epoch's snapshot was whole and
// every record since came in its order.
func (r *Receiver) Complete() bool { return r.epoch != "" && r.snapshot == nil }

// Line takes one line of the pipe, with or without its newline. The line's
// memory may be used again afterwards.
func (r *Receiver) Line(line []byte) Input {
	if len(bytes.TrimSpace(line)) == 0 {
		return Input{}
	}
	rec, err := lifecycle.Decode(line)
	if err != nil {
		return r.Bad(err.Error())
	}
	switch {
	case rec.Event == lifecycle.Heartbeat:
		return Input{Kind: KindHeartbeat, Record: rec}
	case rec.Event == lifecycle.RuntimeLost:
		return Input{Kind: KindRuntimeLost, Record: rec}
	case rec.Seq == 0: // Decode lets only unknown events through
		return Input{Kind: KindUnknownEvent, Record: rec}
	case rec.Event == lifecycle.Synchronize && rec.Phase == lifecycle.PhaseBegin:
		return r.begin(rec)
	case r.discarding():
		r.skipped++
		return Input{}
	}
	if in, ok := r.next(rec); !ok {
		return in
	}
	switch {
	case !rec.Event.Known():
		return Input{Kind: KindUnknownEvent, Record: rec}
	case r.snapshot != nil:
		return r.collect(rec, len(line))
	case rec.Event == lifecycle.Synchronize:
		return r.breakOff("record %d of epoch %s is part of a snapshot, after the snapshot's end", rec.Seq, rec.Epoch)
	}
	return Input{Kind: KindRecord, Record: rec}
}

// Bad takes a line that is no line of ours, for the reason that the reader
// found: one that is too long, say.
func (r *Receiver) Bad(reason string) Input {
	if r.discarding() {
		r.skipped++
		return Input{}
	}
	return r.breakOff("a line is no valid record: %s", reason)
}

// discarding says whether lines are silently discarded up to a begin. It is
// not so before the very first begin where none was asked for (--stdin): what
// comes instead of it is an error there.
func (r *Receiver) discarding() bool {
	return r.epoch == "" && (r.broken || r.mute || r.wish != "")
}

// begin takes the first record of an epoch. It counts if it answers the wish,
// or nobody wished for one.
func (r *Receiver) begin(rec *lifecycle.Record) Input {
	if r.mute || r.wish != "" && rec.Hello != r.wish {
		r.skipped++
		return Input{}
	}
	if rec.Seq != 1 {
		return r.breakOff("epoch %s begins with record %d, want 1", rec.Epoch, rec.Seq)
	}
	r.wish, r.broken = "", false
	r.epoch, r.seq = rec.Epoch, 1
	r.snapshot, r.size, r.seen = &Snapshot{Begin: *rec}, 0, map[string]bool{}
	return Input{}
}

// next checks that rec is the record that must come now, and steps on.
func (r *Receiver) next(rec *lifecycle.Record) (Input, bool) {
	switch {
	case r.epoch == "":
		return r.breakOff("record %d of epoch %s comes before any snapshot's begin", rec.Seq, rec.Epoch), false
	case rec.Epoch != r.epoch:
		return r.breakOff("record %d of epoch %s comes in epoch %s, without a begin", rec.Seq, rec.Epoch, r.epoch), false
	case rec.Seq != r.seq+1:
		return r.breakOff("record %d of epoch %s comes after record %d", rec.Seq, rec.Epoch, r.seq), false
	}
	r.seq = rec.Seq
	return Input{}, true
}

// collect takes a record of the snapshot that is being read.
func (r *Receiver) collect(rec *lifecycle.Record, size int) Input {
	r.size += size
	s := r.snapshot
	switch {
	case rec.Event != lifecycle.Synchronize:
		return r.breakOff("record %d of epoch %s is a %s inside the snapshot", rec.Seq, rec.Epoch, rec.Event)
	case r.size > r.opt.MaxSnapshot:
		return r.breakOff("the snapshot of epoch %s is larger than %d bytes", rec.Epoch, r.opt.MaxSnapshot)
	case rec.Pod != nil:
		if !r.first("pod " + rec.Pod.ID) {
			return r.breakOff("record %d of epoch %s names a pod for the second time in the snapshot", rec.Seq, rec.Epoch)
		}
		s.Pods = append(s.Pods, *rec.Pod)
		return Input{}
	case rec.Container != nil:
		if !r.first("container " + rec.Container.ID) {
			return r.breakOff("record %d of epoch %s names a container for the second time in the snapshot", rec.Seq, rec.Epoch)
		}
		s.Containers = append(s.Containers, *rec.Container)
		return Input{}
	case *rec.Pods != len(s.Pods) || *rec.Containers != len(s.Containers):
		return r.breakOff("the snapshot of epoch %s ends with %d pods and %d containers, but had %d and %d",
			rec.Epoch, *rec.Pods, *rec.Containers, len(s.Pods), len(s.Containers))
	}
	s.EndSeq = rec.Seq
	in := Input{Kind: KindSnapshot, Snapshot: s, Skipped: r.skipped}
	r.snapshot, r.seen, r.skipped = nil, nil, 0
	return in
}

func (r *Receiver) first(key string) bool {
	if r.seen[key] {
		return false
	}
	r.seen[key] = true
	return true
}

// breakOff ends the epoch for the reason given.
func (r *Receiver) breakOff(format string, args ...any) Input {
	r.discard()
	r.skipped, r.broken = 0, true
	return Input{Kind: KindWantHello, Reason: fmt.Sprintf(format, args...)}
}

// discard forgets the epoch; a snapshot that is cut off changes nothing.
func (r *Receiver) discard() {
	r.epoch, r.seq = "", 0
	r.snapshot, r.seen = nil, nil
}
