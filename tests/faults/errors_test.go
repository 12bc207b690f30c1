//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
)

// storagePoints are calls whose failing is no fault of resctrl.
var storagePoints = []string{"wal", "database", "log", "syncstate", "synclog", "truncate", "syncdir", "lock"}

// errnos are what a disk that is full, sealed, broken or over quota says.
var errnos = []syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EIO, syscall.EDQUOT}

// TestStorageErrors: any write to state or log fails, once, for a while, or
// for ever. The pods get their groups all the same; the applier says what is
// wrong, and ends by itself; the next run makes all good.
func TestStorageErrors(t *testing.T) {
	c := newCell(t, nil)
	calls := stdin(c, tracer.Plan{}, c.story()).Calls
	var all []tracer.Plan
	for _, point := range storagePoints {
		for n := 1; n <= calls[point]; n++ {
			for _, errno := range errnos {
				for _, times := range []int{1, 20, 1 << 30} {
					all = append(all, tracer.Plan{Point: point, N: n, Moment: tracer.Fail, Errno: errno, Times: times})
				}
			}
		}
	}
	var chosen []tracer.Plan
	for i, seed := range seeds {
		if long && i > 0 {
			break // all of them once
		}
		r := dice(seed, "errors")
		chosen = append(chosen, somePlans(all, 10, r)...)
	}
	jobs := make(chan tracer.Plan)
	var wg sync.WaitGroup
	for range 2 {
		c := newCell(t, nil)
		wg.Go(func() {
			for p := range jobs {
				if err := c.tryError(p); err != nil {
					t.Errorf("%s %d: %v, %d times: %v", p.Point, p.N, p.Errno, p.Times, err)
				}
			}
		})
	}
	for _, p := range chosen {
		jobs <- p
	}
	close(jobs)
	wg.Wait()
}

// somePlans takes some by the dice, of every point; LONG takes all.
func somePlans(all []tracer.Plan, some int, r *rand.Rand) []tracer.Plan {
	if long {
		return all
	}
	byPoint := map[string][]tracer.Plan{}
	var points []string
	for _, p := range all {
		if byPoint[p.Point] == nil {
			points = append(points, p.Point)
		}
		byPoint[p.Point] = append(byPoint[p.Point], p)
	}
	var chosen []tracer.Plan
	for i := range some {
		of := byPoint[points[i%len(points)]]
		chosen = append(chosen, of[r.IntN(len(of))])
	}
	return chosen
}

func (c *cell) tryError(p tracer.Plan) error {
	c.sweep()
	first := stdin(c, p, c.story())
	if first.Hit == "" {
		return fmt.Errorf("the point was not reached (exit code %d): %s", first.code, first.log)
	}
	if first.code > 127 || strings.Contains(first.log, "goroutine ") {
		return fmt.Errorf("it died (%d): %s", first.code, first.log)
	}
	if first.code != 0 && !strings.Contains(first.log, "level=ERROR") && !strings.Contains(first.log, p.Errno.Error()) {
		return fmt.Errorf("it ended with %d and did not say why: %s", first.code, first.log)
	}
	groups, err := c.Groups()
	if err != nil {
		return err
	}
	if len(groups) != len(storyEnd) {
		return fmt.Errorf("while state could not be written there are the groups %v (exit code %d): %s", groups, first.code, first.log)
	}
	last := stdin(c, tracer.Plan{}, c.present())
	if err := c.expect(storyEnd); err != nil || last.code != 0 {
		return fmt.Errorf("at %q; afterwards (%d): %v\n%s%s", first.Hit, last.code, err, first.log, last.log)
	}
	return nil
}
