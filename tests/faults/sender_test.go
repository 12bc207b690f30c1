//go:build faults

package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// nasty are strings that a pod's author, or a broken sender, may think of.
func nasty(r *rand.Rand) string {
	words := []string{
		"", ".", "..", "../../canary", "/etc/passwd", "a/b", "a\nb", "\x00", "\x1b[31m", "\u202e", "mon_groups", "info", "pod_a",
		"'; DROP TABLE pods; --", "%s%n", `\`, `"`, "*", "~", "\xff\xfe", "0", "-1", strings.Repeat("../", 30) + "canary",
		strings.Repeat("x", 300), strings.Repeat("ü", 4000), strings.Repeat("/y", 3000), strings.Repeat("z", 200_000),
	}
	return words[r.IntN(len(words))]
}

// nastyRecord is a record that means harm: mostly a valid one with strange
// values, at times one whose bytes were changed.
func nastyRecord(r *rand.Rand, w *wire, c *cell) string {
	events := []string{"RUN_POD_SANDBOX", "STOP_POD_SANDBOX", "REMOVE_POD_SANDBOX", "POST_CREATE_CONTAINER", "START_CONTAINER",
		"POST_START_CONTAINER", "POST_UPDATE_CONTAINER", "STOP_CONTAINER", "REMOVE_CONTAINER", "HEARTBEAT", "RUNTIME_LOST", "NEW_THING"}
	before := w.b.Len()
	some := func() string { return strings.ReplaceAll(nasty(r), "\x00", "0") + strconv.Itoa(r.IntN(3)) }
	if r.IntN(40) == 0 {
		some = func() string { return nasty(r) } // what is refused
	}
	pod := podFields([]string{"box-a", "box-b", "x1", some()}[r.IntN(4)], []string{"a", "u1", some(), some()}[r.IntN(4)])
	container := containerFields([]string{"a2", "k1", some()}[r.IntN(3)], fmt.Sprint(pod["id"]), []string{"RUNNING", "CREATED", some()}[r.IntN(3)],
		[]int{0, 1, 1 << 30, c.pids["a2"], c.pids["c1"], os.Getpid()}[r.IntN(6)], some())
	for range r.IntN(3) {
		key := []string{"uid", "name", "namespace", "cgroup_parent", "id", "runtime_handler"}[r.IntN(6)]
		pod[key] = some()
	}
	more := fields{"pod": pod}
	event := events[r.IntN(len(events))]
	if strings.HasSuffix(event, "_CONTAINER") {
		more["container"] = container
	}
	if event == "HEARTBEAT" || event == "RUNTIME_LOST" {
		more = fields{"seq": 0, "epoch": "", "runtime_state": nasty(r), "queue_dropped": r.Uint64()}
		w.seq--
	}
	w.put(event, more)
	line := w.b.String()[before:]
	if r.IntN(100) != 0 {
		return line
	}
	b := []byte(line)
	for range 1 + r.IntN(4) { // flipped, cut, doubled
		at := r.IntN(len(b))
		switch r.IntN(3) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b = append(b[:at:at], b[min(len(b), at+r.IntN(50)):]...)
		case 2:
			b = bytes.Join([][]byte{b[:at], b[at/2 : at], b[at:]}, nil)
		}
		if len(b) == 0 {
			break
		}
	}
	return string(b) + "\n"
}

// TestHostileSender: whatever comes out of the pipe, the applier does not
// crash, has a bound on its memory, and changes no path but its own.
func TestHostileSender(t *testing.T) {
	for i, seed := range seeds {
		t.Run(strconv.Itoa(i), func(t *testing.T) { hostile(t, seed) })
	}
}

