//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// crowd is what lives on a node without processes, and by its own account.
type crowd struct {
	r          *nrirt.Runtime
	mu         sync.Mutex
	pods       map[string]bool
	containers map[string]string // by id, their sandbox
}

func newCrowd(r *nrirt.Runtime) *crowd {
	return &crowd{r: r, pods: map[string]bool{}, containers: map[string]string{}}
}

// run makes a pod with containers.
func (c *crowd) run(uid string, containers int, o nrirt.PodOptions) (box string, err error) {
	if box, err = c.r.RunPod("pod-"+uid, "ns", uid, o); err != nil {
		return "", err
	}
	c.mu.Lock()
	c.pods[box] = true
	c.mu.Unlock()
	for i := range containers {
		id := fmt.Sprintf("%s-c%d", uid, i)
		if _, err = c.r.CreateContainer(box, "app", nrirt.ContainerOptions{ID: id}); err != nil {
			return box, err
		}
		c.mu.Lock()
		c.containers[id] = box
		c.mu.Unlock()
		if err = c.r.StartContainer(id); err != nil {
			return box, err
		}
	}
	return box, nil
}

// remove ends a pod.
func (c *crowd) remove(box string) error {
	err := c.r.RemovePod(box)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, box)
	for id, b := range c.containers {
		if b == box {
			delete(c.containers, id)
		}
	}
	return err
}

// hears waits until the listener knows the crowd.
func (l *listener) hears(c *crowd) {
	l.n.t.Helper()
	l.n.until("the listener knows what is there", func() error {
		for {
			more, err := l.read(64<<10, 10*time.Millisecond)
			l.n.must(err)
			if !more {
				c.mu.Lock()
				defer c.mu.Unlock()
				return l.knows(c.pods, c.containers)
			}
		}
	})
}

// TestStream: a reader that is slow, stalls, takes lines in pieces, goes and
// comes again, and answers with nonsense. Nothing that it is told is broken or
// wrong, the runtime never waits for it, and at the end it knows the node.
func TestStream(t *testing.T) {
	for i, seed := range seeds {
		t.Run(strconv.Itoa(i), func(t *testing.T) { stream(t, seed) })
	}
}

