package state

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// batchOf saves pods.
func batchOf(pods ...*rules.PodState) Batch {
	var b Batch
	b.Pods = append(b.Pods, pods...)
	return b
}

func orphan(id, sandbox string, age time.Duration) rules.Container {
	return rules.Container{ID: id, SandboxID: sandbox, Name: "late", State: rules.ContainerNoPod, CreatedAt: t0.Add(-age), UpdatedAt: t0}
}

func TestOrphansWaitAndAreAdopted(t *testing.T) {
	t.Parallel()
	s, ctx := openTemp(t), context.Background()
	a, b, c := orphan("a", "sb-u1", 0), orphan("b", "sb-u1", time.Hour), orphan("c", "sb-u2", time.Minute)
	mustCommit(t, s, Batch{Orphans: []rules.Container{a, b, c}})
	for sandbox, want := range map[string][]rules.Container{"sb-u1": {b, a}, "sb-u2": {c}, "": {b, c, a}, "none": nil} {
		got, err := s.Orphans(ctx, sandbox)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("Orphans(%q): %v (-want +got):\n%s", sandbox, err, d)
		}
	}
	got, err := s.Container(ctx, "a")
	if d := cmp.Diff(&a, got); d != "" || err != nil {
		t.Errorf("Container: %v (-want +got):\n%s", err, d)
	}
	// a's pod shows up; to drop it as an orphan as well must not take it away.
	p := podOf("u1", 0)
	a.PodUID, a.State = "u1", rules.ContainerCreated
	p.Containers, p.Pod.Total = []rules.Container{a}, 1
	adopt := batchOf(p)
	adopt.DroppedContainers = []string{"a", "c"}
	mustCommit(t, s, adopt)
	wantPod(t, s, p)
	mustCommit(t, s, Batch{DroppedContainers: []string{"a"}})
	wantPod(t, s, p)
	if left, _ := s.Orphans(ctx, ""); len(left) != 1 || left[0].ID != "b" {
		t.Errorf("orphans left: %+v", left)
	}
}

func TestRemovedAndBackInOneBatch(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	mustCommit(t, s, batchOf(podOf("u1", 3)))
	back := podOf("u1", 1)
	back.Sandboxes[0].ID, back.Containers[0].ID, back.Containers[0].SandboxID = "sb2", "c2", "sb2"
	b := batchOf(back)
	b.Deleted = []string{"u1", "never-was"}
	mustCommit(t, s, b)
	wantPod(t, s, back)
	for sandbox, want := range map[string]string{"sb-u1": "", "sb2": "u1"} {
		if uid, err := s.PodOfSandbox(context.Background(), sandbox); uid != want || err != nil {
			t.Errorf("pod of sandbox %s = %q, %v, want %q", sandbox, uid, err, want)
		}
	}
}

func TestListsAndViews(t *testing.T) {
	t.Parallel()
	s, ctx := openTemp(t), context.Background()
	failed := func(uid string, ago time.Duration) *rules.PodState {
		p := podOf(uid, 1)
		p.Pod.GroupState, p.Pod.Reason, p.Pod.Reconciled = rules.GroupFailed, rules.ReasonCapacity, 0
		if ago != 0 {
			p.Pod.FailedSince = t0.Add(-ago)
		}
		p.Containers[0].State, p.Containers[0].Reason, p.Containers[0].Counted = rules.ContainerPartial, rules.ReasonCapacity, false
		p.Containers[0].CreatedAt = t0.Add(-ago)
		return p
	}
	removing := failed("removing", 9*time.Hour)
	removing.Pod.Removing = true
	mixed := podOf("mixed", 3)
	mixed.Containers[0].State, mixed.Containers[1].State = rules.ContainerCreated, rules.ContainerExited
	b := batchOf(failed("young", time.Minute), failed("old", time.Hour), removing, failed("creating", 0), mixed, podOf("fine", 1))
	b.Orphans = []rules.Container{orphan("waits", "sb-none", 0)}
	mustCommit(t, s, b)

	got, err := s.FailedPods(ctx)
	if d := cmp.Diff([]string{"old", "young", "creating"}, got); d != "" || err != nil {
		t.Errorf("FailedPods: %v (-want +got):\n%s", err, d)
	}
	refs, err := s.PartialContainers(ctx)
	want := []PartialRef{{"c0-old", "old"}, {"c0-young", "young"}, {"c0-creating", "creating"}}
	if d := cmp.Diff(want, refs); d != "" || err != nil {
		t.Errorf("PartialContainers: %v (-want +got):\n%s", err, d)
	}
	uids, err := s.PodUIDs(ctx)
	if d := cmp.Diff([]string{"creating", "fine", "mixed", "old", "removing", "young"}, uids); d != "" || err != nil {
		t.Errorf("PodUIDs: %v (-want +got):\n%s", err, d)
	}
	for query, want := range map[string][]string{
		"SELECT container_id FROM unreconciled": {"c0-old", "c0-young", "c0-creating", "c0-mixed", "waits"},
		"SELECT pod_uid FROM failed_pods":       {"old", "young", "creating"},
		`SELECT pods || ' ' || pods_exists || ' ' || pods_failed || ' ' || containers || ' ' || containers_reconciled || ' ' || containers_partial
			|| ' ' || containers_created || ' ' || containers_exited || ' ' || containers_nopod FROM node_summary`: {"5 2 3 8 2 3 1 1 1"},
		"SELECT oldest_failure FROM node_summary": {"2026-03-01T11:00:00.123456789Z"},
	} {
		got, err := s.texts(ctx, query)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", query, err, d)
		}
	}
}

