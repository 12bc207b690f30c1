package stream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// running returns a Sender with a reader, a runtime and one pod with one
// container, whose first epoch, e1, is told up to its end, e1/4.
func running(t *testing.T, queue int) *Sender {
	t.Helper()
	s := newTestSender(queue)
	s.Opened()
	s.Synchronized(onePod(), "containerd", "v2")
	expect(t, s, "-", "e1/1 SYNCHRONIZE begin", "e1/2 SYNCHRONIZE p1", "e1/3 SYNCHRONIZE c1", "e1/4 SYNCHRONIZE end 1+1")
	return s
}

func onePod() Inventory {
	return Inventory{Pods: []lifecycle.Pod{pod("p1")}, Containers: []lifecycle.Container{ctr("c1", "p1", lifecycle.ContainerCreated)}}
}

func expect(t *testing.T, s *Sender, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, drain(t, s)); diff != "" {
		t.Fatalf("lines (-want +got):\n%s", diff)
	}
}

func start1() lifecycle.Record {
	return ctrEvent(lifecycle.StartContainer, pod("p1"), ctr("c1", "p1", lifecycle.ContainerCreated))
}

func TestSnapshotThenChanges(t *testing.T) {
	t.Parallel()
	s := newTestSender(10)
	s.Opened()
	expect(t, s) // no SYNCHRONIZE before the runtime synchronized
	s.Synchronized(onePod(), "containerd", "v2")
	if _, ok := s.Event(podEvent(lifecycle.RunPodSandbox, pod("p2"))); ok {
		t.Fatal("an event got a place before the epoch began")
	}
	expect(t, s, "-", "e1/1 SYNCHRONIZE begin", "e1/2 SYNCHRONIZE p1", "e1/3 SYNCHRONIZE p2", "e1/4 SYNCHRONIZE c1", "e1/5 SYNCHRONIZE end 2+1")
	ticket, ok := s.Event(start1())
	if !ok || ticket != (Ticket{"e1", 6}) {
		t.Fatalf("Event = %v, %v, want e1/6", ticket, ok)
	}
	expect(t, s, "e1/6 START_CONTAINER p1 c1")
}

func TestBeginTellsRuntimeAndNode(t *testing.T) {
	t.Parallel()
	s := newTestSender(10)
	s.Synchronized(Inventory{}, "containerd", "v2.4.2")
	s.Opened()
	s.Next()
	line, _ := s.Next()
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"v": 1.0, "epoch": "e1", "seq": 1.0, "time": "2026-01-02T03:04:05Z", "event": "SYNCHRONIZE",
		"phase": "begin", "runtime": "containerd", "runtime_version": "v2.4.2", "node": "node1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("begin (-want +got):\n%s", diff)
	}
	expect(t, s, "e1/2 SYNCHRONIZE end 0+0")
}

func TestHelloBeginsAnEpochOnce(t *testing.T) {
	t.Parallel()
	s := running(t, 10)
	s.Hello("h1")
	expect(t, s, "-", "e2/1 SYNCHRONIZE begin hello=h1", "e2/2 SYNCHRONIZE p1", "e2/3 SYNCHRONIZE c1", "e2/4 SYNCHRONIZE end 1+1")
	s.Hello("h1")
	expect(t, s) // a repeat starts nothing
	s.Synchronized(Inventory{}, "containerd", "v2")
	expect(t, s, "-", "e3/1 SYNCHRONIZE begin hello=h1", "e3/2 SYNCHRONIZE end 0+0")
}

func TestHelloWithoutRuntimeIsAnsweredLater(t *testing.T) {
	t.Parallel()
	s := running(t, 10)
	s.RuntimeLost()
	expect(t, s, "e1/0 RUNTIME_LOST")
	s.Hello("h1")
	expect(t, s)
	s.Synchronized(Inventory{}, "containerd", "v2")
	expect(t, s, "-", "e2/1 SYNCHRONIZE begin hello=h1", "e2/2 SYNCHRONIZE end 0+0")
}

func TestRuntimeLostWithinTheSnapshot(t *testing.T) {
	t.Parallel()
	s := newTestSender(10)
	s.Opened()
	s.Synchronized(onePod(), "containerd", "v2")
	for range 3 {
		s.Next()
	}
	s.RuntimeLost()
	s.RuntimeLost() // said twice, told once
	expect(t, s, "/0 RUNTIME_LOST")
	if _, ok := s.Event(start1()); ok {
		t.Error("an event of a connection that is lost got a place")
	}
}

