//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// node is a world whose errors end the test.
type node struct {
	*world.World
	t *testing.T
}

// newNode makes a node on which nothing of ours runs yet; settings are those of
// the configuration, "table.key" and its value.
func newNode(t *testing.T, settings map[string]string) *node {
	t.Helper()
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs, cfg.Limbo = 64, 0
	return nodeOf(t, world.Options{Sim: &cfg, Config: settings})
}

func nodeOf(t *testing.T, o world.Options) *node {
	t.Helper()
	w, err := world.New(shop, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{World: w, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			for _, d := range n.Daemons() {
				t.Logf("%s (pid %d):\n%s", d.Name, d.PID, last(d.Log(), 4000))
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// ctl is what resctrlctl tells programs.
func (n *node) ctl(into any, args ...string) {
	n.t.Helper()
	r, err := n.Ctl(args...)
	n.must(err)
	if err := json.Unmarshal([]byte(r.Out), into); err != nil {
		n.t.Fatalf("resctrlctl %q (exit code %d): %v in %s%s", args, r.Code, err, r.Out, r.Err)
	}
}

// last is the end of a text.
func last(text string, most int) string { return text[max(0, len(text)-most):] }

// running is a node with both daemons at work.
func running(t *testing.T, settings map[string]string) *node {
	t.Helper()
	n := newNode(t, settings)
	n.startBoth()
	return n
}

func (n *node) startBoth() {
	n.t.Helper()
	_, err := n.StartApplier()
	n.must(err)
	_, err = n.StartWatcher()
	n.must(err)
	n.logged(n.Applier, "snapshot applied", 1)
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// until waits for a condition, by its complaint.
func (n *node) until(what string, ask func() error) {
	n.t.Helper()
	n.must(world.Until(what, ask))
}

// logged waits until the daemon's log says it that often at least.
func (n *node) logged(d *world.Daemon, word string, times int) {
	n.t.Helper()
	n.until(fmt.Sprintf("%s logs %s %d times", d.Name, word, times), func() error {
		if got := strings.Count(d.Log(), word); got < times {
			return fmt.Errorf("%d times", got)
		}
		return nil
	})
}

// pod runs a pod with one container, which has a process; it gives the sandbox.
func (n *node) pod(uid string) string {
	n.t.Helper()
	box, err := n.Runtime.RunPod("pod-"+uid, "ns", uid, nrirt.PodOptions{})
	n.must(err)
	n.container(box, uid+"-c1")
	return box
}

// container creates and starts one.
func (n *node) container(box, id string) {
	n.t.Helper()
	_, err := n.Runtime.CreateContainer(box, "app", nrirt.ContainerOptions{ID: id, Workload: []string{"sleep"}})
	n.must(err)
	n.must(n.Runtime.StartContainer(id))
}

// has waits until exactly these pods are known, each "Exists 1/1" or so, and the
// three witnesses agree.
func (n *node) has(want map[string]string) {
	n.t.Helper()
	n.until("the state is the node's", func() error {
		rows, err := n.Query("SELECT pod_uid, group_state || ' ' || total_containers || '/' || reconciled_containers FROM pods")
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, r := range rows {
			got[r[0]] = r[1]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return n.Agree()
	})
}

// memoryBound: no program may ever have taken more.
func (n *node) memoryBound(d *world.Daemon, mib int) {
	n.t.Helper()
	hwm := procNumber(n.t, d.PID, "VmHWM") >> 10
	n.t.Logf("%s: VmHWM %d MiB, allowed are %d", d.Name, hwm, mib)
	if hwm > mib {
		n.t.Errorf("%s took %d MiB", d.Name, hwm)
	}
}