func TestBadStatesAreRefused(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	for name, spoil := range map[string]func(*rules.PodState){
		"group state":      func(p *rules.PodState) { p.Pod.GroupState = "Maybe" },
		"sandbox state":    func(p *rules.PodState) { p.Sandboxes[0].State = "" },
		"container state":  func(p *rules.PodState) { p.Containers[0].State = "Running" },
		"NoPod of a pod":   func(p *rules.PodState) { p.Containers[0].State = rules.ContainerNoPod },
		"pod of no pod":    func(p *rules.PodState) { p.Containers[0].PodUID = "" },
		"unknown pod":      func(p *rules.PodState) { p.Containers[0].PodUID = "u2" },
		"too many counted": func(p *rules.PodState) { p.Pod.Reconciled = 3 },
	} {
		p := podOf("u1", 2)
		spoil(p)
		b := batchOf(p)
		b.Events = []SourcedEvent{eventOf(p)}
		if err := s.Commit(context.Background(), b); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
	// Nothing of a refused batch is left, not even a used seq.
	if got := mustPod(t, s, "u1"); got != nil {
		t.Errorf("left behind: %+v", got)
	}
	mustCommit(t, s, Batch{Events: []SourcedEvent{eventOf(podOf("u9", 0))}})
	if lines, _ := s.Unexported(context.Background(), 0, 9); len(lines) != 1 || !strings.Contains(lines[0], `"seq":1,`) {
		t.Errorf("events: %q", lines)
	}
}

func TestMeta(t *testing.T) {
	t.Parallel()
	s, ctx := openTemp(t), context.Background()
	mustCommit(t, s, Batch{Meta: map[string]string{"boot_id": "b1", "x": ""}})
	if err := s.SetMeta(ctx, map[string]string{"boot_id": "b2"}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"boot_id": "b2", "x": "", "log": s.LogID(), "schema": "2"} {
		if v, ok, err := s.Meta(ctx, key); v != want || !ok || err != nil {
			t.Errorf("meta %s = %q, %v, %v, want %q", key, v, ok, err, want)
		}
	}
}

func TestPersonsTransactionIsBusy(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "state.db"), Options{Busy: 20 * time.Millisecond})
	ctx := context.Background()
	person := openPool(s.path, time.Second, "immediate", "FULL", "")
	defer person.Close()
	tx, err := person.Begin()
	if err != nil {
		t.Fatal(err)
	}
	p := podOf("u1", 1)
	for name, err := range map[string]error{"Commit": s.Commit(ctx, batchOf(p)), "Intend": s.Intend(ctx, p.Pod), "SetMeta": s.SetMeta(ctx, map[string]string{"a": "b"})} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%s = %v, want ErrBusy", name, err)
		}
	}
	if got := mustPod(t, s, "u1"); got != nil { // reading goes on
		t.Errorf("pod: %+v", got)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, batchOf(p))
	wantPod(t, s, p)
}

// A person who reads for long (a `sqlite3` in a transaction) stops nobody.
func TestLongReaderStopsNobody(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "state.db"), Options{Busy: 20 * time.Millisecond})
	person := openPool(s.path, time.Second, "deferred", "FULL", "")
	defer person.Close()
	tx, err := person.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM pods").Scan(&n); err != nil {
		t.Fatal(err)
	}
	fill(t, s)
}

func TestFullAndReadOnlyAreUnwritable(t *testing.T) {
	t.Parallel()
	for _, pragma := range []string{"PRAGMA max_page_count = 1", "PRAGMA query_only = 1"} {
		s, ctx := openTemp(t), context.Background()
		mustCommit(t, s, batchOf(podOf("u1", 1)))
		if _, err := s.durable.Exec(pragma); err != nil {
			t.Fatal(err)
		}
		big := podOf("u2", 500)
		if err := s.Commit(ctx, batchOf(big)); !errors.Is(err, ErrUnwritable) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: Commit = %v, want ErrUnwritable", pragma, err)
		}
		if _, err := s.durable.Exec("PRAGMA query_only = 0; PRAGMA max_page_count = 1000000"); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, s, batchOf(big))
		wantPod(t, s, big)
		wantPod(t, s, podOf("u1", 1))
	}
}

// What SQLite itself does not notice: it would go on in files that nobody
// can find any more.
func TestFileThatWentAwayIsCorrupt(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(path string) error{
		"deleted":     os.Remove,
		"moved":       func(p string) error { return os.Rename(p, p+".old") },
		"wal deleted": func(p string) error { return os.Remove(p + "-wal") },
		"replaced": func(p string) error {
			if err := os.Rename(p, p+".old"); err != nil {
				return err
			}
			return os.WriteFile(p, nil, 0o640)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := openTemp(t), context.Background()
			fill(t, s)
			if err := lose(s.path); err != nil {
				t.Fatal(err)
			}
			p := podOf("u1", 1)
			if err := s.Commit(ctx, batchOf(p)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Commit = %v, want ErrCorrupt", err)
			}
			if err := s.Intend(ctx, p.Pod); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Intend = %v, want ErrCorrupt", err)
			}
			s.Close()
			reopen(t, s.path)
		})
	}
}

func TestDamageFoundWhileRunning(t *testing.T) {
	t.Parallel()
	path, _ := filledAt(t, t.TempDir())
	s := openAt(t, path, Options{})
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, st.Size()-4096), 4096); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Pod(context.Background(), "pod-07"); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("Pod = %v, %v, want ErrCorrupt", p, err)
	}
	s.Close()
	if _, logged := reopen(t, path); !strings.Contains(logged, "damaged") {
		t.Errorf("not told: %s", logged)
	}
}
