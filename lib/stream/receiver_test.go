package stream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// wire makes lines from a short script: "e1/5 begin h1", "e1/2 pod p1",
// "e1/3 ctr c1", "e1/4 end 1 1", "e1/5 start c1", "e1/6 unknown"; "heartbeat";
// "=…" is the line itself.
func wire(t *testing.T, step string) []byte {
	t.Helper()
	if raw, ok := strings.CutPrefix(step, "="); ok {
		return []byte(raw)
	}
	if step == "heartbeat" || step == "lost" {
		event := map[string]lifecycle.Event{"heartbeat": lifecycle.Heartbeat, "lost": lifecycle.RuntimeLost}[step]
		return encode(t, lifecycle.Record{V: 1, Event: event})
	}
	rec := lifecycle.Record{V: 1, Event: lifecycle.Synchronize, Time: start}
	place, what, _ := strings.Cut(step, " ")
	if n, err := fmt.Sscanf(strings.Replace(place, "/", " ", 1), "%s %d", &rec.Epoch, &rec.Seq); n != 2 || err != nil {
		t.Fatalf("bad step %q", step)
	}
	var verb, id string
	var pods, containers int
	_, _ = fmt.Sscan(what, &verb, &id) // an id is not always there
	p, c := pod(id), ctr(id, "p1", lifecycle.ContainerCreated)
	switch verb {
	case "begin":
		rec.Phase, rec.Hello = lifecycle.PhaseBegin, id
	case "pod":
		rec.Pod = &p
	case "ctr":
		rec.Container = &c
	case "end":
		if _, err := fmt.Sscan(what, &verb, &pods, &containers); err != nil {
			t.Fatal(err)
		}
		rec.Phase, rec.Pods, rec.Containers = lifecycle.PhaseEnd, &pods, &containers
	case "start":
		rec.Event, rec.Container = lifecycle.StartContainer, &c
	default:
		rec.Event = "UNKNOWN_EVENT"
	}
	return encode(t, rec)
}

