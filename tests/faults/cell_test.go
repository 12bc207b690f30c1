//go:build faults

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// cell is a node whose processes stay, while what the programs made of them is
// swept away between two runs.
type cell struct {
	*world.World
	t      testing.TB
	pids   map[string]int // by container
	boxes  map[string]string
	epochs int
}

// controlGroup is another tool's, and holds the tasks of container c1.
const controlGroup = "theirs"

// newCell makes the node of the story; change may change its CPU.
func newCell(t testing.TB, change func(*world.Options)) *cell {
	t.Helper()
	cfg := sim.DefaultConfig()
	// Root's, their control group's, and those of the five pods that stay.
	cfg.NumRMIDs, cfg.Limbo = 7, 0
	o := world.Options{Sim: &cfg}
	if change != nil {
		change(&o)
	}
	w, err := world.New(shop, o)
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{World: w, t: t, pids: map[string]int{}, boxes: map[string]string{}}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, uid := range []string{"a", "b", "c", "d", "e", "z"} {
		c.boxes[uid], err = w.Runtime.RunPod("pod-"+uid, "ns", uid, nrirt.PodOptions{ID: "box-" + uid})
		c.must(err)
	}
	for _, id := range []string{"a1", "a2", "b1", "c1", "e1", "z1"} {
		_, err := w.Runtime.CreateContainer(c.boxes[id[:1]], id, nrirt.ContainerOptions{ID: id, Workload: []string{"threads", "3"}})
		c.must(err)
		c.must(w.Runtime.StartContainer(id))
		c.must(w.Runtime.Ready(t.Context(), id))
		c.pids[id] = w.Runtime.PID(id)
	}
	c.must(os.Mkdir(filepath.Join(w.Mount.Resctrl(), controlGroup), 0o755))
	tids, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.pids["c1"]))
	c.must(err)
	for _, tid := range tids {
		c.must(os.WriteFile(filepath.Join(w.Mount.Resctrl(), controlGroup, "tasks"), []byte(tid.Name()), 0))
	}
	return c
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// sweep takes away everything that programs of ours left.
func (c *cell) sweep() {
	c.t.Helper()
	groups, err := c.Groups()
	c.must(err)
	for _, g := range groups {
		c.must(os.Remove(g))
	}
	for _, dir := range []string{"lib", "out", "run"} {
		entries, err := os.ReadDir(filepath.Join(c.Dir, dir))
		c.must(err)
		for _, e := range entries {
			if path := filepath.Join(c.Dir, dir, e.Name()); path != c.NRISocket() {
				c.must(os.Remove(path))
			}
		}
	}
}

// pod and container are what the pipe tells of those of the story.
func (c *cell) pod(uid string) fields { return podFields(c.boxes[uid], uid) }

func (c *cell) container(id, state string) fields {
	pid, cg := c.pids[id], "/kubepods/burstable/pod"+id[:1]+"/"+id
	if state == "CREATED-NO-PID" {
		state, pid = "CREATED", 0
	}
	return containerFields(id, c.boxes[id[:1]], state, pid, cg)
}

func (c *cell) wire() *wire {
	c.epochs++
	return &wire{epoch: epochName(c.epochs)}
}

// outcome is how a run of a program ended.
type outcome struct {
	tracer.Report
	code int
	log  string
}

// run runs a program of this node under a plan.
func (c *cell) run(plan tracer.Plan, input, program string, args ...string) outcome {
	c.t.Helper()
	report := filepath.Join(c.Dir, "log", "report.json")
	cmd, err := tracer.Command(plan, report, shop.Program(program), append([]string{"--config", c.ConfigFile()}, args...)...)
	c.must(err)
	var log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &log, &log
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, syscall.EPIPE) {
		c.t.Fatal(err)
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), log: log.String()}
	if o.Report, err = tracer.Read(report); err != nil || o.code == 125 {
		c.t.Fatalf("%v; %s", err, o.log)
	}
	c.must(os.Remove(report))
	return o
}

// expect judges by three witnesses: groups, state and event log agree, and are
// what the node has by now: "Exists 1/1" of each pod, or none of it.
func (c *cell) expect(want map[string]string, logs ...string) error {
	if err := c.Agree(logs...); err != nil {
		return err
	}
	rows, err := c.Query("SELECT pod_uid, group_state, total_containers, reconciled_containers, group_path FROM pods")
	if err != nil {
		return err
	}
	if len(rows) != len(want) {
		return fmt.Errorf("pods %v, want %v", rows, want)
	}
	for _, r := range rows {
		if got := r[1] + " " + r[2] + "/" + r[3]; got != want[r[0]] {
			return fmt.Errorf("pod %s is %s, want %s", r[0], got, want[r[0]])
		}
		if in := strings.Contains(r[4], "/"+controlGroup+"/"); in != (r[0] == "c") {
			return fmt.Errorf("pod %s has its group at %s", r[0], r[4])
		}
	}
	left, err := c.Value("SELECT count(*) FROM containers WHERE pod_uid IS NULL")
	if err == nil && left != "0" {
		err = errors.New(left + " containers without a pod are left")
	}
	return errors.Join(err, c.seqs())
}

// seqs: no number of an event was skipped or given twice.
func (c *cell) seqs() error {
	rows, err := c.Query("SELECT seq FROM events ORDER BY seq")
	for i, r := range rows {
		if n, _ := strconv.Atoi(r[0]); n != i+1 {
			return fmt.Errorf("event %s is number %d", r[0], i+1)
		}
	}
	return err
}