func TestRuntimeLostKeepsChanges(t *testing.T) {
	t.Parallel()
	s := running(t, 10)
	s.Event(start1())
	s.RuntimeLost()
	expect(t, s, "e1/0 RUNTIME_LOST", "e1/5 START_CONTAINER p1 c1")
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	s := running(t, 3)
	var last Ticket
	for i := range 4 {
		ticket, ok := s.Event(ctrEvent(lifecycle.PostCreateContainer, pod("p1"), ctr(fmt.Sprintf("d%d", i), "p1", lifecycle.ContainerCreated)))
		if ok != (i < 3) {
			t.Fatalf("event %d got a place: %v", i, ok)
		}
		if ok {
			last = ticket
		}
	}
	if how := s.Settled(last); how != Ended {
		t.Errorf("a ticket of the dropped queue is %v, want Ended", how)
	}
	s.Event(start1()) // taken into the snapshot only, so dropped as a change too
	if st := s.Stats(); st.Dropped != 5 || st.Overflows != 1 || st.Queued != 0 {
		t.Errorf("Stats = %+v, want 5 dropped by 1 overflow, none queued", st)
	}
	expect(t, s, "-", "e2/1 SYNCHRONIZE begin", "e2/2 SYNCHRONIZE p1", "e2/3 SYNCHRONIZE c1", "e2/4 SYNCHRONIZE d0",
		"e2/5 SYNCHRONIZE d1", "e2/6 SYNCHRONIZE d2", "e2/7 SYNCHRONIZE d3", "e2/8 SYNCHRONIZE end 1+5")
	s.Event(start1())
	expect(t, s, "e2/9 START_CONTAINER p1 c1")
	if st := s.Stats(); st.Dropped != 5 {
		t.Errorf("%d dropped after the new epoch began, want 5", st.Dropped)
	}
}

func TestSnapshotDoesNotCountAgainstTheQueue(t *testing.T) {
	t.Parallel()
	s := newTestSender(1)
	s.Opened()
	var inv Inventory
	for i := range 100 {
		inv.Pods = append(inv.Pods, pod(fmt.Sprintf("p%02d", i)))
	}
	s.Synchronized(inv, "containerd", "v2")
	s.Next()
	if _, ok := s.Event(podEvent(lifecycle.RunPodSandbox, pod("q"))); !ok {
		t.Fatal("the one place of the queue is taken by the snapshot")
	}
	got := drain(t, s)
	if last := got[len(got)-1]; len(got) != 103 || last != "e1/103 RUN_POD_SANDBOX q" {
		t.Errorf("%d lines, the last is %s; want 103 with the change last", len(got), last)
	}
}

func TestNothingIsQueuedWithoutReader(t *testing.T) {
	t.Parallel()
	s := running(t, 3)
	s.Event(start1())
	s.Broken()
	for range 10 {
		if _, ok := s.Event(start1()); ok {
			t.Fatal("an event got a place without a reader")
		}
	}
	s.Heartbeat(BarrierStats{})
	s.RuntimeLost()
	s.Synchronized(Inventory{}, "containerd", "v2")
	if _, ok := s.Next(); ok {
		t.Fatal("Next gave a line without a reader")
	}
	if st := s.Stats(); st.Dropped != 0 || st.Queued != 0 {
		t.Errorf("Stats = %+v, want nothing dropped, nothing queued", st)
	}
	s.Opened()
	expect(t, s, "-", "e2/1 SYNCHRONIZE begin", "e2/2 SYNCHRONIZE end 0+0")
}

func TestOpenedAgainBeginsAnEpoch(t *testing.T) {
	t.Parallel()
	s := running(t, 3)
	s.Event(start1())
	s.Opened()
	expect(t, s, "-", "e2/1 SYNCHRONIZE begin", "e2/2 SYNCHRONIZE p1", "e2/3 SYNCHRONIZE c1", "e2/4 SYNCHRONIZE end 1+1")
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := newTestSender(3)
	s.Opened()
	s.Heartbeat(BarrierStats{Hits: 1})
	s.Heartbeat(BarrierStats{Hits: 7, Misses: 8, Skips: 9})
	// The empty line ends what an earlier writer may have left of a line.
	if line, _ := s.Next(); string(line) != "\n" {
		t.Fatalf("the first line is %q, want an empty one", line)
	}
	line, _ := s.Next()
	want := `{"v":1,"epoch":"","seq":0,"time":"2026-01-02T03:04:05Z","event":"HEARTBEAT","runtime_state":"disconnected",` +
		`"queue_dropped":0,"barrier_hits":7,"barrier_misses":8,"barrier_skips":9}` + "\n"
	if string(line) != want {
		t.Errorf("heartbeat = %s, want %s", line, want)
	}
	expect(t, s)
	s.Synchronized(Inventory{}, "containerd", "v2")
	s.Next()
	s.Heartbeat(BarrierStats{})
	expect(t, s, "e1/0 HEARTBEAT", "e1/1 SYNCHRONIZE begin", "e1/2 SYNCHRONIZE end 0+0")
}