func encode(t *testing.T, rec lifecycle.Record) []byte {
	t.Helper()
	line, err := lifecycle.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// tell is what an input says, in short.
func tell(in Input) string {
	switch in.Kind {
	case KindNothing:
		return ""
	case KindSnapshot:
		var ids []string
		for _, p := range in.Snapshot.Pods {
			ids = append(ids, p.ID)
		}
		for _, c := range in.Snapshot.Containers {
			ids = append(ids, c.ID)
		}
		return fmt.Sprintf("snapshot %s/%d [%s] skipped %d", in.Snapshot.Begin.Epoch, in.Snapshot.EndSeq, strings.Join(ids, " "), in.Skipped)
	case KindWantHello:
		return "want hello: " + in.Reason
	case KindRecord:
		return fmt.Sprintf("record %s/%d", in.Record.Epoch, in.Record.Seq)
	}
	return in.Kind.String()
}

// course is what a Receiver is given, and what it says.
type course struct {
	name  string
	steps []string // "!h1" is the wish h1
	want  []string // what is not KindNothing
}

// got1 is what the lines of then say.
const got1 = "snapshot e1/4 [p1 c1] skipped 0"

// then returns a whole snapshot's lines and more.
func then(more ...string) []string {
	return append([]string{"=", "e1/1 begin", "e1/2 pod p1", "e1/3 ctr c1", "e1/4 end 1 1"}, more...)
}

func TestReceiver(t *testing.T) {
	t.Parallel()
	testCourses(t, []course{
		{"snapshot then changes", then("e1/5 start c1", "e1/6 start c1"), []string{got1, "record e1/5", "record e1/6"}},
		{"empty snapshot", []string{"e1/1 begin", "e1/2 end 0 0"}, []string{"snapshot e1/2 [] skipped 0"}},
		{"an epoch after another", then("e1/5 start c1", "=\n", "e2/1 begin", "e2/2 end 0 0"), []string{got1, "record e1/5", "snapshot e2/2 [] skipped 0"}},
		{"outside the sequence", []string{"heartbeat", "e1/1 begin", "lost", "e1/2 end 0 0", "heartbeat", "e1/3 start c"},
			[]string{"heartbeat", "runtime_lost", "snapshot e1/2 [] skipped 0", "heartbeat", "record e1/3"}},
		{"unknown events keep their place", then("e1/5 unknown", "e1/6 start c1"), []string{got1, "unknown_event", "record e1/6"}},
		{"unknown event within the snapshot", []string{"e1/1 begin", "e1/2 unknown", "e1/3 end 0 0"}, []string{"unknown_event", "snapshot e1/3 [] skipped 0"}},
		{"unknown event outside the sequence", then(`={"v":1,"event":"MOOD"}`, "e1/5 start c1"), []string{got1, "unknown_event", "record e1/5"}},
		{"blank lines", then("=", "= \t\r\n", "e1/5 start c1"), []string{got1, "record e1/5"}},
		{"a snapshot that is cut off changes nothing", []string{"e1/1 begin", "e1/2 pod p1", "=", "e2/1 begin", "e2/2 pod p2", "e2/3 end 1 0"},
			[]string{"snapshot e2/3 [p2] skipped 0"}},
	})
}

func TestReceiverBreaksOff(t *testing.T) {
	t.Parallel()
	testCourses(t, []course{
		{"gap", then("e1/6 start c1", "e1/7 start c1", "e2/1 begin", "e2/2 end 0 0"),
			[]string{got1, "want hello: record 6 of epoch e1 comes after record 4", "snapshot e2/2 [] skipped 1"}},
		{"gap over an unknown event", then("e1/6 unknown"), []string{got1, "want hello: record 6 of epoch e1 comes after record 4"}},
		{"seen already", then("e1/4 start c1"), []string{got1, "want hello: record 4 of epoch e1 comes after record 4"}},
		{"seen long ago", then("e1/2 pod p1"), []string{got1, "want hello: record 2 of epoch e1 comes after record 4"}},
		{"other epoch without a begin", then("e2/5 start c1"), []string{got1, "want hello: record 5 of epoch e2 comes in epoch e1, without a begin"}},
		{"nothing before a begin", []string{"e1/2 ctr c1", "e1/3 end 0 1"}, []string{"want hello: record 2 of epoch e1 comes before any snapshot's begin"}},
		{"a change before a begin", []string{"e1/5 start c1"}, []string{"want hello: record 5 of epoch e1 comes before any snapshot's begin"}},
		{"begin is not the first", []string{"e1/3 begin"}, []string{"want hello: epoch e1 begins with record 3, want 1"}},
		{"snapshot goes on after its end", then("e1/5 pod p2"), []string{got1, "want hello: record 5 of epoch e1 is part of a snapshot, after the snapshot's end"}},
		{"change within the snapshot", []string{"e1/1 begin", "e1/2 start c1"}, []string{"want hello: record 2 of epoch e1 is a START_CONTAINER inside the snapshot"}},
		{"wrong count of pods", []string{"e1/1 begin", "e1/2 pod p1", "e1/3 end 2 0"},
			[]string{"want hello: the snapshot of epoch e1 ends with 2 pods and 0 containers, but had 1 and 0"}},
		{"wrong count of containers", []string{"e1/1 begin", "e1/2 ctr c1", "e1/3 end 0 0"},
			[]string{"want hello: the snapshot of epoch e1 ends with 0 pods and 0 containers, but had 0 and 1"}},
		{"pod twice", []string{"e1/1 begin", "e1/2 pod p1", "e1/3 pod p1"}, []string{"want hello: record 3 of epoch e1 names a pod for the second time in the snapshot"}},
		{"container twice", []string{"e1/1 begin", "e1/2 ctr a", "e1/3 ctr a"}, []string{"want hello: record 3 of epoch e1 names a container for the second time in the snapshot"}},
		{"garbage", then("=garbage", "=more", "e1/5 start c1", "e2/1 begin", "e2/2 end 0 0"),
			[]string{got1, "want hello: a line is no valid record: line is not one JSON object", "snapshot e2/2 [] skipped 2"}},
		{"garbage at first", []string{"=garbage"}, []string{"want hello: a line is no valid record: line is not one JSON object"}},
		{"garbage within the snapshot", []string{"e1/1 begin", "=}", "e1/2 end 0 0"}, []string{"want hello: a line is no valid record: line is not one JSON object"}},
	})
}

func TestReceiverWishes(t *testing.T) {
	t.Parallel()
	testCourses(t, []course{
		{"a wish is answered", []string{"!h1", "e1/1 begin h1", "e1/2 end 0 0"}, []string{"snapshot e1/2 [] skipped 0"}},
		{"half a line before the begin", []string{"!h1", `=_id":"p1"}}`, "=", "e1/1 begin h1", "e1/2 end 0 0"}, []string{"snapshot e1/2 [] skipped 1"}},
		{"an old whole snapshot in the pipe", append([]string{"!h1"}, then("e1/5 start c1", "=", "e2/1 begin h1", "e2/2 end 0 0", "e2/3 start c1")...),
			[]string{"snapshot e2/2 [] skipped 5", "record e2/3"}},
		{"the answer to an older wish", []string{"!h1", "!h2", "e1/1 begin h1", "e1/2 end 0 0", "e2/1 begin h2", "e2/2 end 0 0"}, []string{"snapshot e2/2 [] skipped 2"}},
		{"health passes while waiting", []string{"!h1", "heartbeat", "=junk", "lost"}, []string{"heartbeat", "runtime_lost"}},
		{"a wish ends the epoch", then("!h1", "e1/5 start c1", "e2/1 begin h1", "e2/2 end 0 0"), []string{got1, "snapshot e2/2 [] skipped 1"}},
		{"a repeated wish is the same one", []string{"!h1", "e1/1 begin h1", "e1/2 pod p1", "e1/3 end 1 0", "e1/4 start c"}, []string{"snapshot e1/3 [p1] skipped 0", "record e1/4"}},
		{"any begin counts when all wishes are answered", []string{"!h1", "e1/1 begin h1", "e1/2 end 0 0", "e2/1 begin", "e2/2 end 0 0"},
			[]string{"snapshot e1/2 [] skipped 0", "snapshot e2/2 [] skipped 0"}},
		{"an answer that is no begin of ours is not the last word", []string{"!h1", "e1/7 begin h1", "!h2", "e2/1 begin h2", "e2/2 end 0 0"},
			[]string{"want hello: epoch e1 begins with record 7, want 1", "snapshot e2/2 [] skipped 0"}},
	})
}

func testCourses(t *testing.T, tests []course) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewReceiver(ReceiverOptions{})
			if diff := cmp.Diff(tt.want, play(t, r, tt.steps)); diff != "" {
				t.Errorf("inputs (-want +got):\n%s", diff)
			}
		})
	}
}