func stream(t *testing.T, seed uint64) {
	n := newNode(t, map[string]string{"watcher.queue_size": "40", "watcher.start_barrier": `"5ms"`})
	l := n.listen()
	_, err := n.StartWatcher()
	n.must(err)
	c := newCrowd(n.Runtime)
	l.hears(c)
	var hands sync.WaitGroup
	over := make(chan struct{})
	for hand := range 2 {
		r := dice(seed, fmt.Sprint("hand ", hand))
		hands.Go(func() {
			var boxes []string
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				// Lines of up to 8 KiB: the pipe is full in the middle of one.
				uid := fmt.Sprintf("s%d-%d", hand, i)
				box, err := c.run(uid, r.IntN(3), nrirt.PodOptions{CgroupParent: "/" + uid + strings.Repeat("/p", r.IntN(2000))})
				if boxes = append(boxes, box); err == nil && len(boxes) > r.IntN(20) {
					err = c.remove(boxes[0])
					boxes = boxes[1:]
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	l.mess(dice(seed, "reader"), map[bool]int{false: 300, true: 3000}[long])
	close(over)
	hands.Wait()
	l.hello()
	l.hears(c)
	for i := range 60 { // more than pipe and queue hold
		_, err := c.run(fmt.Sprint("last", i), 1, nrirt.PodOptions{CgroupParent: strings.Repeat("/p", 2000)})
		n.must(err)
	}
	l.hears(c)
	n.until("the reader was told what was dropped", func() error {
		_, err := l.read(64<<10, 10*time.Millisecond)
		n.must(err)
		if l.dropped == 0 {
			return fmt.Errorf("%d heartbeats, none tells of it", l.beats)
		}
		return nil
	})
	t.Logf("%d epochs, %d records dropped, %d pods", l.epochs, l.dropped, len(c.pods))
	if l.epochs < 5 {
		t.Errorf("%d epochs: hardly anything was tried", l.epochs)
	}
	if got := n.Runtime.Accepted(); got != 1 || !n.Watcher.Alive() {
		t.Errorf("the runtime was connected to %d times", got)
	}
	n.memoryBound(n.Watcher, 64)
}

// mess reads in so many strange steps.
func (l *listener) mess(r *rand.Rand, steps int) {
	l.n.t.Helper()
	for range steps {
		switch r.IntN(20) {
		case 0:
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) // stalls; the queue overflows
		case 1:
			l.close()
			l.open()
		case 2:
			l.hello()
		case 3: // forged, broken, far too long
			l.say([]string{
				`{"epoch":"` + l.epoch + `","seq":99999999}`, `{"epoch":"` + l.epoch + `","seq":1}`, `{"epoch":"other","seq":1}`, "garbage", "\x00\xff",
				`{"hello":""}`, `{"hello":"` + strings.Repeat("h", 2000) + `"}`, strings.Repeat("y", 30_000), `{"epoch":1,"seq":"x"}`, `[]`, "{",
			}[r.IntN(11)])
		default:
			_, err := l.read(1+r.IntN([]int{7, 500, 20_000}[r.IntN(3)]), time.Duration(r.IntN(5))*time.Millisecond)
			l.n.must(err)
		}
	}
}

// TestUnread: nobody reads for as long as an hour brings events. With a reader
// that stalls, the queue is dropped, which is told; without one there is none.
// Both times all is there when it is read again, at once, and little memory was
// taken.
func TestUnread(t *testing.T) {
	n := newNode(t, map[string]string{"watcher.start_barrier": `"5ms"`, "watcher.queue_size": map[bool]string{false: "500", true: "8192"}[long]})
	_, err := n.StartWatcher()
	n.must(err)
	n.logged(n.Watcher, "synchronized with the runtime", 1)
	c := newCrowd(n.Runtime)
	hour := func(uid string) {
		box, err := c.run(uid, 3, nrirt.PodOptions{})
		n.must(err)
		for range map[bool]int{false: 2000, true: 15_000}[long] {
			n.must(n.Runtime.Update(uid + "-c1"))
		}
		n.must(n.Runtime.RemoveContainer(uid + "-c2"))
		c.mu.Lock()
		delete(c.containers, uid+"-c2")
		c.mu.Unlock()
		if uid == "second" {
			n.must(c.remove(box))
		}
	}
	hour("first") // without a reader
	l := n.listen()
	l.hears(c)
	if l.epochs != 1 || l.dropped != 0 {
		t.Errorf("without a reader: %d epochs, %d dropped", l.epochs, l.dropped)
	}
	hour("second") // with one that has stopped
	l.hears(c)
	beats := l.beats
	n.until("a heartbeat tells of it", func() error {
		_, err := l.read(64<<10, 10*time.Millisecond)
		n.must(err)
		if l.beats == beats {
			return fmt.Errorf("%d heartbeats", beats)
		}
		return nil
	})
	t.Logf("%d epochs, %d records dropped", l.epochs, l.dropped)
	if l.epochs != 2 || l.dropped == 0 {
		t.Errorf("after a stall: %d epochs, %d dropped", l.epochs, l.dropped)
	}
	n.memoryBound(n.Watcher, 64)
}

// TestBigNode: a runtime with 1,000 pods and 5,000 containers is synchronized,
// in messages that have to be split, to the end of all that follows. A few of the
// containers run.
func TestBigNode(t *testing.T) {
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs, cfg.Limbo = 1100, 0
	tasks := sim.NewScript()
	tasks.Put(sim.Task{TID: firstTask})
	n := nodeOf(t, world.Options{Sim: &cfg, Tasks: tasks})
	pods := 1000
	for i := range pods {
		uid := fmt.Sprintf("p%d", i)
		box, err := n.Runtime.RunPod("pod-"+uid, "ns", uid, nrirt.PodOptions{Annotations: map[string]string{"note": strings.Repeat("x", 4000)}})
		n.must(err)
		for j := range 5 {
			id := fmt.Sprintf("%s-container-%d", uid, j)
			o := nrirt.ContainerOptions{ID: id, Env: []string{"SECRET=" + strings.Repeat("y", 1000)}}
			if j == 0 && i%50 == 0 {
				o.PID = tasks.Spawn()
			}
			_, err := n.Runtime.CreateContainer(box, "app", o)
			n.must(err)
			if o.PID > 0 {
				n.must(n.Runtime.StartContainer(id))
			}
		}
	}
	synced := n.Runtime.CountCalls("Synchronize")
	begin := time.Now()
	_, err := n.StartApplier()
	n.must(err)
	_, err = n.StartWatcher()
	n.must(err)
	// To find a task's group in the simulator takes a look at every group.
	n.must(world.UntilWithin(10*time.Minute, "all is done", func() error {
		got, err := n.Query(`SELECT count(*), sum(total_containers), sum(reconciled_containers) FROM pods WHERE group_state = 'Exists'`)
		if err == nil && fmt.Sprint(got) != "[[1000 5000 20]]" {
			err = fmt.Errorf("%v", got)
		}
		return err
	}))
	took := time.Since(begin)
	n.must(n.Settled())
	messages := synced()
	t.Logf("%d messages, %v until all is done; CPU: watcher %v, applier %v", messages, took.Round(time.Millisecond),
		cpuTime(t, n.Watcher.PID), cpuTime(t, n.Applier.PID))
	if messages < 3 || n.Runtime.Accepted() != 1 {
		t.Errorf("%d messages, %d connections", messages, n.Runtime.Accepted())
	}
	n.memoryBound(n.Watcher, 128)
	n.memoryBound(n.Applier, 128)
}
