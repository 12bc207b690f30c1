//go:build faults

package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// listener stands in for the applier at the watcher's FIFOs. It follows the
// contract by itself and knows what is on the node by what it was told alone.
type listener struct {
	n        *node
	in, acks *os.File
	rest     []byte // the beginning of a line

	wish     string // the unanswered hello; what comes before its begin counts nothing
	asked    time.Time
	hellos   int
	epoch    string
	seq      int
	telling  bool            // a snapshot is not whole yet
	pods     map[string]bool // by sandbox
	boxes    map[string]string
	epochs   int
	dropped  uint64 // as the latest heartbeat told
	beats    int
	lostTold int
}

// told is what a record may hold.
type told struct {
	Epoch, Event, Phase, Hello string
	Seq                        int
	Pods, Containers           *int
	Dropped                    uint64 `json:"queue_dropped"`
	Pod                        *struct{ ID string }
	Container                  *struct {
		ID  string
		Box string `json:"pod_sandbox_id"`
	}
}

// listen opens the FIFOs, which it makes if need be, and says hello.
func (n *node) listen() *listener {
	n.t.Helper()
	l := &listener{n: n}
	for _, path := range []string{n.Pipe(), n.AckPipe()} {
		if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, syscall.EEXIST) {
			n.t.Fatal(err)
		}
	}
	l.open()
	n.t.Cleanup(l.close)
	return l
}

func (l *listener) open() {
	l.n.t.Helper()
	var err error
	l.in, err = os.OpenFile(l.n.Pipe(), os.O_RDWR|syscall.O_NONBLOCK, 0)
	l.n.must(err)
	l.acks, err = os.OpenFile(l.n.AckPipe(), os.O_RDWR|syscall.O_NONBLOCK, 0)
	l.n.must(err)
	l.rest = nil
	l.hello()
}

func (l *listener) close() {
	l.in.Close()
	l.acks.Close()
}

// hello wishes for a new epoch.
func (l *listener) hello() {
	l.hellos++
	l.wish, l.epoch, l.asked = fmt.Sprint("hello-", l.hellos), "", time.Time{}
}

// read takes at most so many bytes of what comes before the time is over, and
// says whether anything came.
func (l *listener) read(most int, wait time.Duration) (bool, error) {
	if l.wish != "" && time.Since(l.asked) > time.Second {
		l.asked = time.Now()
		l.say(fmt.Sprintf(`{"hello":%q}`, l.wish))
	}
	buf := make([]byte, most)
	l.in.SetReadDeadline(time.Now().Add(wait))
	got, err := l.in.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	if err != nil {
		return false, err
	}
	l.rest = append(l.rest, buf[:got]...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return got > 0, nil
		}
		l.rest = rest
		if err := l.take(line); err != nil {
			return true, fmt.Errorf("%w: %.300q", err, line)
		}
	}
}

// say writes a line of acknowledgements; a full FIFO takes none.
func (l *listener) say(line string) {
	l.acks.SetWriteDeadline(time.Now().Add(time.Millisecond))
	l.acks.WriteString(line + "\n")
}

// take is strict: nobody else writes here, so every line after the answer to a
// hello is whole and in its order.
func (l *listener) take(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var r told
	err := json.Unmarshal(line, &r)
	switch {
	case err == nil && r.Event == "HEARTBEAT":
		l.beats++
		l.dropped = r.Dropped
		return nil
	case err == nil && r.Event == "RUNTIME_LOST":
		l.lostTold++
		return nil
	case err == nil && r.Phase == "begin" && (l.wish == "" || r.Hello == l.wish):
		if r.Seq != 1 || r.Epoch == "" || r.Epoch == l.epoch {
			return errors.New("no beginning")
		}
		l.wish, l.epoch, l.seq, l.telling = "", r.Epoch, 1, true
		l.pods, l.boxes = map[string]bool{}, map[string]string{}
		l.epochs++
		return nil
	case l.wish != "":
		return nil // of an earlier epoch; perhaps half a line
	case err != nil:
		return err
	case r.Epoch != l.epoch || r.Seq != l.seq+1:
		return fmt.Errorf("after record %d of %s", l.seq, l.epoch)
	}
	l.seq++
	return l.apply(&r)
}

func (l *listener) apply(r *told) error {
	if l.telling != (r.Event == "SYNCHRONIZE") {
		return errors.New("a snapshot's record, or not, in the wrong place")
	}
	if r.Phase == "end" {
		if *r.Pods != len(l.pods) || *r.Containers != len(l.boxes) {
			return fmt.Errorf("the end after %d pods and %d containers", len(l.pods), len(l.boxes))
		}
		l.telling = false
		return nil
	}
	switch r.Event {
	case "REMOVE_POD_SANDBOX":
		delete(l.pods, r.Pod.ID)
		for id, box := range l.boxes {
			if box == r.Pod.ID {
				delete(l.boxes, id)
			}
		}
	case "REMOVE_CONTAINER":
		delete(l.boxes, r.Container.ID)
	case "STOP_POD_SANDBOX", "STOP_CONTAINER":
	default:
		if r.Pod != nil && r.Container == nil {
			l.pods[r.Pod.ID] = true
		}
		if r.Container != nil {
			l.boxes[r.Container.ID] = r.Container.Box
		}
	}
	if r.Event == "START_CONTAINER" {
		l.say(fmt.Sprintf(`{"epoch":%q,"seq":%d}`, r.Epoch, r.Seq))
	}
	return nil
}

// knows says how what it was told differs from the node: containers by their
// id, with their sandboxes.
func (l *listener) knows(pods map[string]bool, containers map[string]string) error {
	if l.epoch == "" || l.telling || fmt.Sprint(l.pods) != fmt.Sprint(pods) || fmt.Sprint(l.boxes) != fmt.Sprint(containers) {
		return fmt.Errorf("in epoch %q (wish %q, a snapshot under way: %v) it knows %d pods and %d containers, there are %d and %d",
			l.epoch, l.wish, l.telling, len(l.pods), len(l.boxes), len(pods), len(containers))
	}
	return nil
}
