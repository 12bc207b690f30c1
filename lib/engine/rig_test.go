package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
	"github.com/nri-resctrl/nri-resctrl/state"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memcgroup"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

const (
	root   = "/sys/fs/resctrl"
	prefix = "pod_"
)

// rig is a node in memory, with the real state and event log in a directory.
// What it plays goes through the engine as the applier's records do.
type rig struct {
	t         *testing.T
	dir       string
	clock     *sim.ManualClock
	tasks     *sim.Script
	tree      *sim.Cgroups
	cgroups   *memcgroup.FS
	model     *sim.Model
	os        *memfs.FS
	eng       *engine.Engine
	fs        *resctrl.FS
	log       *bytes.Buffer
	boot      string
	up        time.Duration // boot-time clock
	export    func() error  // a fault before the export
	openFault error         // of the state
	read      int           // events.jsonl lines seen by expect

	pods map[string]*lifecycle.Pod // the runtime's truth, by sandbox
	cont map[string]*lifecycle.Container
}

func newRig(t *testing.T, change ...func(*sim.Config)) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: t.TempDir(), clock: sim.NewManualClock(), tasks: sim.NewScript(), log: &bytes.Buffer{}, boot: "boot-1",
		up: time.Hour, pods: map[string]*lifecycle.Pod{}, cont: map[string]*lifecycle.Container{},
	}
	cfg := sim.DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	r.tree = sim.NewCgroups(r.tasks)
	r.cgroups = memcgroup.New(r.tree)
	r.model = sim.New(cfg, r.clock, r.tasks)
	r.start()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// start begins a process: a new engine on what is there.