func play(t *testing.T, r *Receiver, steps []string) []string {
	t.Helper()
	var got []string
	for _, step := range steps {
		if wish, ok := strings.CutPrefix(step, "!"); ok {
			r.Begin(wish)
			continue
		}
		if s := tell(r.Line(wire(t, step))); s != "" {
			got = append(got, s)
		}
	}
	return got
}

func TestReceiverRequiresHello(t *testing.T) {
	t.Parallel()
	r := NewReceiver(ReceiverOptions{RequireHello: true})
	steps := []string{"=junk", "e1/1 begin", "e1/2 end 0 0", "heartbeat", "!h1", "e2/1 begin", "e2/2 end 0 0", "e3/1 begin h1", "e3/2 end 0 0"}
	want := []string{"heartbeat", "snapshot e3/2 [] skipped 5"}
	if diff := cmp.Diff(want, play(t, r, steps)); diff != "" {
		t.Errorf("inputs (-want +got):\n%s", diff)
	}
}

func TestReceiverTellsWhereItIs(t *testing.T) {
	t.Parallel()
	r := NewReceiver(ReceiverOptions{RequireHello: true})
	check := func(when, wish, epoch string, complete bool) {
		t.Helper()
		if r.Wish() != wish || r.Epoch() != epoch || r.Complete() != complete {
			t.Errorf("%s: wish %q, epoch %q, complete %v; want %q, %q, %v", when, r.Wish(), r.Epoch(), r.Complete(), wish, epoch, complete)
		}
	}
	check("at first", "", "", false)
	r.Begin("h1")
	r.Begin("h1")
	check("with a wish", "h1", "", false)
	play(t, r, []string{"e1/1 begin h1"})
	check("within the snapshot", "", "e1", false)
	play(t, r, []string{"e1/2 end 0 0"})
	check("after the snapshot", "", "e1", true)
	r.Begin("")
	check("after a wish that is none", "", "e1", true)
	play(t, r, []string{"e1/9 start c"})
	check("after a gap", "", "", false)
}

