package stream

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

func TestSnapshotThenChanges(t *testing.T) {
	t.Parallel()
	s := newTestSender(10)
	s.Opened()
	if got := drain(t, s); len(got) != 0 {
		t.Fatalf("before the runtime synchronized: %q, want nothing", got)
	}
	s.Synchronized(Inventory{Pods: []lifecycle.Pod{pod("p1")}, Containers: []lifecycle.Container{ctr("c1", "p1", lifecycle.ContainerRunning)}}, "containerd", "v2")
	if _, ok := s.Event(podEvent(lifecycle.RunPodSandbox, pod("p2"))); ok {
		t.Fatal("an event got a place before the epoch began")
	}
	want := []string{"-", "e1/1 SYNCHRONIZE begin", "e1/2 SYNCHRONIZE p1", "e1/3 SYNCHRONIZE p2", "e1/4 SYNCHRONIZE c1", "e1/5 SYNCHRONIZE end 2+1"}
	if diff := cmp.Diff(want, drain(t, s)); diff != "" {
		t.Fatalf("snapshot (-want +got):\n%s", diff)
	}
	ticket, ok := s.Event(ctrEvent(lifecycle.StartContainer, pod("p1"), ctr("c2", "p1", lifecycle.ContainerCreated)))
	if !ok || ticket != (Ticket{"e1", 6}) {
		t.Fatalf("Event = %v, %v, want e1/6", ticket, ok)
	}
	if diff := cmp.Diff([]string{"e1/6 START_CONTAINER p1 c2"}, drain(t, s)); diff != "" {
		t.Fatalf("change (-want +got):\n%s", diff)
	}
}
