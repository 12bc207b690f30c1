package stream

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// pipe models a FIFO: so many bytes, gone when nobody has it open.
type pipe struct {
	buf              []byte
	size             int
	readers, writers int
}

func (p *pipe) closed() {
	if p.readers == 0 && p.writers == 0 {
		p.buf = nil
	}
}

// write takes at most n bytes of b, as many as there is room for.
func (p *pipe) write(b []byte, n int) (rest []byte) {
	n = max(0, min(n, len(b), p.size-len(p.buf)))
	p.buf = append(p.buf, b[:n]...)
	return b[n:]
}

// read gives at most n bytes.
func (p *pipe) read(n int) []byte {
	n = min(n, len(p.buf))
	out := slices.Clone(p.buf[:n])
	p.buf = p.buf[n:]
	return out
}

// view is a picture of the node: what runs in which state.
type view struct {
	pods       map[string]lifecycle.Pod
	containers map[string]lifecycle.Container
}

func (v view) clone() view { return view{maps.Clone(v.pods), maps.Clone(v.containers)} }

func (v view) String() string {
	var b bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(v.pods)) {
		fmt.Fprintf(&b, "%s/%d ", id, v.pods[id].PID)
	}
	for _, id := range slices.Sorted(maps.Keys(v.containers)) {
		c := v.containers[id]
		fmt.Fprintf(&b, "%s=%s/%d ", id, c.State, c.PID)
	}
	return b.String()
}

// world is a node: a runtime, a watcher on a Sender, an applier on a Receiver,
// and the FIFOs between them.
type world struct {
	t *rapid.T

	truth   view // what the runtime has
	told    view // what the watcher was told since it synchronized
	nextID  int
	late    []lifecycle.Record // PostStartContainer events that are still on their way
	history map[Ticket]view    // what a reader must see that has applied so much
	born    map[string]int     // when an epoch began
	clock   int                // steps so far
	seen    map[string]int     // how often what happened, over all checks
	torn    bool               // bytes were lost or made up on the way

	path, ackPath *pipe // what the paths lead to now

	watcher *watcher
	applier *applier
	epochs  int
	wishes  int
}

// watcher is the process around a Sender.
type watcher struct {
	s     *Sender
	out   *pipe  // nil: not open
	rest  []byte // of the line that is being written
	in    *pipe  // acknowledgements
	half  []byte
	epoch string
	seq   uint64 // of the last line taken from s

	causes uint64 // reasons that there were for a new epoch
	hello  string // the newest read
}

// applier is the process around a Receiver.
type applier struct {
	r      *Receiver
	in     *pipe
	half   []byte
	out    *pipe // nil: not open
	view   view
	at     Ticket // the newest applied
	wished int    // when the last wish was uttered
	// repeats counts how often the last wish was said.
	repeats int
}

const (
	testQueue = 6
	testPipe  = 1500 // bytes: a few lines
)

func newWorld(t *rapid.T) *world {
	w := &world{t: t, truth: emptyView(), told: emptyView(), history: map[Ticket]view{}, born: map[string]int{}}
	w.path, w.ackPath = &pipe{size: testPipe}, &pipe{size: 200}
	return w
}

func emptyView() view {
	return view{map[string]lifecycle.Pod{}, map[string]lifecycle.Container{}}
}

// startWatcher starts a watcher that has no connection to the runtime yet.
func (w *world) startWatcher() {
	w.watcher = &watcher{in: w.ackPath}
	w.ackPath.readers++
	w.watcher.s = NewSender(SenderOptions{
		QueueSize: testQueue, Node: "n", Now: start.Local,
		NewEpoch: func() string { w.epochs++; return fmt.Sprintf("e%d", w.epochs) },
	})
	w.told = emptyView()
}

func (w *world) killWatcher() {
	w.seen["overflow"] += int(w.watcher.s.Stats().Overflows)
	w.watcher.in.readers--
	w.watcher.in.closed()
	w.closePipe()
	w.watcher = nil
}

func (w *world) closePipe() {
	if o := w.watcher.out; o != nil {
		o.writers--
		o.closed()
		w.torn = w.torn || len(w.watcher.rest) > 0
		w.watcher.out, w.watcher.rest = nil, nil
	}
}