func (r *rig) start() {
	r.t.Helper()
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	r.os = memfs.New(r.model, root, "/proc")
	r.fs = resctrl.New(resctrl.Options{Root: root, Prefix: prefix, ProcRoot: "/proc", Logger: logger, OS: r.os})
	eng, err := engine.New(r.t.Context(), engine.Options{
		Resctrl: r.fs, Cgroups: r.cgroups, Locks: lock.New(r.dir),
		OpenState: func() (*state.Store, engine.Exporter, error) {
			if r.openFault != nil {
				return nil, nil, r.openFault
			}
			s, err := state.Open(filepath.Join(r.dir, "state.db"), state.Options{Node: "n1", Logger: logger})
			if err != nil {
				return nil, nil, err
			}
			return s, exporter{r, outbox.New(filepath.Join(r.dir, "events.jsonl"), s, outbox.Options{LogID: s.LogID(), Logger: logger})}, nil
		},
		Patient: true, Naming: rules.Naming{Root: root, Prefix: prefix}, Source: engine.SourceApplier, Logger: logger,
		Now: r.clock.Now, BootID: r.boot, BootTime: func() time.Duration { return r.up },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.eng = eng
}

// exporter is the event log with a place for a fault.
type exporter struct {
	r   *rig
	log *outbox.Log
}

func (e exporter) Export(ctx context.Context) error {
	if e.r.export != nil {
		if err := e.r.export(); err != nil {
			return err
		}
	}
	return e.log.Export(ctx)
}

func (r *rig) stop() {
	if err := r.eng.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// crash plays a kill: what panics in do is the kill, and a new process starts.
func (r *rig) crash(do func()) {
	r.t.Helper()
	func() {
		defer func() {
			if recover() == nil {
				r.t.Error("the crash point was not reached")
			}
		}()
		do()
	}()
	r.export = nil
	r.restart()
}

func (r *rig) hold(do func(h *engine.Hold) error) {
	r.t.Helper()
	if err := r.eng.Hold(r.t.Context(), do); err != nil {
		r.t.Fatal(err)
	}
}

// runtimeRun makes the sandbox known to the runtime and its cgroup exist.
func (r *rig) runtimeRun(uid, sandbox string) {
	parent := "/kubepods/pod" + fmt.Sprintf("%x", uid)
	r.pods[sandbox] = &lifecycle.Pod{ID: sandbox, UID: uid, Name: "name", Namespace: "ns", CgroupParent: parent}
	r.must(r.tree.AddCgroup(parent))
}

// runtimeStart gives the container a process of n threads in its own cgroup.
func (r *rig) runtimeStart(sandbox, id string, threads int) int {
	c := r.runtimeCreate(sandbox, id)
	r.must(r.tree.AddCgroup(c.CgroupsPath))
	c.PID = r.tasks.Spawn()
	r.must(r.tree.AddProcess(c.CgroupsPath, c.PID))
	r.tasks.CloneN(c.PID, threads-1)
	c.State = lifecycle.ContainerRunning
	return c.PID
}

func (r *rig) runtimeCreate(sandbox, id string) *lifecycle.Container {
	if c := r.cont[id]; c != nil {
		return c
	}
	c := &lifecycle.Container{
		ID: id, PodSandboxID: sandbox, Name: id, State: lifecycle.ContainerCreated,
		CgroupsPath: r.pods[sandbox].CgroupParent + "/" + id,
	}
	r.cont[id] = c
	return c
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// event sends a lifecycle record of a sandbox, or of a container of it.
func (r *rig) event(ev lifecycle.Event, sandbox, container string) {
	r.t.Helper()
	rec := &lifecycle.Record{Event: ev, Pod: r.pods[sandbox]}
	if container != "" {
		rec.Container = r.cont[container]
	}
	r.hold(func(h *engine.Hold) error { h.Apply(rec); return nil })
}

// startContainer plays create and start, without looking at events between.
func (r *rig) startContainer(sandbox, id string, threads int) int {
	r.t.Helper()
	r.runtimeCreate(sandbox, id)
	r.event(lifecycle.PostCreateContainer, sandbox, id)
	pid := r.runtimeStart(sandbox, id, threads)
	r.event(lifecycle.StartContainer, sandbox, id)
	return pid
}

func (r *rig) snapshot(cleanup bool) {
	r.t.Helper()
	s := &stream.Snapshot{Begin: lifecycle.Record{Epoch: "e", Runtime: "test"}}
	for _, id := range sorted(r.pods) {
		s.Pods = append(s.Pods, *r.pods[id])
	}
	for _, id := range sorted(r.cont) {
		s.Containers = append(s.Containers, *r.cont[id])
	}
	r.hold(func(h *engine.Hold) error { return h.ApplySnapshot(s, cleanup) })
}

func (r *rig) retryAll() *engine.Pass {
	r.t.Helper()
	pass, err := r.eng.RetryAllOnce(r.t.Context())
	r.must(err)
	return pass
}

func (r *rig) sweep() *engine.Swept {
	r.t.Helper()
	swept, err := r.eng.Sweep(r.t.Context(), engine.SweepOptions{VanishedAfter: time.Minute})
	r.must(err)
	return swept
}

// expect compares the new lines of the event log, and checks that each is
// whole, ours, and the next.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	f, err := os.Open(filepath.Join(r.dir, "events.jsonl"))
	if os.IsNotExist(err) && len(want) == 0 {
		return
	}
	r.must(err)
	defer f.Close()
	got := []string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var e struct {
			Log, Type, Reason string
			Seq               int
			UID               string `json:"pod_uid"`
			State             string `json:"group_state"`
			Total             int    `json:"total_containers"`
			Reconciled        int    `json:"reconciled_containers"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Seq != n {
			r.t.Fatalf("line %d: seq %d, %v: %s", n, e.Seq, err, lines.Text())
		}
		if n <= r.read {
			continue
		}
		r.read = n
		if e.Type == "Removed" {
			got = append(got, "Removed "+e.UID)
			continue
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s (%d,%d) %s", e.UID, e.State, e.Total, e.Reconciled, e.Reason)))
	}
	if d := cmp.Diff(append([]string{}, want...), got); d != "" {
		r.t.Errorf("events (-want +got):\n%s", d)
	}
}

// groups are the names of the monitoring groups of a control group ("" is the
// root's).
func (r *rig) groups(controlGroup string) []string {
	r.t.Helper()
	entries, err := r.os.ReadDir(filepath.Join(root, controlGroup, "mon_groups"))
	r.must(err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// outside are the tasks of the process's cgroup and below that are not in the
// group.
func (r *rig) outside(cgroup, group string) int {
	r.t.Helper()
	in := map[string]bool{}
	data, err := r.os.ReadFile(filepath.Join(root, group, "tasks"))
	r.must(err)
	for _, id := range strings.Fields(string(data)) {
		in[id] = true
	}
	tasks, err := r.cgroups.Tasks(cgroup)
	r.must(err)
	n := 0
	for _, id := range tasks {
		if !in[fmt.Sprint(id)] {
			n++
		}
	}
	return n
}

func (r *rig) checkGroups(controlGroup string, want ...string) {
	r.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), r.groups(controlGroup)); d != "" {
		r.t.Errorf("groups of %q (-want +got):\n%s", controlGroup, d)
	}
}

// checkCounters compares what the state says of a pod with its rows.
func (r *rig) checkCounters(uid string, total, reconciled int) {
	r.t.Helper()
	p, err := r.eng.Store.Pod(r.t.Context(), uid)
	r.must(err)
	if p == nil {
		r.t.Fatalf("pod %s is not in the state", uid)
	}
	if p.Pod.Total != total || p.Pod.Reconciled != reconciled || len(p.Containers) != total {
		r.t.Errorf("pod %s has (%d,%d) and %d containers, want (%d,%d)", uid, p.Pod.Total, p.Pod.Reconciled, len(p.Containers), total, reconciled)
	}
}

// applying is a hold that applies one record of a sandbox.
func (r *rig) applying(ev lifecycle.Event, sandbox string) func(*engine.Hold) error {
	return func(h *engine.Hold) error {
		h.Apply(&lifecycle.Record{Event: ev, Pod: r.pods[sandbox]})
		return nil
	}
}

func nothing(*engine.Hold) error { return nil }
