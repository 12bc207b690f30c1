package stream

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

func TestInventory(t *testing.T) {
	t.Parallel()
	p1, p2 := pod("p1"), pod("p2")
	c := func(state lifecycle.ContainerState, pid int) lifecycle.Container {
		return lifecycle.Container{ID: "c1", PodSandboxID: "p1", State: state, PID: pid}
	}
	const created, run, stop = lifecycle.ContainerCreated, lifecycle.ContainerRunning, lifecycle.ContainerStopped
	tests := []struct {
		name   string
		events []lifecycle.Record
		told   int // how many of the events are told
		want   Inventory
	}{
		{"a container brings its pod", []lifecycle.Record{ctrEvent(lifecycle.PostCreateContainer, p1, c(created, 0))}, 1,
			Inventory{[]lifecycle.Pod{p1}, []lifecycle.Container{c(created, 0)}}},
		{"start registers", []lifecycle.Record{ctrEvent(lifecycle.StartContainer, p1, c(created, 9))}, 1,
			Inventory{[]lifecycle.Pod{p1}, []lifecycle.Container{c(created, 9)}}},
		{"post start runs", []lifecycle.Record{
			ctrEvent(lifecycle.StartContainer, p1, c(created, 9)), ctrEvent(lifecycle.PostStartContainer, p1, c(run, 9)),
		}, 2, Inventory{[]lifecycle.Pod{p1}, []lifecycle.Container{c(run, 9)}}},
		{"a stopped one stays, whatever the event's state", []lifecycle.Record{
			ctrEvent(lifecycle.StartContainer, p1, c(created, 9)), ctrEvent(lifecycle.StopContainer, p1, c(created, 9)),
		}, 2, Inventory{[]lifecycle.Pod{p1}, []lifecycle.Container{c(stop, 0)}}},
		{"a late post start does not revive", []lifecycle.Record{
			ctrEvent(lifecycle.StartContainer, p1, c(created, 9)), ctrEvent(lifecycle.StopContainer, p1, c(stop, 9)),
			ctrEvent(lifecycle.PostStartContainer, p1, c(run, 9)),
		}, 3, Inventory{[]lifecycle.Pod{p1}, []lifecycle.Container{c(stop, 0)}}},
		{"a late post start brings nothing back", []lifecycle.Record{
			ctrEvent(lifecycle.StartContainer, p1, c(created, 9)), ctrEvent(lifecycle.RemoveContainer, p1, c("", 0)),
			podEvent(lifecycle.RemovePodSandbox, p1),
			ctrEvent(lifecycle.PostStartContainer, p1, c(run, 9)), ctrEvent(lifecycle.PostUpdateContainer, p1, c(run, 9)),
		}, 3, Inventory{}},
		{"a stop of what is not there is not told", []lifecycle.Record{ctrEvent(lifecycle.StopContainer, p1, c(stop, 9))}, 0, Inventory{}},
		{"a removal of what is not there is told", []lifecycle.Record{ctrEvent(lifecycle.RemoveContainer, p1, c("", 0))}, 1, Inventory{}},
		{"stop and removal bring no pod", []lifecycle.Record{podEvent(lifecycle.StopPodSandbox, p1), podEvent(lifecycle.RemovePodSandbox, p2)}, 2, Inventory{}},
		{"a stopped sandbox has no pid", []lifecycle.Record{podEvent(lifecycle.RunPodSandbox, p1), podEvent(lifecycle.StopPodSandbox, p1)}, 2,
			Inventory{[]lifecycle.Pod{{ID: "p1", UID: "uid-p1"}}, nil}},
		{"a known pod stays as it ran", []lifecycle.Record{
			podEvent(lifecycle.RunPodSandbox, p1), ctrEvent(lifecycle.StartContainer, lifecycle.Pod{ID: "p1", UID: "other"}, c(created, 9)),
		}, 2, Inventory{[]lifecycle.Pod{p1}, []lifecycle.Container{c(created, 9)}}},
		{"a sandbox takes its containers along", []lifecycle.Record{
			podEvent(lifecycle.RunPodSandbox, p2), ctrEvent(lifecycle.StartContainer, p1, c(created, 9)), podEvent(lifecycle.RemovePodSandbox, p1),
		}, 3, Inventory{[]lifecycle.Pod{p2}, nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			testInventory(t, tt.events, tt.told, tt.want)
		})
	}
}

// testInventory tells a Sender of events; told of them must come out as records.
func testInventory(t *testing.T, events []lifecycle.Record, wantTold int, want Inventory) {
	t.Helper()
	s := newTestSender(100)
	s.Opened()
	s.Synchronized(Inventory{}, "containerd", "v2")
	drain(t, s)
	told := 0
	for _, rec := range events {
		if _, ok := s.Event(rec); ok {
			told++
		}
	}
	if told != wantTold {
		t.Errorf("%d events were told, want %d", told, wantTold)
	}
	if diff := cmp.Diff(want, s.Inventory()); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

func TestEventLeavesTheCallersRecord(t *testing.T) {
	t.Parallel()
	s := running(t, 3)
	p, c := lifecycle.Pod{ID: "p9"}, lifecycle.Container{ID: "c9", PID: -1}
	s.Event(lifecycle.Record{Event: lifecycle.StartContainer, Pod: &p, Container: &c})
	if p.UID != "" || c.PID != -1 || c.PodSandboxID != "" {
		t.Errorf("Event changed what the caller holds: %+v %+v", p, c)
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	t.Parallel()
	var q queue
	next := uint64(0)
	pushed := uint64(0)
	for round := range 500 {
		for range round%7 + 1 {
			pushed++
			q.push(lifecycle.Record{Seq: pushed})
		}
		for range round % 6 {
			rec, ok := q.pop()
			if !ok {
				break
			}
			if next++; rec.Seq != next {
				t.Fatalf("pop gave %d, want %d", rec.Seq, next)
			}
		}
		if want := int(pushed - next); q.len() != want {
			t.Fatalf("len = %d, want %d", q.len(), want)
		}
	}
	if len(q.items) > 2*q.len()+128 {
		t.Errorf("%d records keep room for %d", q.len(), len(q.items))
	}
}
