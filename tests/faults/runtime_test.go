//go:build faults

package faults

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// watched is a node whose watcher has the listener for its applier.
func watched(t *testing.T, settings map[string]string) (*node, *listener, *crowd) {
	t.Helper()
	n := newNode(t, settings)
	l := n.listen()
	_, err := n.StartWatcher()
	n.must(err)
	c := newCrowd(n.Runtime)
	for i := range 5 {
		_, err := c.run(fmt.Sprint("first", i), 2, nrirt.PodOptions{})
		n.must(err)
	}
	l.hears(c)
	return n, l, c
}

// held is what a process holds on to.
func (n *node) held(d *world.Daemon) (fds, threads int) {
	n.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID))
	n.must(err)
	return len(open), procNumber(n.t, d.PID, "Threads")
}

// TestHandshakeCuts: the connection to the runtime ends after any number of
// bytes, each way. The watcher comes again, never at once, tells what is there,
// and keeps nothing of those that failed.
func TestHandshakeCuts(t *testing.T) {
	n, l, c := watched(t, nil)
	fds, threads := n.held(n.Watcher)
	n.Runtime.CutConnections()
	n.until("it comes again", func() error {
		if n.Runtime.Accepted() < 2 {
			return errors.New("it has not")
		}
		return nil
	})
	l.hears(c)
	up, down := n.Runtime.Relayed()
	var faults []nrirt.Fault
	for i, seed := range seeds {
		r := dice(seed, "handshake")
		if points := map[bool]int{false: 6, true: 200}[long]; i < 2 {
			for range points {
				faults = append(faults, nrirt.Fault{Up: r.Int64N(up), Down: -1}, nrirt.Fault{Up: -1, Down: r.Int64N(down)})
			}
		}
	}
	t.Logf("a handshake has %d bytes to the runtime and %d to the plugin; it is cut at %d places", up, down, len(faults)+2)
	faults = append(faults, nrirt.Fault{}, nrirt.Fault{Up: 1, Down: -1})
	var mu sync.Mutex
	var times []time.Time
	n.Runtime.SetFault(func() nrirt.Fault {
		mu.Lock()
		defer mu.Unlock()
		times = append(times, time.Now())
		if len(times) > len(faults) {
			return nrirt.Fault{Up: -1, Down: -1}
		}
		return faults[len(times)-1]
	})
	n.Runtime.CutConnections()
	for i := range 20 { // meanwhile
		box, err := c.run(fmt.Sprint("meanwhile", i), 1, nrirt.PodOptions{})
		n.must(err)
		if i%3 == 0 {
			n.must(c.remove(box))
		}
	}
	n.must(world.UntilWithin(time.Duration(len(faults))*5*time.Second, "all cuts were made", func() error {
		_, err := l.read(64<<10, 10*time.Millisecond)
		n.must(err)
		mu.Lock()
		defer mu.Unlock()
		if len(times) <= len(faults) {
			return fmt.Errorf("%d of %d", len(times), len(faults))
		}
		return nil
	}))
	l.hears(c)
	for i, at := range slices.Clone(times)[1:] {
		if gap := at.Sub(times[i]); gap < 200*time.Millisecond {
			t.Errorf("after cut %d it came again within %v", i, gap)
		}
	}
	if f, h := n.held(n.Watcher); f > fds+1 || h > threads+6 {
		t.Errorf("%d descriptors and %d threads, before %d and %d", f, h, fds, threads)
	}
	n.memoryBound(n.Watcher, 64)
}

// TestRuntimeHangs: a runtime that takes nothing and says nothing any more, in
// the handshake and after it. Heartbeats go on; when it lives again, all is told.
func TestRuntimeHangs(t *testing.T) {
	faults := []nrirt.Fault{{Up: 20, Down: -1, Hang: true}, {Up: -1, Down: 20, Hang: true}}
	n, l, c := watched(t, map[string]string{"watcher.start_barrier": `"5ms"`})
	if long { // 30 s each: the wait for Configure is that long
		up, down := n.Runtime.Relayed()
		faults = append(faults, nrirt.Fault{Up: -1, Down: down / 4, Hang: true}, nrirt.Fault{Up: up / 2, Down: -1, Hang: true})
	}
	for i, fault := range faults {
		accepted := n.Runtime.Accepted()
		n.Runtime.SetFault(func() nrirt.Fault { return fault })
		n.Runtime.CutConnections()
		n.until("it hangs", func() error {
			if n.Runtime.Accepted() == accepted {
				return errors.New("it does not come again")
			}
			return nil
		})
		n.Runtime.SetFault(nil)
		_, err := c.run(fmt.Sprint("hung", i), 1, nrirt.PodOptions{})
		n.must(err)
		beats := l.beats
		n.until("heartbeats go on", func() error {
			_, err := l.read(64<<10, 10*time.Millisecond)
			n.must(err)
			if l.beats < beats+2 {
				return fmt.Errorf("%d of them", l.beats-beats)
			}
			return nil
		})
		l.hears(c) // it gives up by itself, and comes again
		if got := n.Runtime.Accepted() - accepted; got > 4 {
			t.Errorf("%d connections for one that hung", got)
		}
	}
}

// TestHungInService: connected for long, then a runtime that takes no answers.
// It ends the connection when its own patience is over (NRI: 2 s a call), and
// no operation of it fails.
func TestHungInService(t *testing.T) {
	n, l, c := watched(t, map[string]string{"watcher.start_barrier": `"5ms"`})
	up, _ := n.Runtime.Relayed()
	n.Runtime.SetFault(func() nrirt.Fault { return nrirt.Fault{Up: up + 100, Down: -1, Hang: true} })
	n.Runtime.CutConnections()
	n.until("it is there again", func() error {
		if n.Runtime.Accepted() < 2 {
			return errors.New("it is not")
		}
		return nil
	})
	l.hears(c)
	for i := range 6 { // their answers are what goes up
		_, err := c.run(fmt.Sprint("more", i), 1, nrirt.PodOptions{})
		n.must(err)
	}
	if got, _ := n.Runtime.Relayed(); got != up+100 {
		t.Errorf("it never hung: %d bytes, want %d", got, up+100)
	}
	n.Runtime.SetFault(nil)
	n.Runtime.CutConnections()
	l.hears(c)
	if !n.Watcher.Alive() || strings.Contains(n.Watcher.Log(), "a handler of the runtime's events failed") {
		t.Error("a handler failed")
	}
}

// TestShutdown: the watcher is asked to end while the runtime is in the middle
// of calls to it, starts among them that wait. It ends in peace, no operation
// fails, and the next one tells the node as it is.
func TestShutdown(t *testing.T) {
	n, l, c := watched(t, map[string]string{"watcher.start_barrier": `"1s"`})
	r := dice(seeds[1], "shutdown")
	for i := range map[bool]int{false: 6, true: 60}[long] {
		var hands sync.WaitGroup
		for hand := range 3 {
			hands.Go(func() {
				for j := range 4 {
					if _, err := c.run(fmt.Sprintf("s%d-%d-%d", i, hand, j), 2, nrirt.PodOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range r.IntN(30) { // it answers some of the starts
			_, err := l.read(4000, time.Millisecond)
			n.must(err)
		}
		if code, err := n.Watcher.Stop(); code != 0 || err != nil {
			t.Errorf("it ended with %d, %v:\n%s", code, err, n.Watcher.Log())
		}
		hands.Wait()
		l.hello()
		_, err := n.StartWatcher()
		n.must(err)
		l.hears(c)
	}
}
