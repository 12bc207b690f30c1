//go:build faults

package faults

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// storyEnd is what the node has after the story.
var storyEnd = map[string]string{"a": "Exists 1/1", "b": "Exists 1/1", "c": "Exists 1/1", "d": "Exists 0/0", "e": "Exists 1/1"}

// story is a short life of pods: present ones, new ones, one whose tasks are
// in another control group, one that waits for an RMID, one that ends.
func (c *cell) story() string {
	w := c.wire()
	c.tell(w, "")
	return w.String()
}

// tell writes the story, as the answer to a hello; "" is none.
func (c *cell) tell(w *wire, hello string) {
	w.snapshot(hello, []fields{c.pod("a"), c.pod("z")}, []fields{c.container("a1", "RUNNING"), c.container("z1", "RUNNING")})
	life := func(event, pod, container, state string) {
		f := fields{"pod": c.pod(pod)}
		if container != "" {
			f["container"] = c.container(container, state)
		}
		w.put(event, f)
	}
	start := func(pod, container string) {
		life("POST_CREATE_CONTAINER", pod, container, "CREATED-NO-PID")
		life("START_CONTAINER", pod, container, "CREATED")
		life("POST_START_CONTAINER", pod, container, "RUNNING")
	}
	life("RUN_POD_SANDBOX", "b", "", "")
	start("b", "b1")
	life("RUN_POD_SANDBOX", "c", "", "")
	start("c", "c1")
	life("RUN_POD_SANDBOX", "d", "", "")
	life("RUN_POD_SANDBOX", "e", "", "") // no RMID
	start("a", "a2")
	life("STOP_CONTAINER", "a", "a1", "STOPPED")
	life("STOP_CONTAINER", "z", "z1", "STOPPED")
	life("STOP_POD_SANDBOX", "z", "", "")
	life("REMOVE_CONTAINER", "z", "z1", "UNKNOWN")
	life("REMOVE_POD_SANDBOX", "z", "", "")
	start("e", "e1")
	life("REMOVE_CONTAINER", "a", "a1", "UNKNOWN")
}

// present is the snapshot of the node after the story.
func (c *cell) present() string { return c.presentFor("") }

// presentFor is present as the answer to a hello.
func (c *cell) presentFor(hello string) string {
	w := c.wire()
	w.snapshot(hello, []fields{c.pod("a"), c.pod("b"), c.pod("c"), c.pod("d"), c.pod("e")}, []fields{
		c.container("a2", "RUNNING"), c.container("b1", "RUNNING"), c.container("c1", "RUNNING"), c.container("e1", "RUNNING")})
	return w.String()
}

// crash is one run with a kill.
type crash struct {
	plan   tracer.Plan
	rotate bool        // the log is rotated before the recovery
	second tracer.Plan // a kill in the recovery, too
	// toTheEnd removes every pod afterwards; LONG always does.
	toTheEnd bool
}

func (k crash) String() string {
	s := fmt.Sprintf("%s %d %s", k.plan.Point, k.plan.N, k.plan.Moment)
	if k.rotate {
		s += ", rotated"
	}
	if r := k.plan.Rotate; r.N > 0 {
		s += fmt.Sprintf(", rotated before %s %d", r.Point, r.N)
	}
	if k.second.N > 0 {
		s += fmt.Sprintf(", then %s %d %s", k.second.Point, k.second.N, k.second.Moment)
	}
	return s
}

func stdin(c *cell, p tracer.Plan, input string) outcome {
	return c.run(p, input, world.ApplierProgram, "--stdin")
}

// try makes one crash, and judges what the recovery made of it. It says
// whether the kill happened.
func (c *cell) try(k crash) (reached bool, err error) {
	c.sweep()
	k.plan.Rotate = c.rotation(k.plan.Rotate)
	first := stdin(c, k.plan, c.story())
	if reached = first.Hit != ""; !reached && first.code != 0 {
		return false, fmt.Errorf("the story ended with %d: %s", first.code, first.log)
	}
	logs := []string{c.EventLog() + ".1", c.EventLog()}
	if k.rotate {
		if err := os.Rename(c.EventLog(), logs[0]); err != nil && !os.IsNotExist(err) {
			return reached, err
		}
	}
	said := ""
	if k.second.N > 0 {
		o := stdin(c, k.second, c.present())
		said = o.Hit + "\n" + o.log
	}
	last := stdin(c, tracer.Plan{}, c.present())
	said += last.log
	if last.code != 0 {
		return reached, fmt.Errorf("killed at %q, the recovery ended with %d: %s", first.Hit, last.code, said)
	}
	if err := c.expect(storyEnd, logs...); err != nil {
		return reached, fmt.Errorf("killed at %q: %w\n%s%s", first.Hit, err, first.log, said)
	}
	if !k.toTheEnd && !long {
		return reached, nil
	}
	w := c.wire()
	w.snapshot("", nil, nil)
	end := stdin(c, tracer.Plan{}, w.String())
	if err := c.expect(nil, logs...); err != nil || end.code != 0 {
		return reached, fmt.Errorf("killed at %q, at the end of all pods (%d): %v\n%s", first.Hit, end.code, err, end.log)
	}
	return reached, nil
}

// crashes lists every crash of a life whose calls were counted.
func crashes(calls map[string]int) []crash {
	var all []crash
	for _, p := range tracer.Points() {
		for n := 1; n <= calls[p.Name]; n++ {
			for _, m := range []tracer.Moment{tracer.Before, tracer.After, tracer.Half} {
				if m != tracer.Half || p.Writes() {
					all = append(all, crash{plan: tracer.Plan{Point: p.Name, N: n, Moment: m}})
				}
			}
		}
	}
	return all
}

