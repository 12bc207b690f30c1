package pipeline

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// kills is how often each daemon is killed.
const kills = 20

// TestApplierKilled: kill -9, each time with a record in flight: after the row
// that names the group and before the commit of its outcome, in the mkdir,
// after it, between table and log, or just when it happens.
func TestApplierKilled(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), with("watcher.start_barrier", `"10ms"`))
	stays := n.pod("stays")
	n.container(stays, "app")
	n.last("stays", "Exists 1/1")
	for i := range kills {
		uid := fmt.Sprintf("u%d", i)
		n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Path: uid, Delay: 20 * time.Millisecond})
		box := n.pod(uid)
		switch i % 5 {
		case 0:
			n.until("the group's row is there", n.hasRow("SELECT count(*) FROM pods WHERE pod_uid = ?", uid))
		case 1:
			n.until("the group is there", func() error { return syscall.Access(n.GroupPath(uid), 0) })
		case 2:
			n.until("its event is in the table", n.hasRow("SELECT count(*) FROM events WHERE pod_uid = ?", uid))
		case 3:
			n.container(box, "app")
		case 4: // at once
			n.container(stays, uid)
		}
		n.Applier.Kill()
		n.Mount.Faults.Clear()
		if i%2 == 1 {
			n.must(n.Runtime.RemovePod(box)) // while nobody looks
		}
		n.startApplier()
		if i%3 == 0 {
			n.snapshots(1)
		}
	}
	n.settle()
	n.last("stays", fmt.Sprintf("Exists %d/%d", 1+kills/5, 1+kills/5))
	want := fmt.Sprint(1 + kills/2)
	if got := n.value("SELECT count(*) FROM pods WHERE NOT removing AND group_state = 'Exists' AND total_containers = reconciled_containers"); got != want {
		t.Errorf("%s pods are whole, want %s", got, want)
	}
}

func (n *node) hasRow(query string, args ...any) func() error {
	return func() error {
		if got, err := n.Value(query, args...); err != nil || got == "0" {
			return fmt.Errorf("%q, %v", got, err)
		}
		return nil
	}
}

// TestWatcherKilled: kill -9, each time with records in the pipe that the
// stopped applier has not read, or with the runtime in the middle of telling.
func TestWatcherKilled(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), with("watcher.start_barrier", `"10ms"`))
	stays := n.pod("stays")
	for i := range kills {
		uid := fmt.Sprintf("u%d", i)
		paused := i%2 == 0
		if paused {
			n.Applier.Pause()
		}
		told := make(chan error, 1)
		go func() { told <- n.liveOnePod(uid, i%4 < 2) }()
		c := n.create(stays, uid)
		n.Watcher.Kill()
		n.must(<-told)
		n.must(n.Runtime.StartContainer(c))
		if paused {
			n.Applier.Resume()
		}
		n.startWatcher()
		if i%3 == 0 {
			n.logged(n.Watcher, "synchronized with the runtime", 1)
		}
	}
	n.logged(n.Watcher, "synchronized with the runtime", 1)
	n.settle()
	n.last("stays", fmt.Sprintf("Exists %d/%d", kills, kills))
	if got := n.value("SELECT count(*) FROM pods WHERE NOT removing"); got != fmt.Sprint(1+kills/2) {
		t.Errorf("%s pods", got)
	}
}

// liveOnePod runs a pod with a container, and removes it again if it shall end.
func (n *node) liveOnePod(uid string, ends bool) error {
	id, err := n.Runtime.RunPod("pod-"+uid, "ns", uid, nopts)
	if err != nil || !ends {
		return err
	}
	return n.Runtime.RemovePod(id)
}

// TestBothKilled: both at once, with pods coming and going, and the job beside.
func TestBothKilled(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), rmids(6), with("watcher.start_barrier", `"10ms"`))
	var boxes []string
	for i := range 6 {
		id := n.pod(fmt.Sprintf("u%d", i))
		n.container(id, "app")
		boxes = append(boxes, id)
		if _, err := n.Retry(); err != nil {
			t.Fatal(err)
		}
		n.Watcher.Kill()
		n.Applier.Kill()
		if i%2 == 1 {
			n.must(n.Runtime.RemovePod(boxes[i/2]))
		}
		n.startWatcher()
		n.startApplier()
	}
	n.snapshots(1)
	n.settle()
	n.until("the job finds nothing to do", func() error {
		r, err := n.Retry()
		if err == nil && r.Code != 0 {
			err = fmt.Errorf("exit code %d: %s", r.Code, r.Err)
		}
		return err
	})
	n.settle()
}

// TestStoppedInPeace: SIGTERM in the middle of work loses nothing either, and
// is no failure.
func TestStoppedInPeace(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo())
	for i := range 4 {
		uid := fmt.Sprintf("u%d", i)
		n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Path: uid, Delay: 20 * time.Millisecond})
		n.pod(uid)
		var d *world.Daemon
		if i%2 == 0 {
			d = n.Applier
		} else {
			d = n.Watcher
		}
		n.stop(d)
		if i%2 == 0 {
			n.startApplier()
			n.snapshots(1)
		} else {
			n.startWatcher()
			n.logged(n.Watcher, "synchronized with the runtime", 1)
		}
	}
	n.snapshots(1)
	n.settle()
}