// connect is the runtime's Synchronize: everything but exited containers.
func (w *world) connect() {
	w.told = w.truth.clone()
	maps.DeleteFunc(w.told.containers, func(_ string, c lifecycle.Container) bool { return c.State == lifecycle.ContainerStopped })
	w.late = nil
	inv := Inventory{Pods: slices.Collect(maps.Values(w.told.pods)), Containers: slices.Collect(maps.Values(w.told.containers))}
	w.watcher.causes++
	w.watcher.s.Synchronized(inv, "containerd", "v2")
}

// event tells the watcher of an event whose effect is in told already.
func (w *world) event(rec lifecycle.Record) {
	if w.watcher == nil || !w.watcher.s.Connected() {
		return
	}
	ticket, ok := w.watcher.s.Event(rec)
	if ok {
		w.history[ticket] = w.told.clone()
	}
	if q := w.watcher.s.Stats().Queued; q > testQueue {
		w.t.Fatalf("%d changes are queued, the bound is %d", q, testQueue)
	}
}

// pump lets the watcher write at most n bytes. It sees a vanished reader only
// by writing.
func (w *world) pump(n int) {
	p := w.watcher
	if p == nil {
		return
	}
	if p.out == nil {
		if w.path.readers == 0 {
			return
		}
		p.out = w.path
		p.out.writers++
		p.causes++
		p.s.Opened()
	}
	for n > 0 {
		if len(p.rest) == 0 && !w.nextLine() {
			return
		}
		if p.out.readers == 0 {
			w.broken()
			return
		}
		before := len(p.rest)
		p.rest = p.out.write(p.rest, n)
		if len(p.rest) == before {
			return // full
		}
		n -= before - len(p.rest)
	}
}

func (w *world) broken() {
	w.closePipe()
	w.watcher.s.Broken()
}

// nextLine takes the Sender's next line, and notes what a new epoch's snapshot
// must lead to.
func (w *world) nextLine() bool {
	p := w.watcher
	line, ok := p.s.Next()
	if !ok {
		return false
	}
	p.rest = line
	if e := p.s.Epoch(); e != p.epoch {
		p.epoch = e
		w.born[e] = w.clock
		end := uint64(len(w.told.pods) + len(w.told.containers) + 2)
		w.history[Ticket{e, end}] = w.told.clone()
	}
	w.written(line)
	return true
}

// written checks a line of the Sender.
func (w *world) written(line []byte) {
	p := w.watcher
	if st := p.s.Stats(); st.Epochs > p.causes+st.Overflows {
		w.t.Fatalf("%d epochs began for %d reasons and %d overflows", st.Epochs, p.causes, st.Overflows)
	}
	if len(line) == 1 {
		return
	}
	rec, err := lifecycle.Decode(line)
	if err != nil {
		w.t.Fatalf("the watcher wrote %q: %v", line, err)
	}
	if rec.Event == lifecycle.Synchronize && !p.s.Connected() {
		w.t.Fatalf("the watcher wrote %s without a runtime", line)
	}
	if rec.Seq == 0 {
		return
	}
	if rec.Phase == lifecycle.PhaseBegin {
		p.seq = 0
	}
	if p.seq++; rec.Seq != p.seq {
		w.t.Fatalf("the watcher wrote %s, want seq %d", line, p.seq)
	}
}

// readAcks lets the watcher read what waits in the acknowledgement FIFO.
func (w *world) readAcks() {
	p := w.watcher
	if p == nil {
		return
	}
	p.half = append(p.half, p.in.read(1<<20)...)
	for {
		line, rest, ok := bytes.Cut(p.half, []byte("\n"))
		if !ok {
			return
		}
		p.half = rest
		hello, ack, err := lifecycle.DecodeReply(line)
		switch {
		case err != nil:
			w.t.Fatalf("acknowledgement line %q: %v", line, err)
		case hello.Hello != "":
			if hello.Hello != p.hello {
				p.hello = hello.Hello
				p.causes++
			}
			p.s.Hello(hello.Hello)
		default:
			top, raised := p.s.Acked(ack)
			if raised {
				w.seen["acknowledged"]++
			}
			if raised && p.s.Settled(top) != Acked {
				w.t.Fatalf("acknowledgement %v raised to %v, which is not settled", ack, top)
			}
		}
	}
}
