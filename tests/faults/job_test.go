//go:build faults

package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// leaveWork makes a node on which the job has something of everything to do:
// pods without RMIDs, a lost group, a stray task, an unfinished removal.
func (c *cell) leaveWork() error {
	c.sweep()
	c.Model.SetNumRMIDs(5)
	defer c.Model.SetNumRMIDs(8)
	w := c.wire()
	w.snapshot("", []fields{c.pod("a"), c.pod("d"), c.pod("z")}, []fields{c.container("a2", "RUNNING"), c.container("z1", "RUNNING")})
	for _, uid := range []string{"b", "c", "e"} {
		w.put("RUN_POD_SANDBOX", fields{"pod": c.pod(uid)})
		w.put("POST_START_CONTAINER", fields{"pod": c.pod(uid), "container": c.container(uid+"1", "RUNNING")})
	}
	w.put("REMOVE_POD_SANDBOX", fields{"pod": c.pod("z")})
	c.Mount.Faults.Add(fusemount.Fault{Op: "rmdir", Path: "pod_z", Errno: syscall.EBUSY})
	defer c.Mount.Faults.Clear()
	if o := stdin(c, tracer.Plan{}, w.String()); o.code != 0 {
		return fmt.Errorf("exit code %d: %s", o.code, o.log)
	}
	if n, err := c.Value("SELECT count(*) FROM pods WHERE group_state = 'Failed' OR removing"); n != "4" || err != nil {
		return fmt.Errorf("%s pods are Failed or removing, %v", n, err)
	}
	return errors.Join(
		os.Remove(c.GroupPath("d")),
		os.WriteFile(filepath.Join(c.Mount.Resctrl(), "tasks"), []byte(strconv.Itoa(c.pids["a2"])), 0))
}

func (c *cell) tryJob(k crash) (bool, error) {
	if err := c.leaveWork(); err != nil {
		return false, fmt.Errorf("prepare: %w", err)
	}
	first := c.run(k.plan, "", world.RetryProgram)
	last := c.run(tracer.Plan{}, "", world.RetryProgram)
	if err := c.expect(storyEnd); err != nil || last.code != 0 {
		return true, fmt.Errorf("killed at %q; then the job (%d): %v\n%s%s", first.Hit, last.code, err, first.log, last.log)
	}
	return first.Hit != "", nil
}

// TestJobCrashPoints kills the job at each step that leaves a trace; another
// job does the rest.
func TestJobCrashPoints(t *testing.T) {
	c := newCell(t, nil)
	c.must(c.leaveWork())
	whole := c.run(tracer.Plan{}, "", world.RetryProgram)
	if err := c.expect(storyEnd); err != nil || whole.code != 0 {
		t.Fatalf("without a kill (exit code %d): %v\n%s", whole.code, err, whole.log)
	}
	t.Logf("the job's calls: %v", whole.Calls)
	mustHave(t, "job", whole.Calls)
	chosen := choose(crashes(whole.Calls), 6, "job")
	c.inCells(nil, chosen, (*cell).tryJob)
}
