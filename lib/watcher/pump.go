package watcher

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

// pump is the one place where the runtime's callbacks, the pipe and the
// acknowledgements meet: a stream.Sender and the start barrier under one lock,
// which is never held while anything waits.
type pump struct {
	clock Clock

	mu      sync.Mutex
	sender  *stream.Sender
	barrier *stream.Barrier
	newest  generation    // the connection whose events count
	settled chan struct{} // closed, and replaced, when a ticket may have settled
	opened  bool          // the pipe has a reader

	wake chan struct{} // has a value when there may be a line to write
}

// generation numbers the connections to the runtime. Handlers of an old one
// may still run when a new one is there already.
type generation uint64

func newPump(queue int, barrier time.Duration, node string, clock Clock) *pump {
	return &pump{
		clock: clock,
		sender: stream.NewSender(stream.SenderOptions{
			QueueSize: queue, Node: node, NewEpoch: rand.Text, Now: clock.Now,
		}),
		barrier: stream.NewBarrier(barrier),
		settled: make(chan struct{}),
		wake:    make(chan struct{}, 1),
	}
}

// connecting makes a new connection the one whose events count.
func (p *pump) connecting() generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest++
	return p.newest
}

// synchronized takes all that is present; it says whether the connection is
// the newest.
func (p *pump) synchronized(g generation, inv stream.Inventory, runtime, version string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != p.newest {
		return false
	}
	p.sender.Synchronized(inv, runtime, version)
	p.changed()
	return true
}

// lost takes the end of a connection.
func (p *pump) lost(g generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != p.newest {
		return
	}
	p.newest++ // what its handlers still say comes too late
	p.sender.RuntimeLost()
	p.changed()
}

// event takes a record that nobody waits for.
func (p *pump) event(g generation, rec lifecycle.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != p.newest {
		return
	}
	p.sender.Event(rec)
	p.changed()
}

// start takes the record of a START_CONTAINER and waits for its
// acknowledgement as long as the start barrier allows, or until ctx ends. It
// tells how long it waited, and whether the acknowledgement came; waited is 0
// where nothing was waited for.
func (p *pump) start(ctx context.Context, g generation, rec lifecycle.Record) (waited time.Duration, acked bool) {
	ticket, budget := p.admit(g, rec)
	if budget <= 0 {
		return 0, false
	}
	start := p.clock.Now()
	over, stop := p.clock.After(budget)
	defer stop()
	for {
		p.mu.Lock()
		how, settled := p.sender.Settled(ticket), p.settled
		p.mu.Unlock()
		if how == stream.Waiting {
			select {
			case <-settled:
				continue
			case <-over:
			case <-ctx.Done():
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		end, how := p.clock.Now(), p.sender.Settled(ticket)
		p.barrier.Waited(start, end, ticket, how)
		return end.Sub(start), how == stream.Acked
	}
}

// admit takes the record and says how long its callback may wait.
func (p *pump) admit(g generation, rec lifecycle.Record) (stream.Ticket, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g != p.newest {
		return stream.Ticket{}, 0
	}
	ticket, told := p.sender.Event(rec)
	p.changed()
	if !told {
		p.barrier.Skip()
		return ticket, 0
	}
	return ticket, p.barrier.Budget(p.clock.Now(), ticket)
}

// hello takes a hello of the applier.
func (p *pump) hello(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sender.Hello(id)
	p.changed()
}

// acked takes an acknowledgement of the applier.
func (p *pump) acked(ack lifecycle.Ack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	highest, _ := p.sender.Acked(ack)
	p.barrier.Acked(highest)
	p.changed()
}

// open says that the pipe has a reader.
func (p *pump) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = true
	p.sender.Opened()
	p.sender.Heartbeat(p.barrier.Stats()) // the first word to a new reader
	p.changed()
}

// broken says that the pipe is gone.
func (p *pump) broken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = false
	p.sender.Broken()
	p.changed()
}

// heartbeat asks for a HEARTBEAT.
func (p *pump) heartbeat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sender.Heartbeat(p.barrier.Stats())
	p.changed()
}

// next is the next line to write, if there is one now.
func (p *pump) next() ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sender.Next()
}

// state is what people are told of.
type state struct {
	Connected bool // to the runtime, and synchronized
	Reader    bool // the pipe has one
	Sender    stream.SenderStats
	Barrier   stream.BarrierStats
}

func (p *pump) state() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return state{
		Connected: p.sender.Connected(), Reader: p.opened,
		Sender: p.sender.Stats(), Barrier: p.barrier.Stats(),
	}
}

// changed wakes the writer and whoever waits for an acknowledgement. p.mu is
// held.
func (p *pump) changed() {
	close(p.settled)
	p.settled = make(chan struct{})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
