package model_test

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nri-resctrl/nri-resctrl/tests/model"
)

func sorted[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// seen is what state and kernel show, and which containers the state counts.
func (r *rig) seen() (model.Seen, map[string]bool) {
	s := model.Seen{Pods: map[string]model.Pod{}, Removing: map[string]bool{}, Containers: map[string]model.Row{}, Groups: r.groups()}
	for _, row := range r.rows("SELECT pod_uid, group_state, reason, group_path, total_containers, reconciled_containers, removing FROM pods") {
		if row[6] != "0" {
			s.Removing[row[0]] = true
			continue
		}
		p := model.Pod{State: row[1], Reason: row[2], Total: r.number(row[4]), Reconciled: r.number(row[5])}
		if p.State == "Exists" {
			p.Where, _ = where(row[3])
		}
		s.Pods[row[0]] = p
	}
	counted := map[string]bool{}
	for _, row := range r.rows("SELECT container_id, pod_uid, state, reason, reconciled FROM containers") {
		s.Containers[row[0]] = model.Row{UID: row[1], State: row[2], Reason: row[3]}
		counted[row[0]] = row[4] == "1"
	}
	return s, counted
}

// play lets model and engine do the same, which a kill may cut off; after one
// there is a restart with a snapshot. Then everything is compared.
func (r *rig) play(what string, expected func(), real func()) {
	r.t.Logf("%s", what)
	if rapid.IntRange(0, 30).Draw(r.t, "kill") == 30 {
		r.killIn = rapid.IntRange(1, 6).Draw(r.t, "kill in")
		r.killAfter = rapid.Bool().Draw(r.t, "kill after the call")
	}
	expected()
	alive := r.survives(real)
	r.killIn = 0
	if alive {
		r.compare(true)
		return
	}
	r.t.Logf("killed; restart and snapshot")
	r.mkdirErr, r.rmdirErr = nil, nil
	if boxes := r.withCgroup(); len(boxes) > 0 && rapid.Bool().Draw(r.t, "a pod ends meanwhile") {
		r.endSilently(r.pick("sandbox", boxes), true)
	}
	r.restart()
	if rapid.Bool().Draw(r.t, "the job comes first") {
		_, err := r.eng.RetryAllOnce(context.Background())
		r.must(err)
	}
	r.m.KilledAt(r.groups())
	r.m.Snapshot(r.cleanup)
	r.snapshot(r.cleanup)
	seen, counted := r.seen()
	failed, at := []string{}, map[string]string{}
	for _, row := range r.rows("SELECT pod_uid, group_path FROM pods WHERE group_state = 'Failed' AND NOT removing ORDER BY failed_since, pod_uid") {
		failed = append(failed, row[0])
		at[row[0]], _ = where(row[1])
	}
	r.m.Recovered(seen.Containers, counted, failed, at)
	r.compare(false)
}

// compare holds state, kernel and events against the model; exact is whether
// the events are predicted one by one.
func (r *rig) compare(exact bool) {
	r.t.Helper()
	seen, _ := r.seen()
	if d := cmp.Diff(r.m.Seen(), seen); d != "" {
		r.t.Fatalf("state and kernel (-model +real):\n%s\n%s", d, r.tail())
	}
	want, got := r.m.Told(), r.told()
	if d := cmp.Diff(want, got); d != "" && exact {
		r.t.Fatalf("events (-model +real):\n%s\n%s", d, r.tail())
	}
	for _, e := range got {
		if e.Type == "Removed" && !r.live[e.UID] {
			r.t.Fatalf("pod %s is removed, and nobody was told of it\n%s", e.UID, r.tail())
		}
		r.live[e.UID] = e.Type != "Removed"
	}
	for _, uid := range []string{"a", "b", "c"} {
		if _, known := seen.Pods[uid]; known != r.live[uid] {
			r.t.Fatalf("pod %s is in the state: %v; as events tell: %v\n%s", uid, known, r.live[uid], r.tail())
		}
	}
	if (r.mkdirErr != nil) != (r.m.MkdirFails != "") || (r.rmdirErr != nil) != r.m.RmdirFails {
		r.t.Fatalf("the fault that waits: %v, %v; of the model: %q, %v\n%s", r.mkdirErr, r.rmdirErr, r.m.MkdirFails, r.m.RmdirFails, r.tail())
	}
	r.compareTasks(seen)
	r.compareTable()
}

// compareTasks: the tasks of a reconciled container are in its pod's group, and
// no task is in a control group where it was not.
func (r *rig) compareTasks(seen model.Seen) {
	for id, tids := range r.tids {
		if r.m.Conts[id] == nil {
			continue
		}
		for i, tid := range tids {
			text, err := r.sim.TaskGroup(tid)
			r.must(err)
			got := strings.Join(strings.Fields(text), " ")
			want := r.m.Conts[id].Tasks[i]
			if got == "" || !r.m.Mounted {
				continue
			}
			res, mon, _ := strings.Cut(got, " ")
			if ctrl := strings.Trim(strings.TrimPrefix(res, "res:"), "/"); ctrl != want {
				r.t.Fatalf("a task of %s is in %q, not in the control group %q", id, got, want)
			}
			group := strings.Trim(strings.TrimPrefix(mon, "mon:"), "/")
			row := seen.Containers[id]
			if pod := seen.Pods[row.UID]; row.State == "Reconciled" && pod.State == "Exists" && r.m.Groups()[row.UID] == pod.Where && i < r.m.Conts[id].In && group != "pod_"+row.UID {
				r.t.Fatalf("%s is Reconciled, and a task of it is in %q", id, got)
			}
		}
	}
}

// compareTable: the log's last words are the table's pods, and no number of an
// event was skipped.
func (r *rig) compareTable() {
	row := r.rows("SELECT count(*), ifnull(max(seq), 0), count(DISTINCT seq) FROM events")[0]
	if row[0] != row[1] || row[1] != row[2] {
		r.t.Fatalf("%s events, the last is %s, %s numbers", row[0], row[1], row[2])
	}
	for _, row := range r.rows(`SELECT p.pod_uid FROM pods p WHERE NOT removing AND (total_containers, reconciled_containers) IS NOT
		(SELECT total_containers, reconciled_containers FROM events e WHERE e.pod_uid = p.pod_uid ORDER BY seq DESC LIMIT 1)`) {
		r.t.Fatalf("the last event of pod %s does not tell its counters", row[0])
	}
}

func (r *rig) tail() string {
	all := r.log.String()
	return all[max(0, len(all)-3000):]
}

// pick draws one of them; none ends the action.
func (r *rig) pick(what string, of []string) string {
	if len(of) == 0 {
		r.t.Skip("no " + what)
	}
	return rapid.SampledFrom(of).Draw(r.t, what)
}

func (r *rig) some(ok func(*model.Cont) bool) []string {
	return slices.DeleteFunc(sorted(r.m.Conts), func(id string) bool { return !ok(r.m.Conts[id]) })
}

// machine is one random life, in a directory of its own below dir.
func machine(dir string) func(*rapid.T) {
	serial := 0
	return func(t *rapid.T) {
		serial++
		own := filepath.Join(dir, strconv.Itoa(serial))
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(own)
		r := newRig(t, own, rapid.IntRange(1, 5).Draw(t, "RMIDs"), rapid.IntRange(0, 3).Draw(t, "Linux 6.1") == 0)
		defer r.close()
		r.cleanup = rapid.Bool().Draw(t, "cleanup_on_start")
		t.Repeat(r.actions())
	}
}

// TestMachine plays random lives of a node, with kills and faults, on the real
// engine and on the model: the same ones each time, and those of SEED if it is
// set. -rapid.checks says how many, -rapid.seed repeats one that failed.
func TestMachine(t *testing.T) {
	seed := flag.Lookup("rapid.seed")
	seeds := []string{seed.Value.String()}
	if seeds[0] == "0" {
		seeds[0] = "1"
		if s := os.Getenv("SEED"); s != "" && s != "0" {
			seeds = append(seeds, s)
		}
	}
	if steps := flag.Lookup("rapid.steps"); steps.Value.String() == steps.DefValue {
		steps.Value.Set("60") // on the average
	}
	flag.Lookup("rapid.nofailfile").Value.Set("true") // the seed is enough
	dir := fastDir(t)
	for i, s := range seeds {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Logf("seed %s", s)
			before := seed.Value.String()
			defer seed.Value.Set(before)
			if err := seed.Value.Set(s); err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, machine(dir))
		})
	}
}

// fastDir is a directory in memory where there is one: a life is some hundred
// durable commits.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "model-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