func TestAcknowledgements(t *testing.T) {
	t.Parallel()
	s := running(t, 10)
	a, _ := s.Event(start1())
	b, _ := s.Event(start1())
	drain(t, s)
	steps := []struct {
		ack    lifecycle.Ack
		top    uint64
		raised bool
		a, b   Settlement
	}{
		{lifecycle.Ack{Epoch: "e0", Seq: 9}, 0, false, Waiting, Waiting},
		{lifecycle.Ack{Epoch: "e1", Seq: 9}, 0, false, Waiting, Waiting}, // never sent
		{lifecycle.Ack{Epoch: "e1", Seq: 4}, 4, true, Waiting, Waiting},
		{lifecycle.Ack{Epoch: "e1", Seq: 5}, 5, true, Acked, Waiting},
		{lifecycle.Ack{Epoch: "e1", Seq: 4}, 5, false, Acked, Waiting},
		{lifecycle.Ack{Epoch: "e1", Seq: 6}, 6, true, Acked, Acked},
	}
	for _, step := range steps {
		top, raised := s.Acked(step.ack)
		if top.Seq != step.top || raised != step.raised || s.Settled(a) != step.a || s.Settled(b) != step.b {
			t.Errorf("after %v: top %v, raised %v, a %v, b %v; want %+v", step.ack, top, raised, s.Settled(a), s.Settled(b), step)
		}
	}
	s.Hello("h")
	if s.Settled(a) != Ended || s.Settled(Ticket{}) != Ended {
		t.Error("a ticket of an epoch that is over is not Ended")
	}
	if top, raised := s.Acked(lifecycle.Ack{Epoch: "e1", Seq: 6}); raised {
		t.Errorf("an acknowledgement of an old epoch raised to %v", top)
	}
	drain(t, s)
	if s.Settled(Ticket{"e1", 1}) != Ended {
		t.Error("a ticket of an old epoch is not Ended in a new one")
	}
}

func TestUntellable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxKey+1)
	s := newTestSender(10)
	s.Opened()
	s.Synchronized(Inventory{
		Pods:       []lifecycle.Pod{pod("p1"), pod(long), pod(""), {ID: "a\x00b"}, {ID: "\xff"}, {ID: "q", PID: -5}},
		Containers: []lifecycle.Container{{ID: "c1", PodSandboxID: "p1", CgroupsPath: long}},
	}, "containerd", "v2")
	expect(t, s, "-", "e1/1 SYNCHRONIZE begin", "e1/2 SYNCHRONIZE p1", "e1/3 SYNCHRONIZE q", "e1/4 SYNCHRONIZE end 2+0")
	if _, ok := s.Event(podEvent(lifecycle.RunPodSandbox, pod(long))); ok {
		t.Error("a record that fits in no line got a place")
	}
	if _, ok := s.Event(lifecycle.Record{Event: lifecycle.StartContainer}); ok {
		t.Error("a START_CONTAINER without a container got a place")
	}
	if _, ok := s.Event(podEvent(lifecycle.Synchronize, pod("p"))); ok {
		t.Error("a SYNCHRONIZE got a place as a change")
	}
	if st := s.Stats(); st.Untellable != 8 || st.Dropped != 8 {
		t.Errorf("Stats = %+v, want 8 untellable and dropped", st)
	}
	expect(t, s) // and no new epoch: it could not heal this
	s.Event(ctrEvent(lifecycle.StartContainer, pod(long), ctr("c2", "p1", lifecycle.ContainerCreated)))
	expect(t, s, "e1/5 START_CONTAINER c2") // the container is told, its pod is not
}

// TestTheLongestRecordFits: whatever Event takes can be encoded, even if JSON
// needs six bytes for each byte of it.
func TestTheLongestRecordFits(t *testing.T) {
	t.Parallel()
	key, text := strings.Repeat("\x01", maxKey), strings.Repeat("\x01", 1<<20)
	p := lifecycle.Pod{ID: key, UID: key, CgroupParent: key, Name: text, Namespace: text, RuntimeHandler: text, PID: 1 << 30}
	c := lifecycle.Container{ID: key, PodSandboxID: key, CgroupsPath: key, Name: text, State: lifecycle.ContainerState(text), PID: 1 << 30}
	s := running(t, 10)
	if _, ok := s.Event(ctrEvent(lifecycle.StartContainer, p, c)); !ok {
		t.Fatal("the longest record got no place")
	}
	if got := drain(t, s); len(got) != 1 || !strings.HasPrefix(got[0], "e1/5 START_CONTAINER") {
		t.Fatalf("%d lines", len(got))
	}
	s.Hello(strings.Repeat("h", lifecycle.MaxHelloID))
	if got := drain(t, s); len(got) != 7 {
		t.Errorf("%d lines of the snapshot, want 7", len(got))
	}
}

func TestCutKeepsRunesWhole(t *testing.T) {
	t.Parallel()
	in := strings.Repeat("x", maxText-1) + "é"
	if got := cut(in); got != in[:maxText-1] {
		t.Errorf("cut ends with %q", got[len(got)-3:])
	}
}
