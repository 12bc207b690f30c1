//go:build faults

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// pipeStory plays the story over the FIFOs to an applier under a plan, until the
// node is as the story ends or the applier has ended. It gives the records and
// what the applier answered.
func (c *cell) pipeStory(plan tracer.Plan) (d *traced, records, heard string, err error) {
	if d, err = c.startTraced(plan); err != nil {
		return nil, "", "", err
	}
	p := c.newPeer()
	defer p.close()
	w := c.wire()
	hello, err := p.helloOf(d)
	if err == nil {
		c.tell(w, hello)
		if err := p.put(w.String()); err != nil {
			return d, "", "", err
		}
		err = world.Until("the story is told, or the applier ended", func() error {
			if err := p.listen(time.Now(), nil); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			if !d.alive() {
				return nil
			}
			return c.expect(storyEnd)
		})
	}
	if !d.alive() {
		for err = nil; err == nil; err = p.listen(time.Now(), d) {
		}
		if errors.Is(err, errSilent) {
			err = nil
		}
	}
	return d, w.String(), string(p.heard), err
}

// ackedIsTrue: whatever the applier has acknowledged, it has done: the tasks of
// each container that was started so far are in their group.
func (c *cell) ackedIsTrue(records, heard string, torn bool) error {
	sent := map[int]struct {
		Event     string
		Epoch     string
		Seq       int
		Container struct{ ID string }
	}{}
	for line := range strings.Lines(records) {
		rec := sent[0]
		if line == "\n" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			return err
		}
		sent[rec.Seq] = rec
	}
	upTo := 0
	lines := strings.SplitAfter(heard, "\n")
	for i, line := range lines {
		var ack struct {
			Epoch, Hello string
			Seq          int
		}
		if line == "" || torn && i == len(lines)-1 {
			continue
		}
		err := json.Unmarshal([]byte(line), &ack)
		if err == nil && ack.Hello != "" {
			continue
		}
		if err != nil || sent[ack.Seq].Epoch != ack.Epoch || ack.Seq <= upTo || !strings.HasSuffix(line, "\n") {
			return fmt.Errorf("acknowledgement %q after that of %d, %v", line, upTo, err)
		}
		upTo = ack.Seq
	}
	for seq := 1; seq <= upTo; seq++ {
		rec := sent[seq]
		if rec.Event != "START_CONTAINER" {
			continue
		}
		group := c.GroupPath(rec.Container.ID[:1])
		if rec.Container.ID == "c1" {
			group = filepath.Join(c.Mount.Resctrl(), controlGroup, "mon_groups", "pod_c")
		}
		if n, missing, err := c.Membership(rec.Container.ID, group); n == 0 || len(missing) > 0 || err != nil {
			return fmt.Errorf("%d is acknowledged, and of %d tasks of %s %v are not in %s, %v", upTo, n, rec.Container.ID, missing, group, err)
		}
	}
	return nil
}

// tryAcked makes a crash of an applier on the FIFOs; another one, which finds
// what the first has left in them, makes all good.
func (c *cell) tryAcked(k crash) (reached bool, err error) {
	c.sweep()
	first, records, heard, err := c.pipeStory(k.plan)
	if err != nil {
		return false, fmt.Errorf("%w\n%s", err, first.tail())
	}
	if first.alive() {
		first.stop()
		return false, nil
	}
	if err := c.ackedIsTrue(records, heard, k.plan.Moment == tracer.Half); err != nil {
		return true, fmt.Errorf("%w\n%s", err, first.tail())
	}
	said := first.all()
	last, err := c.startTraced(tracer.Plan{})
	if err != nil {
		return true, err
	}
	defer last.stop()
	p := c.newPeer()
	defer p.close()
	hello, err := p.hello()
	if err == nil {
		err = p.put(c.presentFor(hello))
	}
	if err == nil {
		err = world.Until("the next applier makes all good", func() error { return c.expect(storyEnd) })
	}
	if err != nil {
		return true, fmt.Errorf("%w\n%s%s", err, said, last.tail())
	}
	return true, nil
}

// TestAcknowledgementCrashPoints kills the applier at each write into the second
// FIFO: at its hello, and at every acknowledgement; and where it makes the FIFOs.
func TestAcknowledgementCrashPoints(t *testing.T) {
	c := newCell(t, nil)
	whole, records, heard, err := c.pipeStory(tracer.Plan{})
	if err == nil {
		err = c.ackedIsTrue(records, heard, false)
	}
	if err != nil {
		t.Fatalf("without a kill: %v\n%s", err, whole.tail())
	}
	calls := whole.stop().Calls
	t.Logf("the story's calls: %v", calls)
	// A hello, the snapshot's acknowledgement, and one of every record after it;
	// a slow run says hello more than once.
	calls["ack"] = 2 + strings.Count(records, "\n") - 7
	var all []crash
	for _, k := range crashes(calls) {
		if k.plan.Point == "ack" || k.plan.Point == "chmod" {
			all = append(all, k)
		}
	}
	mustHave(t, "acknowledgements", calls)
	chosen := choose(all, 8, "ack")
	t.Logf("%d crash points, %d crashes chosen", len(all), len(chosen))
	c.inCells(nil, chosen, (*cell).tryAcked)
}

// TestRotationCrashPoints: somebody renames the log right before the applier
// writes a line into it, any line, and the applier is killed at any step around
// that.
func TestRotationCrashPoints(t *testing.T) {
	c := newCell(t, nil)
	calls := stdin(c, tracer.Plan{}, c.story()).Calls
	lines := make([]int, calls["log"])
	for i := range lines {
		lines[i] = i + 1
	}
	if !long {
		lines = nil
		for _, seed := range seeds {
			lines = append(lines, 1+dice(seed, "rotation").IntN(calls["log"]))
		}
	}
	reached := map[string]int{}
	var chosen []crash
	for _, n := range lines {
		chosen = append(chosen, choose(c.aroundRotation(n, reached), 3, fmt.Sprint("rotated ", n))...)
	}
	mustHave(t, "rotation", reached)
	t.Logf("rotated before the lines %v, %d crashes", lines, len(chosen))
	c.inCells(nil, chosen, (*cell).try)
}

// aroundRotation lists the crashes at the calls next to a rotation before the nth
// line. It counts what may be reached.
func (c *cell) aroundRotation(n int, reached map[string]int) []crash {
	c.t.Helper()
	c.sweep()
	rotation := tracer.Rotation{Point: "log", N: n, From: "events.jsonl", To: "events.jsonl.1"}
	o := stdin(c, tracer.Plan{Rotate: c.rotation(rotation)}, c.story())
	if o.Rotated == nil || o.code != 0 {
		c.t.Fatalf("no rotation before line %d (exit code %d): %s", n, o.code, o.log)
	}
	if err := c.expect(storyEnd, c.EventLog()+".1", c.EventLog()); err != nil {
		c.t.Fatalf("rotated before line %d, without a kill: %v\n%s", n, err, o.log)
	}
	var all []crash
	for _, k := range crashes(o.Calls) {
		if !long && !slices.Contains(mustReach["rotation"], k.plan.Point) {
			continue
		}
		if after := k.plan.N - o.Rotated[k.plan.Point]; after >= 0 && after <= 2 {
			k.plan.Rotate = rotation
			all = append(all, k)
			reached[k.plan.Point]++
		}
	}
	return all
}

// rotation is one with the paths of this node.
func (c *cell) rotation(r tracer.Rotation) tracer.Rotation {
	if r.N > 0 {
		out := filepath.Dir(c.EventLog())
		r.From, r.To = filepath.Join(out, r.From), filepath.Join(out, r.To)
	}
	return r
}
