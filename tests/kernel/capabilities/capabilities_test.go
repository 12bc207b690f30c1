package capabilities_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lastCap is the highest capability of these kernels.
const lastCap = unix.CAP_CHECKPOINT_RESTORE

func list(caps ...int) string {
	if len(caps) == 0 {
		return "none"
	}
	var words []string
	for _, c := range caps {
		words = append(words, strconv.Itoa(c))
	}
	return strings.Join(words, ",")
}

// allBut is every capability without one.
func allBut(left int) string {
	var caps []int
	for c := range lastCap + 1 {
		if c != left {
			caps = append(caps, c)
		}
	}
	return list(caps...)
}

// TestCapabilities: CAP_DAC_OVERRIDE is enough, and without it nothing goes, with
// whatever other capability. Mounting needs CAP_SYS_ADMIN beside it, once.
func TestCapabilities(t *testing.T) {
	for _, c := range []struct {
		name, caps string
		served     bool
	}{
		{"CAP_DAC_OVERRIDE is enough", list(unix.CAP_DAC_OVERRIDE), true},
		{"without any", list(), false},
		{"without CAP_DAC_OVERRIDE", allBut(unix.CAP_DAC_OVERRIDE), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := attribution.New(t)
			n.Caps = c.caps
			n.StartApplier()
			if c.served {
				served(t, n)
			} else {
				refused(t, n)
			}
		})
	}
	t.Run("mounting needs CAP_SYS_ADMIN", mounting)
	t.Run("a group that may read the state needs CAP_CHOWN", reading)
}

// served is a pod's whole life: with the processes of other users, which are
// found in their cgroups and in /proc, and a sweep.
func served(t *testing.T, n *attribution.Node) {
	pod, c := n.Serve("caps")
	for _, uid := range []uint32{0, 1000} {
		stray := n.StartAs(c.Cgroup, uid)
		stray.Do("threads 3")
	}
	n.Sweep()
	n.WantIn(pod.Group, c)
	c.WantState("Reconciled")
	n.Settled()
	if text := n.Ctl("status"); !strings.Contains(text, "1 Exists, 0 Failed") {
		t.Errorf("resctrlctl status: %s", text)
	}
	pod.Remove().Wait()
	n.Settled()
	if left := attribution.OurGroups(); len(left) > 0 {
		t.Errorf("groups left: %v", left)
	}
}

// refused says what is missing, to the state, to the events and in the log.
func refused(t *testing.T, n *attribution.Node) {
	pod, _ := n.RunPod("refused")
	c := pod.Create()
	c.Start().Wait()
	c.WantState("Partial permission")
	n.Settled()
	if got := n.History(pod.UID, 0); got != "Failed permission 0/0, Failed permission 1/0" {
		t.Errorf("told was %s", got)
	}
	if log := n.ApplierLog(); !strings.Contains(log, "CAP_DAC_OVERRIDE") {
		t.Errorf("the log does not say what is missing: %s", log)
	}
}

func mounting(t *testing.T) {
	for _, c := range []struct {
		caps    string
		mounted bool
	}{
		{list(unix.CAP_DAC_OVERRIDE), false},
		{allBut(unix.CAP_SYS_ADMIN), false},
		{list(unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_ADMIN), true},
	} {
		t.Run(c.caps, func(t *testing.T) {
			n := attribution.New(t)
			n.Caps = c.caps
			if err := unix.Unmount(attribution.Root, 0); err != nil {
				t.Fatal(err)
			}
			n.StartApplier()
			if got := attribution.Mounted(); got != c.mounted {
				t.Errorf("mounted: %t, want %t", got, c.mounted)
			}
			if c.mounted {
				served(t, n)
				return
			}
			n.Until("the log says what to do", func() error {
				if log := n.ApplierLog(); !strings.Contains(log, "mount -t resctrl") {
					return fmt.Errorf("it says %s", log)
				}
				return nil
			})
		})
	}
}

// reading: a file is given to a group of which root is no member. Where that may
// not be, pods get their groups all the same, and the log says why there is no state.
func reading(t *testing.T) {
	for _, c := range []struct {
		caps  string
		given bool
	}{
		{list(unix.CAP_DAC_OVERRIDE), false},
		{list(unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE), true},
	} {
		t.Run(c.caps, func(t *testing.T) {
			n := attribution.New(t)
			n.Caps = c.caps
			n.StateGroup(t, "readers", 4711)
			n.StartApplier()
			n.Serve("group")
			if !c.given {
				if log := n.ApplierLog(); !strings.Contains(log, "to group 4711: lchown") {
					t.Errorf("the log does not say why there is no state: %s", log)
				}
				return
			}
			n.Settled()
			for _, path := range []string{n.Database(), n.EventLog()} {
				var st unix.Stat_t
				if err := unix.Stat(path, &st); err != nil || st.Gid != 4711 {
					t.Errorf("%s is of group %d (%v)", path, st.Gid, err)
				}
			}
		})
	}
}
