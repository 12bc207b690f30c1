package model_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"
	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
	"github.com/nri-resctrl/nri-resctrl/state"
	"github.com/nri-resctrl/nri-resctrl/tests/model"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memcgroup"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

const root = "/sys/fs/resctrl"

// vanishedAfter is in seconds.
const vanishedAfter = 60

// rig is the real engine on a node in memory, with real files in a directory,
// and the model of the same node.
type rig struct {
	t     *rapid.T
	m     *model.Model
	dir   string
	log   bytes.Buffer
	now   time.Time
	tasks *sim.Script
	tree  *sim.Cgroups
	sim   *sim.Model
	os    *memfs.FS
	eng   *engine.Engine
	db    *sql.DB
	read  int64 // of the event log

	tids              map[string][]int // of each container, as its Tasks in the model
	mkdirErr          error            // of the next mkdir
	rmdirErr          error
	live              map[string]bool // the pods that events tell
	cleanup           bool            // cleanup_on_start
	fresh             bool            // no snapshot since the start
	killIn            int             // calls until a kill; 0: none
	killAfter         bool
	boxes, containers int
}

var errnos = map[string]error{"capacity": syscall.EBUSY, "io": syscall.EIO, "permission": syscall.EACCES}

func newRig(t *rapid.T, dir string, rmids int, old bool) *rig {
	r := &rig{t: t, m: model.New(rmids), dir: dir, now: time.Unix(1e9, 0), tasks: sim.NewScript(), tids: map[string][]int{}, live: map[string]bool{}}
	cfg := sim.DefaultConfig()
	if r.m.Old = old; old {
		cfg = sim.Kernel61Config()
	}
	cfg.NumRMIDs, cfg.Limbo = rmids+1, 0
	r.tree, r.sim = sim.NewCgroups(r.tasks), sim.New(cfg, sim.NewManualClock(), r.tasks)
	r.start()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "state.db")+"?mode=ro&_busy_timeout=10000")
	r.must(err)
	r.db = db
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.log.String())
	}
}

// start begins a process on what is there.
func (r *rig) start() {
	logger := slog.New(slog.NewTextHandler(&r.log, nil))
	r.os = memfs.New(r.sim, root, "/proc")
	fails := func(next *error) func(memfs.Call) error {
		return func(memfs.Call) (err error) { err, *next = *next, nil; return err }
	}
	for _, op := range []memfs.Op{memfs.OpMkdir, memfs.OpRmdir, memfs.OpRename, memfs.OpWriteFile} {
		r.os.Before(op, 0, func(memfs.Call) error { r.step(false); return nil })
		r.os.After(op, 0, func(memfs.Call) { r.step(true) })
	}
	r.os.Before(memfs.OpMkdir, 0, fails(&r.mkdirErr))
	r.os.Before(memfs.OpRmdir, 0, fails(&r.rmdirErr))
	naming := rules.Naming{Root: root, Prefix: "pod_"}
	var err error
	r.eng, err = engine.New(context.Background(), engine.Options{
		Resctrl: resctrl.New(resctrl.Options{Root: root, Prefix: "pod_", ProcRoot: "/proc", Logger: logger, OS: r.os, Simulated: true}),
		Cgroups: memcgroup.New(r.tree), Locks: lock.New(r.dir), Naming: naming, Source: engine.SourceApplier, Logger: logger,
		OpenState: func() (*state.Store, engine.Exporter, error) {
			s, err := state.Open(filepath.Join(r.dir, "state.db"), state.Options{Node: "n1", Logger: logger})
			if err != nil {
				return nil, nil, err
			}
			return s, exporter{r, outbox.New(filepath.Join(r.dir, "events.jsonl"), s, outbox.Options{LogID: s.LogID(), Logger: logger})}, nil
		},
		Now:    func() time.Time { r.now = r.now.Add(time.Millisecond); return r.now },
		BootID: "boot", BootTime: func() time.Duration { return time.Duration(r.m.Clock) * time.Second },
	})
	r.must(err)
	r.fresh = true
}

// exporter is the event log, at which a process can be killed too.
type exporter struct {
	r   *rig
	log *outbox.Log
}

func (e exporter) Export(ctx context.Context) error {
	e.r.step(false)
	return e.log.Export(ctx)
}

// errKilled is what a kill panics with.
var errKilled = errors.New("killed")

// step is a moment at which the process may be killed.
func (r *rig) step(after bool) {
	if r.killIn == 0 || after != r.killAfter {
		return
	}
	if r.killIn--; r.killIn == 0 {
		panic(errKilled)
	}
}

// survives runs do, which may be killed.
func (r *rig) survives(do func()) (alive bool) {
	defer func() {
		if p := recover(); p != nil && p != any(errKilled) {
			panic(p)
		}
	}()
	do()
	return true
}

func (r *rig) restart() {
	r.killIn = 0
	r.must(r.eng.Close())
	r.start()
}

func (r *rig) close() {
	r.db.Close()
	if err := r.eng.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) hold(do func(h *engine.Hold) error) { r.must(r.eng.Hold(context.Background(), do)) }

