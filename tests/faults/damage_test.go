//go:build faults

package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// harm is what became of a file on the disk.
type harm struct {
	file     string  // "" is the database, "-wal" its log
	what     string  // truncated, zeroed, flipped
	from, to float64 // which part, of 1
	bits     int
	seed     uint64
}

func (h harm) String() string {
	return fmt.Sprintf("state.db%s %s from %.4f to %.4f (%d bits, seed %d)", h.file, h.what, h.from, h.to, h.bits, h.seed)
}

// harms lists n of each kind, by the dice.
func harms(seed uint64, n int) []harm {
	r := dice(seed, "harm")
	var all []harm
	for range n {
		for _, file := range []string{"", "-wal"} {
			for _, what := range []string{"truncated", "zeroed", "flipped"} {
				from := r.Float64()
				all = append(all, harm{file: file, what: what, from: from, to: from + (1-from)*r.Float64(), bits: 1 + r.IntN(20), seed: r.Uint64()})
			}
		}
	}
	return all
}

// make does the harm to a file's bytes.
func (h harm) make(b []byte) []byte {
	r := rand.New(rand.NewPCG(h.seed, 0))
	from, to := int(h.from*float64(len(b))), int(h.to*float64(len(b)))
	switch h.what {
	case "truncated":
		return b[:from]
	case "zeroed":
		clear(b[from:to])
	case "flipped":
		for range h.bits {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
	}
	return b
}

// TestDamage: the applier is killed, and what it left on the disk is truncated,
// zeroed in part, or has bits flipped anywhere. The next one takes what is sound,
// begins anew where nothing is, and says so; the node is as it should be.
func TestDamage(t *testing.T) {
	c := newCell(t, nil)
	calls := stdin(c, tracer.Plan{}, c.story()).Calls
	end := tracer.Plan{Point: "synclog", N: calls["synclog"], Moment: tracer.After}
	n := 1
	if long {
		n = 150
	}
	jobs := make(chan harm)
	anew, lost := map[string]int{}, 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 2 {
		c := newCell(t, nil)
		wg.Go(func() {
			for h := range jobs {
				begun, told, err := c.tryHarm(end, h)
				if err != nil {
					t.Errorf("%v: %v", h, err)
				}
				mu.Lock()
				if begun {
					anew[h.file+" "+h.what]++
				}
				if told {
					lost++
				}
				mu.Unlock()
			}
		})
	}
	for _, seed := range seeds {
		for _, h := range harms(seed, n) {
			jobs <- h
		}
	}
	close(jobs)
	wg.Wait()
	t.Logf("begun anew: %v; events lost by the state and kept by the log: %d times", anew, lost)
}

// tryHarm says whether state was begun anew, and whether it had lost events.
func (c *cell) tryHarm(end tracer.Plan, h harm) (anew, lost bool, err error) {
	c.sweep()
	if first := stdin(c, end, c.story()); first.Hit == "" {
		return false, false, fmt.Errorf("the story's end was not reached: %s", first.log)
	}
	before, err := world.ReadEvents(c.EventLog())
	if err != nil {
		return false, false, err
	}
	path := c.Database() + h.file
	b, err := os.ReadFile(path)
	if err != nil {
		return false, false, err
	}
	if err := os.WriteFile(path, h.make(b), 0o640); err != nil {
		return false, false, err
	}
	o := stdin(c, tracer.Plan{}, c.present())
	if o.code != 0 {
		return false, false, fmt.Errorf("exit code %d: %s", o.code, o.log)
	}
	pods, err := world.AgreeOnPods(c.Database(), c.EventLog())
	if err == nil {
		err = c.AgreeOnKernel(pods)
	}
	if err != nil {
		return false, false, fmt.Errorf("%w\n%s", err, o.log)
	}
	for uid, want := range storyEnd {
		if p := pods[uid]; fmt.Sprintf("%s %d/%d", p.GroupState, p.Total, p.Reconciled) != want || len(pods) != len(storyEnd) {
			return false, false, fmt.Errorf("pods %+v, want %v\n%s", pods, storyEnd, o.log)
		}
	}
	after, err := world.ReadEvents(c.EventLog())
	if err != nil || len(after) < len(before) {
		return false, false, fmt.Errorf("%d events in the log, then %d, %v", len(before), len(after), err)
	}
	anew = after[len(after)-1].Log != before[0].Log
	if anew && !strings.Contains(o.log, "damaged") {
		return anew, false, fmt.Errorf("state was begun anew, and not a word: %s", o.log)
	}
	return anew, strings.Contains(o.log, "state database lost"), nil
}

// TestNewerVersion: a database of a later version is not touched by anybody,
// nor are the groups, and the error says what to do.
func TestNewerVersion(t *testing.T) {
	c := newCell(t, nil)
	if o := stdin(c, tracer.Plan{}, c.story()); o.code != 0 {
		t.Fatalf("%d: %s", o.code, o.log)
	}
	out, err := exec.Command("sqlite3", c.Database(), "PRAGMA user_version = 99; UPDATE meta SET value = '99' WHERE key = 'schema'; PRAGMA wal_checkpoint(TRUNCATE);").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	look := func() string {
		db, err := os.ReadFile(c.Database())
		c.must(err)
		log, err := os.ReadFile(c.EventLog())
		c.must(err)
		groups, err := c.Groups()
		c.must(err)
		return fmt.Sprint(groups, string(log), string(db))
	}
	before := look()
	for _, run := range []func() outcome{
		func() outcome { return stdin(c, tracer.Plan{}, c.present()) },
		func() outcome { return c.run(tracer.Plan{}, "", world.ApplierProgram) },
		func() outcome { return c.run(tracer.Plan{}, "", world.RetryProgram) },
		func() outcome { return c.run(tracer.Plan{}, "", world.CtlProgram, "pods") },
	} {
		o := run()
		if o.code != 1 || !strings.Contains(o.log, "schema version 99") || !strings.Contains(o.log, c.Database()) {
			t.Errorf("exit code %d: %s", o.code, o.log)
		}
		if look() != before {
			t.Error("something was changed")
		}
	}
}

// heldTransaction is the sqlite3 program in which a person has begun a
// transaction, and thinks.
func heldTransaction(path string) (end func() error, err error) {
	cmd := exec.Command("sqlite3", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var told bytes.Buffer
	cmd.Stderr = &told
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	fmt.Fprintln(in, ".timeout 10000\nBEGIN IMMEDIATE;\nSELECT 'held';")
	line := make([]byte, 5)
	if n, err := out.Read(line); err != nil || string(line[:n]) != "held\n" {
		return nil, fmt.Errorf("sqlite3 said %q, %v, %s", line[:n], err, told.String())
	}
	return func() error {
		in.Close()
		return cmd.Wait()
	}, nil
}
