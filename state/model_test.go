package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is what a Store should hold, without a database.
type model struct {
	pods    map[string]*rules.PodState
	orphans map[string]rules.Container
	events  int
	meta    map[string]string
}

// drawPod makes a pod whose ids are its own but of a small set, so that
// batches meet what is stored.
func drawPod(t *rapid.T, uid string) *rules.PodState {
	p := podOf(uid, rapid.IntRange(0, 3).Draw(t, "containers"))
	p.Pod.Removing = rapid.Bool().Draw(t, "removing")
	if rapid.Bool().Draw(t, "failed") {
		p.Pod.GroupState, p.Pod.Reason, p.Pod.Reconciled = rules.GroupFailed, rules.ReasonCapacity, 0
		p.Pod.FailedSince = t0.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "failed since")) * time.Hour)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		c.State = rapid.SampledFrom([]rules.ContainerState{rules.ContainerCreated, rules.ContainerPartial, rules.ContainerReconciled, rules.ContainerExited}).Draw(t, "state")
		c.LastError = rapid.StringN(0, 5, 20).Draw(t, "error")
	}
	if rapid.Bool().Draw(t, "second sandbox") {
		p.Sandboxes = append(p.Sandboxes, rules.Sandbox{ID: "sb2-" + uid, PodUID: uid, State: rules.SandboxStopped, CreatedAt: t0.Add(1)})
	}
	return p
}

func (m *model) draw(t *rapid.T) Batch {
	uids := []string{"a", "b", "c", "../\n", ""}
	b := Batch{Deleted: rapid.SliceOfN(rapid.SampledFrom(uids), 0, 2).Draw(t, "deleted")}
	for _, uid := range rapid.SliceOfNDistinct(rapid.SampledFrom(uids[:4]), 0, 3, rapid.ID).Draw(t, "pods") {
		p := drawPod(t, uid)
		b.Pods = append(b.Pods, p)
		b.Events = append(b.Events, eventOf(p))
	}
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"o1", "o2", "o3"}), 0, 2, rapid.ID).Draw(t, "orphans") {
		b.Orphans = append(b.Orphans, orphan(id, rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "sandbox"), 0))
	}
	b.DroppedContainers = rapid.SliceOfN(rapid.SampledFrom([]string{"o1", "o2", "c0-a"}), 0, 2).Draw(t, "dropped")
	b.Meta = map[string]string{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key"): fmt.Sprint(m.events)}
	return b
}

func (m *model) apply(b Batch) {
	for _, uid := range b.Deleted {
		delete(m.pods, uid)
	}
	for _, id := range b.DroppedContainers {
		delete(m.orphans, id)
	}
	for _, o := range b.Orphans {
		m.orphans[o.ID] = o
	}
	for _, p := range b.Pods {
		m.pods[p.Pod.UID] = p
	}
	m.events += len(b.Events)
	for k, v := range b.Meta {
		m.meta[k] = v
	}
}

func (m *model) check(t *rapid.T, s *Store) {
	ctx := context.Background()
	same := func(what string, want, got any, err error) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatalf("%s: %v (-want +got):\n%s", what, err, d)
		}
	}
	var uids, failed []string
	partial := map[PartialRef]bool{}
	for uid, p := range m.pods {
		uids = append(uids, uid)
		got, err := s.Pod(ctx, uid)
		same("pod "+uid, p, got, err)
		for _, b := range p.Sandboxes {
			owner, err := s.PodOfSandbox(ctx, b.ID)
			same("sandbox "+b.ID, uid, owner, err)
		}
		if p.Pod.GroupState == rules.GroupFailed && !p.Pod.Removing {
			failed = append(failed, uid)
		}
		for _, c := range p.Containers {
			if c.State == rules.ContainerPartial && !p.Pod.Removing {
				partial[PartialRef{c.ID, uid}] = true
			}
		}
	}
	slices.Sort(uids)
	got, err := s.PodUIDs(ctx)
	same("uids", uids, got, err)
	slices.SortFunc(failed, func(a, b string) int {
		if c := m.pods[a].Pod.FailedSince.Compare(m.pods[b].Pod.FailedSince); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	got, err = s.FailedPods(ctx)
	same("failed pods", failed, got, err)
	refs, err := s.PartialContainers(ctx)
	gotRefs := map[PartialRef]bool{}
	for _, r := range refs {
		gotRefs[r] = true
	}
	same("partial containers", partial, gotRefs, err)
	orphans, err := s.Orphans(ctx, "")
	gotOrphans := map[string]rules.Container{}
	for _, o := range orphans {
		gotOrphans[o.ID] = o
	}
	same("orphans", m.orphans, gotOrphans, err)
	all, err := s.Unexported(ctx, 0, 10000)
	same("events", m.events, len(all), err)
	for k, v := range m.meta {
		got, _, err := s.Meta(ctx, k)
		same("meta", v, got, err)
	}
}

// Whatever batches come, over new openings: the store holds what they say.
func TestStoreAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "state")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var s *Store
		open := func() {
			if s, err = Open(filepath.Join(dir, "state.db"), Options{Now: func() time.Time { return t0 }}); err != nil {
				t.Fatal(err)
			}
		}
		open()
		defer func() { s.Close() }()
		m := &model{pods: map[string]*rules.PodState{}, orphans: map[string]rules.Container{}, meta: map[string]string{}}
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			b := m.draw(t)
			if err := s.Commit(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			m.apply(b)
			if rapid.Bool().Draw(t, "reopen") {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				open()
			}
			m.check(t, s)
		}
	})
}
