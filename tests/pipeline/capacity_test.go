package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// TestBusyThenSuccess: RMIDs in limbo are EBUSY, a capacity error like
// ENOSPC; later the job serves the pod.
func TestBusyThenSuccess(t *testing.T) {
	t.Parallel()
	clock := sim.NewManualClock()
	n := running(t, rmids(2), func(o *world.Options) { o.Clock = clock })
	a := n.pod("a")
	n.container(n.pod("b"), "app") // ENOSPC
	n.history("b", "Failed capacity 0/0, Failed capacity 1/0")
	n.must(n.Runtime.RemovePod(a))
	n.history("a", "Exists 0/0, Removed")
	n.container(n.pod("c"), "app") // EBUSY
	n.history("c", "Failed capacity 0/0, Failed capacity 1/0")
	n.job(75)
	clock.Advance(2 * time.Second)
	r := n.job(75) // one of the two is served
	n.history("b", "Failed capacity 0/0, Failed capacity 1/0, Exists 1/0, Exists 1/1")
	n.history("c", "Failed capacity 0/0, Failed capacity 1/0")
	if !strings.Contains(r.Out, `"b"`) {
		t.Errorf("the job does not tell of the pod:\n%s", r.Out)
	}
	n.must(n.Settled())
}

// TestControlGroups: a pod whose tasks are in a control group of somebody
// else's gets its group there, keeping counters and RMID where the kernel can
// rename.
func TestControlGroups(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("kernel61=%v", old), func(t *testing.T) {
			t.Parallel()
			n := running(t, noLimbo(), cpu(func(c *sim.Config) { c.Kernel61 = old }))
			gold := filepath.Join(n.Mount.Resctrl(), "gold")
			n.must(os.Mkdir(gold, 0o755))
			pod := n.pod("u")
			c := n.create(pod, "app", "threads", "5")
			// The runtime itself puts it there, before any plugin hears of it.
			n.Runtime.SetHook(func(_ context.Context, method string) error {
				if method == "StartContainer" {
					return n.join(gold, c)
				}
				return nil
			})
			n.must(n.Runtime.StartContainer(c))
			n.Runtime.SetHook(nil)
			n.ready(c)
			n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
			group := filepath.Join(gold, "mon_groups", "pod_u")
			n.inGroup(c, group, 5)
			n.settle()

			// All of them move on, and the group follows with the next look.
			silver := filepath.Join(n.Mount.Resctrl(), "silver")
			n.must(os.Mkdir(silver, 0o755))
			n.must(n.join(silver, c))
			n.job(0)
			n.inGroup(c, filepath.Join(silver, "mon_groups", "pod_u"), 5)
			n.settle()
			n.must(n.Runtime.RemovePod(pod))
			n.settle()
			if groups, err := n.Groups(); err != nil || len(groups) > 0 {
				t.Errorf("left: %q, %v", groups, err)
			}
		})
	}
}

// join writes every task of the container into the control group, one by one,
// until all are there: a program that starts gains threads.
func (n *node) join(control, container string) error {
	dir, err := n.Runtime.Cgroup(container)
	if err != nil {
		return err
	}
	for moved := true; moved; {
		moved = false
		tids, err := n.Cgroups.Threads(dir, true)
		if err != nil {
			return err
		}
		in, err := n.TasksOf(control)
		if err != nil {
			return err
		}
		for _, tid := range tids {
			if slices.Contains(in, tid) {
				continue
			}
			moved = true
			err := os.WriteFile(filepath.Join(control, "tasks"), []byte(strconv.Itoa(tid)), 0)
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// TestGroupLost: somebody removes a group; the job makes and fills it again,
// and one event tells.
func TestGroupLost(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo())
	c := n.container(n.pod("u"), "app", "threads", "3")
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.must(os.Remove(n.GroupPath("u")))
	n.job(0)
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1, Exists 1/1")
	n.inGroup(c, n.GroupPath("u"), 3)
	n.settle()
}

// TestVanishedPods: pods that ended while nobody was told (a restarted runtime
// does not say) are removed by the job once their cgroup has been gone a while.
func TestVanishedPods(t *testing.T) {
	t.Parallel()
	n := running(t)
	stays, gone := n.pod("stays"), n.pod("gone")
	n.container(stays, "app")
	n.container(gone, "app")
	n.last("gone", "Exists 1/1")
	n.last("stays", "Exists 1/1")
	n.must(n.Runtime.Restart())
	n.snapshots(2)
	parent, err := n.Runtime.PodCgroup(gone)
	n.must(err)
	n.must(n.Runtime.RemovePod(gone)) // no StopPodSandbox, no RemovePodSandbox
	n.must(n.Runtime.RemovePodCgroup(parent))
	n.until("the job removes the pod", func() error {
		n.job(0)
		if got, err := n.History("gone"); err != nil || !strings.HasSuffix(got, ", Removed") {
			return fmt.Errorf("its events are %s, %v", got, err)
		}
		return nil
	})
	n.settle()
	n.last("stays", "Exists 1/1")
}