// TestLongLine: a line of 2 MiB, as the reader of the pipe reports it and as
// --stdin might hand it over.
func TestLongLine(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(*Receiver) Input{
		"reported": func(r *Receiver) Input { return r.Bad("line is longer than 1048576 bytes") },
		"handed over": func(r *Receiver) Input {
			return r.Line([]byte(`{"v":1,"x":"` + strings.Repeat("x", 2<<20) + `"}`))
		},
	} {
		r := NewReceiver(ReceiverOptions{})
		play(t, r, []string{"e1/1 begin", "e1/2 end 0 0"})
		if got := tell(bad(r)); got != "want hello: a line is no valid record: line is longer than 1048576 bytes" {
			t.Errorf("%s: %s", name, got)
		}
		if got := tell(bad(r)); got != "" {
			t.Errorf("%s again: %s, want silence", name, got)
		}
		if got := play(t, r, []string{"e2/1 begin", "e2/2 end 0 0"}); len(got) != 1 || got[0] != "snapshot e2/2 [] skipped 1" {
			t.Errorf("%s: the next epoch gives %q", name, got)
		}
	}
}

func TestSnapshotIsBounded(t *testing.T) {
	t.Parallel()
	line := len(wire(t, "e1/10 pod p1000"))
	r := NewReceiver(ReceiverOptions{MaxSnapshot: 10 * line})
	r.Line(wire(t, "e1/1 begin"))
	for i := range 12 {
		in := r.Line(wire(t, fmt.Sprintf("e1/%d pod p%d", i+2, i+1000)))
		if want := i >= 10; (in.Kind == KindWantHello) != want && i < 11 {
			t.Fatalf("pod %d: %s", i, tell(in))
		}
	}
	if r.snapshot != nil || r.seen != nil {
		t.Error("the snapshot that was too large is still in memory")
	}
}

// TestABigNodeFits: 1,000 pods with five containers each, through both ends.
func TestABigNodeFits(t *testing.T) {
	t.Parallel()
	var inv Inventory
	long := strings.Repeat("0123456789abcdef", 16)
	for i := range 1000 {
		id := fmt.Sprintf("%04d-%s", i, long[:64])
		inv.Pods = append(inv.Pods, lifecycle.Pod{ID: id, UID: id, Name: long[:60], Namespace: long[:60], CgroupParent: long, RuntimeHandler: "runc"})
		for j := range 5 {
			cid := fmt.Sprintf("%d-%s", j, id)
			inv.Containers = append(inv.Containers, lifecycle.Container{ID: cid, PodSandboxID: id, Name: long[:60], State: lifecycle.ContainerRunning, PID: 1 << 20, CgroupsPath: long})
		}
	}
	s, r := newTestSender(1), NewReceiver(ReceiverOptions{})
	s.Opened()
	s.Synchronized(inv, "containerd", "v2")
	for {
		line, ok := s.Next()
		if !ok {
			t.Fatal("the snapshot did not arrive")
		}
		in := r.Line(line)
		if in.Kind == KindSnapshot {
			if diff := cmp.Diff(inv.Pods, in.Snapshot.Pods); diff != "" || len(in.Snapshot.Containers) != 5000 {
				t.Errorf("%d containers, pods (-want +got):\n%s", len(in.Snapshot.Containers), diff)
			}
			return
		}
		if in.Kind != KindNothing {
			t.Fatal(tell(in))
		}
	}
}

// TestReceiverKeepsNothingOfTheLine: the reader uses a line's memory again.
func TestReceiverKeepsNothingOfTheLine(t *testing.T) {
	t.Parallel()
	r := NewReceiver(ReceiverOptions{})
	buf := make([]byte, 4096)
	var got Input
	for _, step := range []string{"e1/1 begin", "e1/2 pod p1", "e1/3 end 1 0"} {
		n := copy(buf, wire(t, step))
		got = r.Line(buf[:n])
		clear(buf)
	}
	if s := tell(got); s != "snapshot e1/3 [p1] skipped 0" {
		t.Error(s)
	}
}