func hostile(t *testing.T, seed uint64) {
	c := newCell(t, func(o *world.Options) { o.Sim.NumRMIDs = 200 })
	canary := filepath.Join(c.Dir, "canary")
	c.must(os.MkdirAll(filepath.Join(canary, "mon_groups", "pod_a"), 0o755))
	p := c.newPeer()
	d, err := c.startTraced(tracer.Plan{Touch: true})
	c.must(err)
	r := dice(seed, "hostile")
	rounds := 8
	if long {
		rounds = 1000
	}
	for range rounds {
		if err := p.answer([]fields{c.pod("a")}, []fields{c.container("a2", "RUNNING")}); err != nil {
			t.Fatalf("%v\n%s", err, d.tail())
		}
		w := &wire{epoch: epochName(c.epochs), seq: 4}
		for range 10 + r.IntN(60) {
			if err := p.put(nastyRecord(r, w, c)); err != nil {
				t.Fatalf("%v\n%s", err, d.tail())
			}
		}
		forged := &wire{epoch: "forged"}
		forged.snapshot(nasty(r), nil, nil)
		c.must(p.put(forged.String() + strings.Repeat("garbage", r.IntN(300_000)) + "\n")) // ends the epoch
	}
	hwm := d.memory()
	t.Logf("VmHWM %d MiB", hwm>>20)
	if hwm > 256<<20 {
		t.Errorf("the applier took %d MiB", hwm>>20)
	}
	c.must(p.answer([]fields{c.pod("a"), c.pod("b"), c.pod("c"), c.pod("d"), c.pod("e")}, []fields{
		c.container("a2", "RUNNING"), c.container("b1", "RUNNING"), c.container("c1", "RUNNING"), c.container("e1", "RUNNING")}))
	err = world.Until("the node is as it really is", func() error { return c.trueEnd() })
	report := d.stop()
	if err != nil {
		t.Errorf("%v\n%s", err, d.tail())
	}
	n, err := c.Value("SELECT count(DISTINCT pod_uid) FROM events")
	t.Logf("%s pods told of, %d paths changed, streams broken: %d", n, len(report.Touched), strings.Count(d.all(), "stream of records is broken"))
	if known, _ := strconv.Atoi(n); known < 2*rounds || err != nil {
		t.Errorf("hardly anything was taken up: %s pods, %v", n, err)
	}
	c.onlyOwn(report.Touched)
	if left, err := filepath.Glob(canary + "/*/*/*"); err != nil || len(left) > 0 {
		t.Errorf("canary: %v, %v", left, err)
	}
}

// TestHugeSnapshots: thousands of containers are taken, a snapshot without end
// is not, and neither takes the memory of the node.
func TestHugeSnapshots(t *testing.T) {
	c := newCell(t, nil)
	p := c.newPeer()
	d, err := c.startTraced(tracer.Plan{})
	c.must(err)
	var many []fields
	for i := range 5000 {
		many = append(many, containerFields(fmt.Sprintf("k%d", i), c.boxes["a"], "CREATED", 0, strings.Repeat("/p", 100)))
	}
	c.must(p.answer([]fields{c.pod("a")}, many))
	err = world.Until("5000 containers are known", func() error {
		if n, err := c.Value("SELECT total_containers FROM pods"); n != "5000" || err != nil {
			return fmt.Errorf("%s, %v", n, err)
		}
		return nil
	})
	c.must(err)
	endless := &wire{epoch: "endless"}
	endless.put("SYNCHRONIZE", fields{"phase": "begin"})
	for i := range 80 {
		endless.put("SYNCHRONIZE", fields{"pod": podFields(fmt.Sprint("x", i), strings.Repeat("u", 500_000))})
	}
	c.must(p.put("\n" + endless.String()))
	if err := p.answer([]fields{c.pod("a")}, []fields{c.container("a2", "RUNNING")}); err != nil {
		t.Fatalf("%v\n%s", err, d.tail())
	}
	err = world.Until("the node is as it really is", func() error { return c.expect(map[string]string{"a": "Exists 1/1"}) })
	hwm := d.memory()
	t.Logf("VmHWM %d MiB", hwm>>20)
	if d.stop(); err != nil || hwm > 256<<20 {
		t.Errorf("%d MiB, %v", hwm>>20, err)
	}
}

// trueEnd is expect(storyEnd) where a forged RMID shortage or the like may have
// left pods to retry.
func (c *cell) trueEnd() error {
	if err := c.expect(storyEnd); err != nil {
		if o, rerr := c.Retry(); rerr != nil || o.Code != 0 && o.Code != 75 {
			return fmt.Errorf("%w; the job: %d, %v, %s", err, o.Code, rerr, o.Err)
		}
		return err
	}
	return nil
}

// onlyOwn: every path that the applier changed is one of its own.
func (c *cell) onlyOwn(touched map[string]int) {
	c.t.Helper()
	groups := 0
	for path := range touched {
		clean := filepath.Clean(path)
		ok := path == "/dev/null" || path == "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
		for _, dir := range []string{"lib", "out", "run"} {
			own := filepath.Join(c.Dir, dir)
			ok = ok || clean == own || filepath.Dir(clean) == own // the directory itself: a mkdir that finds it there
		}
		if rel, err := filepath.Rel(c.Mount.Resctrl(), clean); err == nil && !strings.HasPrefix(rel, "..") {
			ok = ok || groupFile.MatchString(rel)
			groups++
		}
		if !ok || clean != path {
			c.t.Errorf("the applier changed %.300q", path)
		}
	}
	if groups == 0 {
		c.t.Errorf("no group among %d paths", len(touched))
	}
}

// groupFile is what we may change below resctrl's root.
var groupFile = regexp.MustCompile(`^(` + controlGroup + `/)?(mon_groups/pod_[A-Za-z0-9_~-]+(/tasks)?|tasks)$`)
