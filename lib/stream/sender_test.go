package stream

import (
	"fmt"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newTestSender(queue int) *Sender {
	epochs := 0
	return NewSender(SenderOptions{
		QueueSize: queue, Node: "node1",
		NewEpoch: func() string { epochs++; return fmt.Sprintf("e%d", epochs) },
		Now:      func() time.Time { return start },
	})
}

func pod(id string) lifecycle.Pod { return lifecycle.Pod{ID: id, UID: "uid-" + id, PID: 1} }

func ctr(id, pod string, state lifecycle.ContainerState) lifecycle.Container {
	return lifecycle.Container{ID: id, PodSandboxID: pod, State: state, PID: 2}
}

// podEvent and ctrEvent make a record as the watcher gives it to Event.
func podEvent(e lifecycle.Event, p lifecycle.Pod) lifecycle.Record {
	return lifecycle.Record{Event: e, Pod: &p}
}

func ctrEvent(e lifecycle.Event, p lifecycle.Pod, c lifecycle.Container) lifecycle.Record {
	return lifecycle.Record{Event: e, Pod: &p, Container: &c}
}

// drain returns all lines that wait, as short texts.
func drain(t *testing.T, s *Sender) []string {
	t.Helper()
	var out []string
	for {
		line, ok := s.Next()
		if !ok {
			return out
		}
		if string(line) == "\n" {
			out = append(out, "-")
			continue
		}
		rec, err := lifecycle.Decode(line)
		if err != nil {
			t.Fatalf("the sender wrote %q: %v", line, err)
		}
		out = append(out, brief(rec))
	}
}

// brief is "epoch/seq EVENT what".
func brief(r *lifecycle.Record) string {
	s := fmt.Sprintf("%s/%d %s", r.Epoch, r.Seq, r.Event)
	if r.Phase != "" {
		s += " " + r.Phase
	}
	if r.Hello != "" {
		s += " hello=" + r.Hello
	}
	if r.Pod != nil {
		s += " " + r.Pod.ID
	}
	if r.Container != nil {
		s += " " + r.Container.ID
	}
	if r.Pods != nil {
		s += fmt.Sprintf(" %d+%d", *r.Pods, *r.Containers)
	}
	return s
}
