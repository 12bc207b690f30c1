package attribution

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// Watcher plays nri-watcher: it keeps what is present, gives a snapshot when the
// applier says hello, and sends records.
type Watcher struct {
	t       testing.TB
	pipe    string
	ack     *os.File
	readers sync.WaitGroup

	mu         sync.Mutex
	out        *os.File
	epoch      string
	epochs     int
	seq        uint64
	acked      uint64        // of this epoch
	change     chan struct{} // closed and made anew at each acknowledgement
	hello      string
	pods       []*lifecycle.Pod
	containers []*lifecycle.Container
}

func newWatcher(t testing.TB, pipe, ack string) *Watcher {
	t.Helper()
	w := &Watcher{t: t, pipe: pipe, change: make(chan struct{})}
	for _, path := range []string{pipe, ack} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.ack, err = os.OpenFile(ack, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	w.readers.Add(1)
	go w.listen()
	return w
}

func (w *Watcher) close() {
	w.ack.Close()
	w.readers.Wait()
	if w.out != nil {
		w.out.Close()
	}
}

// listen reads hellos and acknowledgements until the FIFO is closed.
func (w *Watcher) listen() {
	defer w.readers.Done()
	lines := bufio.NewScanner(w.ack)
	for lines.Scan() {
		hello, ack, err := lifecycle.DecodeReply(lines.Bytes())
		w.mu.Lock()
		switch {
		case err != nil:
			w.t.Errorf("the applier answered %q: %v", lines.Text(), err)
		case hello.Hello != "" && hello.Hello != w.hello:
			w.hello = hello.Hello
			if err := w.snapshot(); err != nil {
				w.t.Errorf("snapshot: %v", err)
			}
		case ack.Epoch == w.epoch && ack.Seq > w.acked:
			w.acked = ack.Seq
			close(w.change)
			w.change = make(chan struct{})
		}
		w.mu.Unlock()
	}
}

// snapshot begins an epoch; the lock is held.
func (w *Watcher) snapshot() error {
	w.epochs++
	w.epoch, w.seq, w.acked = fmt.Sprintf("epoch-%d", w.epochs), 0, 0
	if err := w.send(&lifecycle.Record{Event: lifecycle.Synchronize, Phase: lifecycle.PhaseBegin, Hello: w.hello,
		Runtime: "test", RuntimeVersion: "1", Node: "guest"}); err != nil {
		return err
	}
	for _, p := range w.pods {
		if err := w.send(&lifecycle.Record{Event: lifecycle.Synchronize, Pod: p}); err != nil {
			return err
		}
	}
	for _, c := range w.containers {
		if err := w.send(&lifecycle.Record{Event: lifecycle.Synchronize, Container: c}); err != nil {
			return err
		}
	}
	pods, containers := len(w.pods), len(w.containers)
	return w.send(&lifecycle.Record{Event: lifecycle.Synchronize, Phase: lifecycle.PhaseEnd, Pods: &pods, Containers: &containers})
}

// send writes a record as the next of its epoch; the lock is held.
func (w *Watcher) send(r *lifecycle.Record) error {
	w.seq++
	r.V, r.Epoch, r.Seq, r.Time = lifecycle.Version, w.epoch, w.seq, time.Now().UTC()
	line, err := lifecycle.Encode(r)
	if err != nil {
		return err
	}
	if w.seq == 1 {
		line = append([]byte("\n"), line...) // ends what an earlier epoch left
	}
	if w.out == nil {
		if w.out, err = os.OpenFile(w.pipe, os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
	}
	_, err = w.out.Write(line)
	if errors.Is(err, syscall.EPIPE) { // the applier went; its successor says hello
		w.out.Close()
		w.out = nil
		return nil
	}
	return err
}

// Send tells of an event. The pod and the container are as the event leaves them.
func (w *Watcher) Send(event lifecycle.Event, p *lifecycle.Pod, c *lifecycle.Container) Ticket {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remember(event, p, c)
	if w.epoch == "" { // no applier yet: the snapshot will tell
		return Ticket{w, 0, 0}
	}
	if err := w.send(&lifecycle.Record{Event: event, Pod: p, Container: c}); err != nil {
		w.t.Fatalf("send %s: %v", event, err)
	}
	return Ticket{w, w.epochs, w.seq}
}

func (w *Watcher) remember(event lifecycle.Event, p *lifecycle.Pod, c *lifecycle.Container) {
	switch event {
	case lifecycle.RunPodSandbox:
		w.pods = append(w.pods, p)
	case lifecycle.RemovePodSandbox:
		w.pods = slices.DeleteFunc(w.pods, func(known *lifecycle.Pod) bool { return known.ID == p.ID })
	case lifecycle.RemoveContainer:
		w.containers = slices.DeleteFunc(w.containers, func(known *lifecycle.Container) bool { return known.ID == c.ID })
	case lifecycle.PostCreateContainer:
		w.containers = append(w.containers, c)
	}
}

// Ticket stands for a record whose acknowledgement may be waited for.
type Ticket struct {
	w     *Watcher
	epoch int
	seq   uint64
}

// Wait waits until the record was attempted on resctrl, or the whole snapshot
// of a later epoch.
func (k Ticket) Wait() {
	k.w.t.Helper()
	deadline := time.After(patience)
	for {
		ok, change := k.look()
		if ok {
			return
		}
		select {
		case <-change:
		case <-deadline:
			k.w.t.Fatalf("no acknowledgement of record %d of epoch %d in %v", k.seq, k.epoch, patience)
		}
	}
}

// Acked says whether the record was attempted on resctrl.
func (k Ticket) Acked() bool {
	ok, _ := k.look()
	return ok
}

func (k Ticket) look() (bool, <-chan struct{}) {
	w := k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.epochs == k.epoch && k.epoch > 0 {
		return w.acked >= k.seq, w.change
	}
	return w.acked > 0, w.change // the snapshot's end is the first that is acknowledged
}

// Synchronized waits until the snapshot of the latest epoch was carried out.
func (w *Watcher) Synchronized() { w.t.Helper(); Ticket{w, 0, 0}.Wait() }