// choose takes one crash of each point and moment by the dice of the fixed
// seed, and some more of any by those of the other; LONG takes all.
func choose(all []crash, some int, use string) []crash {
	if long {
		return all
	}
	var chosen []crash
	seen := map[string]bool{}
	for _, i := range dice(seeds[0], use).Perm(len(all)) {
		k := all[i]
		if kind := k.plan.Point + string(k.plan.Moment); !seen[kind] {
			seen[kind] = true
			chosen = append(chosen, k)
		}
	}
	for _, i := range dice(seeds[1], use).Perm(len(all))[:min(some, len(all))] {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// mustReach are the points that each story reaches, whatever the database does.
var mustReach = map[string][]string{
	"applier":          {"mkdir", "rmdir", "rename", "task", "wal", "database", "log", "newlog", "syncstate", "synclog", "syncdir", "lock", "truncate", "flock"},
	"job":              {"mkdir", "rmdir", "rename", "task", "wal", "database", "log", "syncstate", "synclog", "syncdir", "truncate", "flock"},
	"acknowledgements": {"ack", "chmod"},
	"rotation":         {"log", "newlog", "synclog"},
}

// mustHave: a point that a story never reaches is not tested by it.
func mustHave(t *testing.T, story string, calls map[string]int) {
	t.Helper()
	for _, point := range mustReach[story] {
		if calls[point] == 0 {
			t.Errorf("the story of the %s has no %s", story, point)
		}
	}
}

// TestEveryPointHasItsStory: no kind of step is left out.
func TestEveryPointHasItsStory(t *testing.T) {
	for _, p := range tracer.Points() {
		found := false
		for _, points := range mustReach {
			found = found || slices.Contains(points, p.Name)
		}
		if !found {
			t.Errorf("no story reaches %s", p.Name)
		}
	}
}

// TestApplierCrashPoints kills the applier at each step that leaves a trace.
func TestApplierCrashPoints(t *testing.T) {
	c := newCell(t, nil)
	whole := stdin(c, tracer.Plan{}, c.story())
	if err := c.expect(storyEnd); err != nil || whole.code != 0 {
		t.Fatalf("without a kill (exit code %d): %v\n%s", whole.code, err, whole.log)
	}
	t.Logf("the story's calls: %v", whole.Calls)
	mustHave(t, "applier", whole.Calls)
	all := crashes(whole.Calls)
	chosen := choose(all, 10, "crash")
	r := dice(seeds[1], "more of a crash")
	for i := range chosen {
		k := &chosen[i]
		k.rotate = r.IntN(3) == 0
		k.toTheEnd = r.IntN(4) == 0
		if r.IntN(3) == 0 {
			k.second = all[r.IntN(len(all))].plan
		}
	}
	t.Logf("%d crash points, %d crashes chosen", len(all), len(chosen))
	c.inCells(nil, chosen, (*cell).try)
}

// TestApplierCrashPointsWithoutRename is the same on Linux 6.1, where a group
// that follows its tasks is removed and made again.
func TestApplierCrashPointsWithoutRename(t *testing.T) {
	old := func(o *world.Options) { *o.Sim = sim.Kernel61Config(); o.Sim.NumRMIDs = 7 }
	c := newCell(t, old)
	whole := stdin(c, tracer.Plan{}, c.story())
	if err := c.expect(storyEnd); err != nil || whole.code != 0 {
		t.Fatalf("without a kill (exit code %d): %v\n%s", whole.code, err, whole.log)
	}
	var groups []crash
	for _, k := range crashes(whole.Calls) {
		if slices.Contains([]string{"mkdir", "rmdir", "rename", "task"}, k.plan.Point) {
			groups = append(groups, k)
		}
	}
	c.inCells(old, choose(groups, 4, "crash61"), (*cell).try)
}

// TestApplierCrashPointsWithoutCleanup is the same where startup removes no
// group of no pod: only the row that is written before a mkdir tells of one
// whose pod has ended meanwhile.
func TestApplierCrashPointsWithoutCleanup(t *testing.T) {
	off := func(o *world.Options) { o.Config = map[string]string{"resctrl.cleanup_on_start": "false"} }
	c := newCell(t, off)
	var groups []crash
	for _, k := range crashes(stdin(c, tracer.Plan{}, c.story()).Calls) {
		if k.plan.Point == "mkdir" && k.plan.Moment == tracer.After || long && k.plan.Point == "rename" {
			groups = append(groups, k)
		}
	}
	c.inCells(off, groups, (*cell).try)
}

// inCells makes the crashes on a few nodes at once. One whose point is not
// reached there is made again on the node where the points were counted: on
// another one a process may have a thread less. Not reached there, it fails.
func (c *cell) inCells(change func(*world.Options), all []crash, try func(*cell, crash) (bool, error)) {
	t := c.t
	t.Helper()
	jobs := make(chan crash)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var again []crash
	for range 2 {
		other := newCell(t, change)
		wg.Go(func() {
			for k := range jobs {
				if reached, err := try(other, k); err != nil {
					t.Errorf("%v: %v", k, err)
				} else if !reached {
					mu.Lock()
					again = append(again, k)
					mu.Unlock()
				}
			}
		})
	}
	for _, k := range all {
		jobs <- k
	}
	close(jobs)
	wg.Wait()
	for _, k := range again {
		if reached, err := try(c, k); err != nil || !reached {
			t.Errorf("%v: reached %v: %v", k, reached, err)
		}
	}
	t.Logf("%d crashes, %d of them only where they were counted", len(all), len(again))
}
