package state

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

func lines(t testing.TB, s *Store) []string {
	t.Helper()
	got, err := s.Unexported(context.Background(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestLinesAreAsSpecified(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	p := podOf("u1", 2)
	failed := podOf("u1", 1)
	failed.Pod.GroupState, failed.Pod.Reason, failed.Pod.Reconciled = rules.GroupFailed, rules.ReasonCapacity, 0
	gone := eventOf(failed) // its counters and state must not be told
	gone.Type, gone.Source = rules.Removed, "resctrl-retry"
	exists := eventOf(p)
	exists.Reason = rules.ReasonIO // nor an old reason
	exists.Time = t0.In(time.FixedZone("CET", 3600))
	mustCommit(t, s, Batch{Events: []SourcedEvent{exists, eventOf(failed)}})
	mustCommit(t, s, Batch{Events: []SourcedEvent{gone}})
	id := s.LogID()
	want := []string{
		`{"log":"` + id + `","seq":1,"time":"2026-03-01T12:00:00.123456789Z","type":"AddOrUpdate","pod_uid":"u1","group_state":"Exists","group_path":"/sys/fs/resctrl/mon_groups/pod_u1","total_containers":2,"reconciled_containers":2,"pod_namespace":"shop","pod_name":"web-u1","node":"node-1","source":"resctrl-applier"}`,
		`{"log":"` + id + `","seq":2,"time":"2026-03-01T12:00:00.123456789Z","type":"AddOrUpdate","pod_uid":"u1","group_state":"Failed","reason":"capacity","total_containers":1,"reconciled_containers":0,"pod_namespace":"shop","pod_name":"web-u1","node":"node-1","source":"resctrl-applier"}`,
		`{"log":"` + id + `","seq":3,"time":"2026-03-01T12:00:00.123456789Z","type":"Removed","pod_uid":"u1","pod_namespace":"shop","pod_name":"web-u1","node":"node-1","source":"resctrl-retry"}`,
	}
	if d := cmp.Diff(want, lines(t, s)); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
	rows, err := s.texts(context.Background(), `SELECT seq || ' ' || time || ' ' || type || ' ' || pod_uid || ' ' || group_state || ' ' || group_path
		|| ' ' || reason || ' ' || total_containers || ' ' || reconciled_containers || ' ' || source FROM events ORDER BY seq`)
	wantRows := []string{
		"1 2026-03-01T12:00:00.123456789Z AddOrUpdate u1 Exists /sys/fs/resctrl/mon_groups/pod_u1  2 2 resctrl-applier",
		"2 2026-03-01T12:00:00.123456789Z AddOrUpdate u1 Failed  capacity 1 0 resctrl-applier",
		"3 2026-03-01T12:00:00.123456789Z Removed u1    0 0 resctrl-retry",
	}
	if d := cmp.Diff(wantRows, rows); d != "" || err != nil {
		t.Errorf("rows: %v (-want +got):\n%s", err, d)
	}
}

// What a pod's author chooses cannot break a line, nor write to a terminal.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	for _, name := range []string{"a\nb\r\x00\x1b[2J", "\u009b2J\u007f\u0085", "<b>&'\"\\", "\u2028\u2029", "\xff\xfe", "Größe 💾", strings.Repeat("x", 1<<20)} {
		p := podOf("u1", 0)
		p.Pod.Name = name
		mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(p)}})
		last := lines(t, s)
		line := last[len(last)-1]
		for _, r := range line {
			if r < ' ' || (r >= 0x7f && r <= 0x9f) {
				t.Errorf("%q: control character %U in %q", name, r, line)
			}
		}
		var e eventLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if e.Name != strings.ToValidUTF8(name, "\ufffd\ufffd") && e.Name != strings.ToValidUTF8(name, "\ufffd") {
			t.Errorf("name %q is told as %q", name, e.Name)
		}
		if strings.Contains(line, `\u003c`) {
			t.Errorf("escaped for HTML: %s", line)
		}
		// Exported, so that only the last is looked at.
		if err := s.SetPosition(context.Background(), e.Seq, 1, 1, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prune(context.Background(), t0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSeqIsNeverUsedTwice(t *testing.T) {
	t.Parallel()
	path, _ := filledAt(t, t.TempDir()) // 30 events
	s, ctx := openAt(t, path, Options{}), context.Background()
	if n, err := s.Prune(ctx, t0.Add(time.Hour)); n != 0 || err != nil {
		t.Fatalf("pruned %d rows that were not exported, %v", n, err)
	}
	if err := s.SetPosition(ctx, 20, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Prune(ctx, t0); n != 0 || err != nil {
		t.Fatalf("pruned %d rows that are not old, %v", n, err)
	}
	if n, err := s.Prune(ctx, t0.Add(1)); n != 20 || err != nil {
		t.Fatalf("pruned %d rows, %v, want 20", n, err)
	}
	if err := s.SetPosition(ctx, 30, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Prune(ctx, t0.Add(1)); n != 10 || err != nil {
		t.Fatalf("pruned %d rows, %v, want 10", n, err)
	}
	if seq, dev, ino, off, err := s.Position(ctx); seq != 30 || dev != 1 || ino != 2 || off != 3 || err != nil {
		t.Errorf("position = %d %d %d %d, %v", seq, dev, ino, off, err)
	}
	s.Close()
	s = openAt(t, path, Options{})
	mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(podOf("u", 0))}})
	if got := lines(t, s); len(got) != 1 || !strings.Contains(got[0], `"seq":31,`) {
		t.Errorf("after pruning everything: %q", got)
	}
	// Not even when somebody empties SQLite's own memory of it.
	if _, err := s.durable.Exec("DELETE FROM events; DELETE FROM sqlite_sequence"); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(podOf("u", 0))}})
	if got := lines(t, s); len(got) != 1 || !strings.Contains(got[0], `"seq":31,`) {
		t.Errorf("after the loss of sqlite_sequence: %q, want the seq after the exported one", got)
	}
}

