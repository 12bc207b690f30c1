package sim_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

const counters = "/mon_data/mon_L3_00/"

func (w *world) number(path string) uint64 {
	w.t.Helper()
	n, err := strconv.ParseUint(strings.TrimSpace(w.read(path)), 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestRenameKeepsRMIDAndCounters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.mkdir("g"), nil, "mkdir")
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	pid := w.script.Spawn()
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(pid)), nil, "write")
	w.clock.Advance(time.Second)
	id, err := w.RMID("mon_groups/m")
	w.want(err, nil, "RMID")
	if total := w.number("mon_groups/m" + counters + "mbm_total_bytes"); total != 1<<30 {
		t.Fatalf("counted %d in a second, want %d", total, 1<<30)
	}
	w.want(w.rename("mon_groups/m", "g/mon_groups/n"), nil, "rename")
	w.wantGroup(pid, "res:g mon:n")
	if after, _ := w.RMID("g/mon_groups/n"); after != id {
		t.Fatalf("RMID %d became %d", id, after)
	}
	w.clock.Advance(time.Second)
	if total := w.number("g/mon_groups/n" + counters + "mbm_total_bytes"); total != 2<<30 {
		t.Fatalf("counted %d in two seconds", total)
	}
	if local := w.number("g/mon_groups/n" + counters + "mbm_local_bytes"); local != 3<<29 {
		t.Fatalf("local is %d", local)
	}
}

func TestCountersStandWithoutTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.OccupancyDecay = 4 * time.Second })
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	w.clock.Advance(time.Hour)
	total, occupancy := "mon_groups/m"+counters+"mbm_total_bytes", "mon_groups/m"+counters+"llc_occupancy"
	if w.number(total) != 0 || w.number(occupancy) != 0 {
		t.Fatal("an empty group counted")
	}
	pid := w.script.Spawn()
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(pid)), nil, "write")
	w.clock.Advance(time.Second)
	if got := w.number(occupancy); got != 4<<20 {
		t.Fatalf("occupancy %d", got)
	}
	w.script.Exit(pid)
	w.clock.Advance(2 * time.Second)
	if got := w.number(total); got != 1<<30 {
		t.Fatalf("total %d after the task ended", got)
	}
	if got := w.number(occupancy); got != 2<<20 {
		t.Fatalf("occupancy %d at half of its decay", got)
	}
}

// TestOccupiedRMIDStaysInLimbo: longer than Limbo, until its cache lines are
// below the threshold (512 KiB of 4 MiB: 7/8 of the decay).
func TestOccupiedRMIDStaysInLimbo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.NumRMIDs, c.OccupancyDecay = 2, 4*time.Second })
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(w.script.Spawn())), nil, "write")
	w.want(w.rmdir("mon_groups/m"), nil, "rmdir")
	w.clock.Advance(3499 * time.Millisecond)
	w.want(w.mkdir("mon_groups/m"), syscall.EBUSY, "occupied")
	w.clock.Advance(time.Millisecond)
	w.want(w.mkdir("mon_groups/m"), nil, "drained")
}

func TestErrorWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.ErrorRMID, c.UnavailableRMID = 1, 2 })
	for _, name := range []string{"a", "b", "c"} {
		w.want(w.mkdir("mon_groups/"+name), nil, "mkdir")
	}
	for name, want := range map[string]string{"a": "Error\n", "b": "Unavailable\n", "c": "0\n"} {
		if got := w.read("mon_groups/" + name + counters + "mbm_total_bytes"); got != want {
			t.Fatalf("%s reads %q, want %q", name, got, want)
		}
	}
}

func TestReboot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.NumRMIDs = 2 })
	w.want(w.mkdir("mon_groups/m"), nil, "mkdir")
	pid := w.script.Spawn()
	w.want(w.write("mon_groups/m/tasks", fmt.Sprint(pid)), nil, "write")
	n, _ := w.Walk("mon_groups/m/tasks")
	f, err := w.Open(n, true)
	w.want(err, nil, "open")
	w.want(w.Unmount(), syscall.EBUSY, "umount")
	w.Reboot(true)
	w.want(f.Write([]byte("1"), sim.Caller{}), syscall.ENODEV, "write from before")
	f.Close()
	w.wantGroup(pid, "res:/ mon:")
	w.want(w.mkdir("mon_groups/m"), nil, "all RMIDs are free")
	w.want(w.Unmount(), nil, "umount")
	w.want(w.Mount(), nil, "mount")
	w.want(w.Mount(), syscall.EBUSY, "mount again")
}

func TestResize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.NumRMIDs, c.Limbo = 3, 0 })
	w.want(w.mkdir("mon_groups/a"), nil, "mkdir")
	w.want(w.mkdir("mon_groups/b"), nil, "mkdir")
	w.SetNumRMIDs(2)
	w.want(w.rmdir("mon_groups/b"), nil, "rmdir")
	w.want(w.mkdir("mon_groups/b"), syscall.ENOSPC, "the third RMID is gone")
	w.SetNumRMIDs(4)
	w.want(w.mkdir("mon_groups/b"), nil, "mkdir")
	w.want(w.mkdir("mon_groups/c"), nil, "mkdir")
	w.want(w.mkdir("mon_groups/d"), syscall.ENOSPC, "four are used")
}

func TestNoResctrlAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.Monitoring, c.Allocation = false, false })
	_, err := w.Root()
	w.want(err, syscall.ENOENT, "root")
	w.want(w.Mount(), syscall.ENODEV, "mount")
}

func TestStatusIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *sim.Config) { c.NumRMIDs = 1 })
	for range 100 {
		w.want(w.mkdir("mon_groups/m"), syscall.ENOSPC, "mkdir")
	}
	if got := strings.Count(w.read("info/last_cmd_status"), "\n"); got != 39 { // of 512 bytes
		t.Fatalf("%d messages", got)
	}
}
