package watcher

import (
	"context"
	"errors"
	"net"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// mute is a runtime that answers a registration and then says nothing for
// ever. The adaptation cannot play it: it gives up on a plugin before.
type mute struct {
	listener   net.Listener
	registered chan struct{}
	closed     chan struct{} // a plugin has closed its connection
	wg         sync.WaitGroup
}

func newMute(t *testing.T, socket string) *mute {
	t.Helper()
	l, err := net.Listen("unix", socket)
	must(t, err)
	m := &mute{listener: l, registered: make(chan struct{}, 10), closed: make(chan struct{}, 10)}
	m.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.wg.Go(func() { m.serve(t, conn) })
		}
	})
	return m
}

func (m *mute) serve(t *testing.T, conn net.Conn) {
	mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	defer mux.Close()
	l, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		t.Error(err)
		return
	}
	s, err := ttrpc.NewServer()
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	api.RegisterRuntimeService(s, m)
	go s.Serve(context.Background(), l)
	// The plugin's end of the other connection says when it is gone.
	other, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		t.Error(err)
		return
	}
	mux.Unblock()
	other.Read(make([]byte, 1))
	m.closed <- struct{}{}
}

func (m *mute) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	m.registered <- struct{}{}
	return &api.Empty{}, nil
}

func (m *mute) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("not here")
}

func (m *mute) close() {
	m.listener.Close()
	m.wg.Wait()
}

// keepGoing lets the fake time pass until the test ends.
func keepGoing(t *testing.T, clock *fakeClock) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				clock.advance(time.Millisecond)
			}
		}
	}()
}

// inStart is a stub's Start that waits for its Configure.
var inStart = regexp.MustCompile(`\[chan receive[^]]*\]:\ngithub\.com/containerd/nri/pkg/stub\.\(\*stub\)\.Start\(`)

// TestNoConfigure has the stub's Start hang: registered, never configured. It
// is not parallel: no other stub may be there to be mistaken for it.
func TestNoConfigure(t *testing.T) {
	b := newBench(t)
	clock := newFakeClock()
	b.opts.Clock = clock
	m := newMute(t, b.opts.Config.Watcher.NRISocket)
	b.run()
	<-m.registered
	waits := func() bool {
		stacks := make([]byte, 1<<20)
		return inStart.Match(stacks[:runtime.Stack(stacks, true)])
	}
	eventually(t, "the stub waits for Configure", waits)
	clock.waitFor(startTimeout)
	clock.advance(startTimeout)
	<-m.closed
	m.close()
	eventually(t, "the stub waits no more", func() bool { return !waits() })

	r := b.runtime()
	pod(t, r, "web")
	keepGoing(t, clock)
	b.out.snapshot(t)
	if b.log.count(errNoConfigure.Error()) != 1 {
		t.Error("it was not said why the connection was given up")
	}
}

// TestNoAnswer lets the first registration, or the first synchronize, hang.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method string
		limit  time.Duration
	}{
		{"RegisterPlugin", 0}, // the stub's own: 5 s
		{"Synchronize", syncTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.method, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			clock := newFakeClock()
			b.opts.Clock = clock
			r := b.runtime()
			hanging, release := make(chan struct{}), make(chan struct{})
			hook, _ := once(tt.method, func(context.Context) error {
				close(hanging)
				<-release
				return nrirt.ErrCut
			})
			r.SetHook(hook)
			b.run()
			<-hanging
			if tt.limit > 0 {
				clock.waitFor(tt.limit)
				clock.advance(tt.limit)
			}
			eventually(t, "the connection was given up", func() bool { return r.Connections() == 0 })
			close(release)
			keepGoing(t, clock) // the next attempt waits for the backoff
			b.out.snapshot(t)
		})
	}
}