func TestPruneTakesManyRows(t *testing.T) {
	t.Parallel()
	s, ctx := openTemp(t), context.Background()
	var b Batch
	for i := range PruneRows + 3 {
		b.Events = append(b.Events, eventOf(podOf(fmt.Sprint(i), 0)))
	}
	mustCommit(t, s, b)
	if err := s.SetPosition(ctx, int64(len(b.Events)-1), 1, 1, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{PruneRows, 2, 0} {
		if n, err := s.Prune(ctx, t0.Add(1)); n != want || err != nil {
			t.Errorf("pruned %d, want %d, %v", n, want, err)
		}
	}
}

func TestRenumber(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after, above, next int64
		want               []int64
	}{
		"above what was given out": {3, 10, 13, []int64{1, 2, 3, 11, 12}},
		"below the last":           {3, 4, 8, []int64{1, 2, 3, 6, 7}},
		"nothing to renumber":      {5, 9, 10, []int64{1, 2, 3, 4, 5}},
	} {
		s, ctx := openTemp(t), context.Background()
		for i := range 5 {
			mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(podOf(fmt.Sprint("u", i+1), 0))}})
		}
		n, err := s.Renumber(ctx, test.after, test.above)
		if n != int(5-test.after) || err != nil {
			t.Errorf("%s: Renumber = %d, %v", name, n, err)
		}
		mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(podOf("u6", 0))}})
		var got []int64
		for i, line := range lines(t, s) { // which checks each line against its row's seq
			var e eventLine
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Seq)
			if want := fmt.Sprint("u", i+1); e.PodUID != want {
				t.Errorf("%s: event %d is of %s, want %s", name, e.Seq, e.PodUID, want)
			}
		}
		if d := cmp.Diff(append(test.want, test.next), got); d != "" {
			t.Errorf("%s: seqs (-want +got):\n%s", name, d)
		}
	}
}

func TestUnexportedIsBounded(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	p := podOf("u1", 0)
	p.Pod.Name = strings.Repeat("n", 400<<10)
	for range 5 {
		mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(p)}})
	}
	got, err := s.Unexported(context.Background(), 0, 100)
	if len(got) != 3 || err != nil {
		t.Errorf("%d lines of 400 KiB at once, %v; want 3, just over a MiB", len(got), err)
	}
	got, err = s.Unexported(context.Background(), 2, 2)
	if len(got) != 2 || err != nil || !strings.Contains(got[0][:60], `"seq":3,`) {
		t.Errorf("after 2: %d lines, %v", len(got), err)
	}
}
