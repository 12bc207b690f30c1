package state

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// t0 is when the tests' stories begin.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func openAt(t testing.TB, path string, o Options) *Store {
	t.Helper()
	if o.Node == "" {
		o.Node = "node-1"
	}
	if o.Now == nil {
		o.Now = func() time.Time { return t0 }
	}
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openTemp(t testing.TB) *Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "state.db"), Options{})
}

func mustCommit(t testing.TB, s *Store, b Batch) {
	t.Helper()
	if err := s.Commit(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

func mustPod(t testing.TB, s *Store, uid string) *rules.PodState {
	t.Helper()
	p, err := s.Pod(context.Background(), uid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// podOf makes a pod with one sandbox and n reconciled containers.
func podOf(uid string, n int) *rules.PodState {
	p := &rules.PodState{Pod: rules.Pod{UID: uid, Namespace: "shop", Name: "web-" + uid, GroupState: rules.GroupExists,
		GroupPath: "/sys/fs/resctrl/mon_groups/pod_" + uid, Total: n, Reconciled: n, CreatedAt: t0, UpdatedAt: t0.Add(time.Second)},
		Sandboxes: []rules.Sandbox{{ID: "sb-" + uid, PodUID: uid, State: rules.SandboxReady, CgroupParent: "/kubepods/pod" + uid, CreatedAt: t0}}}
	for i := range n {
		p.Containers = append(p.Containers, rules.Container{ID: fmt.Sprintf("c%d-%s", i, uid), SandboxID: "sb-" + uid, PodUID: uid,
			Name: fmt.Sprintf("app%d", i), State: rules.ContainerReconciled, Counted: true, CgroupPath: "/kubepods/pod" + uid + "/c",
			Tasks: 3, CreatedAt: t0.Add(time.Duration(i)), UpdatedAt: t0})
	}
	return p
}

func eventOf(p *rules.PodState) SourcedEvent {
	return SourcedEvent{Source: "resctrl-applier", Event: rules.Event{Time: t0, Type: rules.AddOrUpdate, PodUID: p.Pod.UID,
		Namespace: p.Pod.Namespace, Name: p.Pod.Name, GroupState: p.Pod.GroupState, GroupPath: p.Pod.GroupPath,
		Reason: p.Pod.Reason, Total: p.Pod.Total, Reconciled: p.Pod.Reconciled}}
}

func wantPod(t testing.TB, s *Store, want *rules.PodState) {
	t.Helper()
	if d := cmp.Diff(want, mustPod(t, s, want.Pod.UID)); d != "" {
		t.Fatalf("pod %q (-want +got):\n%s", want.Pod.UID, d)
	}
}

func TestPodIsSavedWhole(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	p := podOf("u1", 3)
	p.Pod.GroupState, p.Pod.Reason = rules.GroupFailed, rules.ReasonCapacity
	p.Pod.FailedSince, p.Pod.Attempts, p.Pod.MissingSince = t0.Add(-time.Hour), 7, 90*time.Second+5
	p.Pod.Reconciled = 0
	p.Containers[1].State, p.Containers[1].Reason, p.Containers[1].Counted = rules.ContainerPartial, rules.ReasonUnstable, false
	p.Containers[1].Attempts, p.Containers[1].LastError = 4, "assign: EINVAL"
	p.Containers[2].State = rules.ContainerExited
	other := podOf("u2", 1)
	mustCommit(t, s, Batch{Pods: []*rules.PodState{p, other}})
	wantPod(t, s, p)

	// What the pod no longer has goes; another pod's rows stay.
	p.Sandboxes = []rules.Sandbox{{ID: "sb-new", PodUID: "u1", State: rules.SandboxStopped, CreatedAt: t0}}
	p.Containers = p.Containers[1:2]
	p.Pod.Total, p.Pod.Removing = 1, true
	mustCommit(t, s, Batch{Pods: []*rules.PodState{p}})
	wantPod(t, s, p)
	wantPod(t, s, other)

	mustCommit(t, s, Batch{Deleted: []string{"u1"}})
	if got := mustPod(t, s, "u1"); got != nil {
		t.Fatalf("deleted pod: %+v", got)
	}
	if c, err := s.Container(context.Background(), p.Containers[0].ID); c != nil || err != nil {
		t.Fatalf("container of a deleted pod: %+v, %v", c, err)
	}
	wantPod(t, s, other)
}

func TestIntendTouchesOnlyThePodRow(t *testing.T) {
	t.Parallel()
	s := openTemp(t)
	p := podOf("u1", 2)
	mustCommit(t, s, Batch{Pods: []*rules.PodState{p}})
	p.Pod.GroupState, p.Pod.Reason, p.Pod.Reconciled = rules.GroupFailed, rules.ReasonCreating, 0
	if err := s.Intend(context.Background(), p.Pod); err != nil {
		t.Fatal(err)
	}
	wantPod(t, s, p)
	fresh := rules.Pod{UID: "u2", GroupState: rules.GroupFailed, Reason: rules.ReasonCreating, GroupPath: "/r/mon_groups/pod_u2", CreatedAt: t0, UpdatedAt: t0}
	if err := s.Intend(context.Background(), fresh); err != nil {
		t.Fatal(err)
	}
	wantPod(t, s, &rules.PodState{Pod: fresh})
}

func TestUnknownIsNotAnError(t *testing.T) {
	t.Parallel()
	s, ctx := openTemp(t), context.Background()
	if p, err := s.Pod(ctx, "nobody"); p != nil || err != nil {
		t.Errorf("Pod = %v, %v", p, err)
	}
	if c, err := s.Container(ctx, "nothing"); c != nil || err != nil {
		t.Errorf("Container = %v, %v", c, err)
	}
	if uid, err := s.PodOfSandbox(ctx, "nowhere"); uid != "" || err != nil {
		t.Errorf("PodOfSandbox = %q, %v", uid, err)
	}
	if v, ok, err := s.Meta(ctx, "nothing"); v != "" || ok || err != nil {
		t.Errorf("Meta = %q, %v, %v", v, ok, err)
	}
}
