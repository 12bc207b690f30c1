package nrirt

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// front is the socket that plugins connect to. It relays bytes to the
// adaptation's own socket and can close what it relays.
type front struct {
	listener net.Listener
	inner    string
	relays   sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]*link // both ends of every relay
	accepted int
	closed   bool
	fault    func() Fault
	latest   *link
}

// Fault is what befalls a plugin's connection. Its zero value is its end at once.
type Fault struct {
	// Up and Down are how many bytes go to the runtime, or to the plugin, before
	// it; below 0 there is no bound.
	Up, Down int64
	Hang     bool // nothing goes any more, and nobody is told
}

// link is one plugin's connection.
type link struct {
	fault    Fault
	up, down atomic.Int64 // bytes that went
	once     sync.Once
	end      chan struct{} // closed when it was cut
}

func (l *link) cut() { l.once.Do(func() { close(l.end) }) }

// hiddenAddress is an abstract unix address (unix(7)): no file, no limit on
// its directory's length, and nobody guesses it.
func hiddenAddress() string { return "@nrirt-" + rand.Text() }

func newFront(path, inner string) (*front, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	os.Remove(path) // left by a runtime that was killed
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	f := &front{listener: l, inner: inner, conns: map[net.Conn]*link{}}
	f.relays.Go(f.accept)
	return f, nil
}

func (f *front) accept() {
	for {
		outer, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		inner, err := net.Dial("unix", f.inner)
		if err != nil {
			outer.Close()
			continue
		}
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			outer.Close()
			inner.Close()
			return
		}
		f.accepted++
		l := &link{fault: Fault{Up: -1, Down: -1}, end: make(chan struct{})}
		if f.fault != nil {
			l.fault = f.fault()
		}
		f.latest, f.conns[outer], f.conns[inner] = l, l, l
		f.mu.Unlock()
		f.relays.Go(func() { f.relay(l, outer, inner, &l.down, l.fault.Down) })
		f.relays.Go(func() { f.relay(l, inner, outer, &l.up, l.fault.Up) })
	}
}

// relay copies one direction up to its bound; the end of one direction ends both.
func (f *front) relay(l *link, to, from net.Conn, count *atomic.Int64, most int64) {
	buf := make([]byte, 32<<10)
	for most < 0 || count.Load() < most {
		b := buf
		if most >= 0 {
			b = buf[:min(int64(len(buf)), most-count.Load())]
		}
		n, err := from.Read(b)
		count.Add(int64(n))
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			most = -1 // its own end, not the fault's
			break
		}
	}
	if most >= 0 && l.fault.Hang {
		<-l.end
	}
	l.cut()
	to.Close()
	from.Close()
	f.mu.Lock()
	delete(f.conns, to)
	delete(f.conns, from)
	f.mu.Unlock()
}

// cut closes every connection.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, l := range f.conns {
		l.cut()
		c.Close()
	}
}

// close ends the socket and every connection, and waits for the relays.
func (f *front) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.listener.Close() // removes the socket's file
	f.cut()
	f.relays.Wait()
}

func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns) / 2
}

func (f *front) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted
}

// SetFault asks f at each connection that a plugin opens what shall befall it;
// nil leaves them alone. It holds until the runtime goes down.
func (r *Runtime) SetFault(f func() Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.front != nil {
		r.front.mu.Lock()
		defer r.front.mu.Unlock()
		r.front.fault = f
	}
}

// Relayed counts the bytes that the latest connection has sent to the runtime
// and got from it.
func (r *Runtime) Relayed() (up, down int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.front == nil {
		return 0, 0
	}
	r.front.mu.Lock()
	defer r.front.mu.Unlock()
	if r.front.latest == nil {
		return 0, 0
	}
	return r.front.latest.up.Load(), r.front.latest.down.Load()
}