func parent(uid string) string { return "/kubepods/pod" + uid }

func (r *rig) cgroup(id string) string {
	return parent(r.m.Boxes[r.m.Conts[id].Box].UID) + "/" + id
}

func (r *rig) pod(box string) *lifecycle.Pod {
	uid := r.m.Boxes[box].UID
	return &lifecycle.Pod{ID: box, UID: uid, Name: "name-" + uid, Namespace: "ns", CgroupParent: parent(uid)}
}

func (r *rig) container(id string) *lifecycle.Container {
	c := r.m.Conts[id]
	wire := &lifecycle.Container{ID: id, PodSandboxID: c.Box, Name: id, State: lifecycle.ContainerState(c.State), CgroupsPath: r.cgroup(id)}
	if c.State == "RUNNING" && len(r.tids[id]) > 0 {
		wire.PID = r.tids[id][0]
	}
	return wire
}

// record sends a record of a sandbox, or of a container.
func (r *rig) record(event, box, container string) {
	rec := &lifecycle.Record{Event: lifecycle.Event(event)}
	if box != "" {
		rec.Pod = r.pod(box)
	}
	if container != "" {
		rec.Container = r.container(container)
	}
	r.hold(func(h *engine.Hold) error { h.Apply(rec); return nil })
}

func (r *rig) snapshot(cleanup bool) {
	s := &stream.Snapshot{Begin: lifecycle.Record{Epoch: "e", Runtime: "test"}}
	for _, id := range sorted(r.m.Boxes) {
		s.Pods = append(s.Pods, *r.pod(id))
	}
	for _, id := range sorted(r.m.Conts) {
		s.Containers = append(s.Containers, *r.container(id))
	}
	r.hold(func(h *engine.Hold) error { return h.ApplySnapshot(s, cleanup) })
	r.fresh = false
}

// others makes or removes a directory, or writes a task, as another tool does.
func (r *rig) others(op, name, data string) {
	dir, err := r.sim.Walk(strings.TrimPrefix(path.Dir("/"+name), "/"))
	r.must(err)
	switch op {
	case "mkdir":
		_, err = r.sim.Mkdir(dir, path.Base(name), 0o755, sim.Caller{})
	case "rmdir":
		err = r.sim.Rmdir(dir, path.Base(name))
	case "write":
		err = r.sim.WriteFile(name, []byte(data), sim.Caller{})
	}
	r.must(err)
}

// where is the control group of a group's path, and its pod.
func where(group string) (ctrl, uid string) {
	rest := strings.TrimPrefix(group, root)
	ctrl, name, _ := strings.Cut(rest, "/mon_groups/pod_")
	return strings.TrimPrefix(ctrl, "/"), name
}

// groups are the pods' groups that the kernel has.
func (r *rig) groups() map[string]string {
	found := map[string]string{}
	for _, ctrl := range []string{"", model.Theirs} {
		dir, err := r.sim.Walk(strings.TrimPrefix(ctrl+"/mon_groups", "/"))
		if err != nil {
			continue
		}
		entries, err := r.sim.Entries(dir)
		r.must(err)
		for _, e := range entries {
			if uid, ours := strings.CutPrefix(e.Name, "pod_"); ours {
				if at, twice := found[uid]; twice {
					r.t.Fatalf("pod %s has a group in %q and in %q", uid, at, ctrl)
				}
				found[uid] = ctrl
			}
		}
	}
	return found
}

// rows runs a query of ours on the state.
func (r *rig) rows(query string) [][]string {
	found, err := r.db.Query(query)
	r.must(err)
	defer found.Close()
	names, err := found.Columns()
	r.must(err)
	var rows [][]string
	for found.Next() {
		cells, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		r.must(found.Scan(into...))
		row := make([]string, len(names))
		for i, c := range cells {
			row[i] = c.String
		}
		rows = append(rows, row)
	}
	r.must(found.Err())
	return rows
}

// told are the events since the last call, which stand in the log, whole.
func (r *rig) told() []model.Event {
	f, err := os.Open(filepath.Join(r.dir, "events.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	r.must(err)
	defer f.Close()
	_, err = f.Seek(r.read, io.SeekStart)
	r.must(err)
	var all []model.Event
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return all
		}
		r.must(err)
		r.read += int64(len(line))
		var e struct {
			Type, Reason string
			UID          string `json:"pod_uid"`
			State        string `json:"group_state"`
			Path         string `json:"group_path"`
			Total        int    `json:"total_containers"`
			Reconciled   int    `json:"reconciled_containers"`
		}
		r.must(json.Unmarshal(line, &e))
		ctrl, _ := where(e.Path)
		all = append(all, model.Event{Type: e.Type, UID: e.UID, Pod: model.Pod{
			State: e.State, Reason: e.Reason, Where: ctrl, Total: e.Total, Reconciled: e.Reconciled,
		}})
	}
}

func (r *rig) number(s string) (n int) {
	_, err := fmt.Sscan(s, &n)
	r.must(err)
	return n
}
