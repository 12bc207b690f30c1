package nrirt

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// front is the socket that plugins connect to. It relays bytes to the
// adaptation's own socket and can close what it relays.
type front struct {
	listener net.Listener
	inner    string
	relays   sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool // both ends of every relay
	accepted int
	closed   bool
}

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
	f := &front{listener: l, inner: inner, conns: map[net.Conn]bool{}}
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
		f.conns[outer], f.conns[inner] = true, true
		f.mu.Unlock()
		f.relays.Go(func() { f.relay(outer, inner) })
		f.relays.Go(func() { f.relay(inner, outer) })
	}
}

// relay copies one direction; the end of one direction ends both.
func (f *front) relay(to, from net.Conn) {
	io.Copy(to, from)
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
	for c := range f.conns {
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
