package attribution_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

// TestOthers: whatever others on the node do is healed by the next sweep at the
// latest, the events tell the truth meanwhile, and nothing of theirs is touched.
func TestOthers(t *testing.T) {
	runCases(t, []oneCase{
		{"a group that somebody removed is made and filled again", caseRemoved},
		{"a group that somebody emptied is filled again", caseEmptied},
		{"tasks that somebody moved to a group of theirs come back", caseMovedElsewhere},
		{"an administrator can unmount resctrl and mount it again", caseRemount},
		{"somebody takes all RMIDs", caseExhausted},
		{"somebody holds the lock for ten seconds", caseLockHeld},
		{"nothing is changed without the lock", caseLockAsked},
		{"nothing is changed while somebody has the lock, time and again", caseLockContended},
	})
}

// neighbours are groups of other tools, each with a process in it. Some have our
// prefix, and are theirs by where they are.
type neighbours struct {
	w      *world
	groups map[string]int // path to a task's id
	inodes map[string]uint64
}

func (w *world) neighbours() *neighbours {
	w.Helper()
	n := &neighbours{w: w, groups: map[string]int{}, inodes: map[string]uint64{}}
	for _, name := range []string{"tool", "pod_tool", "tool/mon_groups/job", "tool/mon_groups/" + attribution.Theirs, "mon_groups/agent"} {
		path := filepath.Join(attribution.Root, name)
		w.must(attribution.Make(path))
		p := w.Start("")
		ctrl, _, _ := strings.Cut(path, "/mon_groups/") // into the control group first
		w.must(attribution.Put(ctrl, p.PID))
		w.must(attribution.Put(path, p.PID))
		n.groups[path], n.inodes[path] = p.PID, inode(path)
	}
	return n
}

// untouched wants them as they were.
func (n *neighbours) untouched() {
	n.w.Helper()
	for path, tid := range n.groups {
		if inode(path) != n.inodes[path] {
			n.w.Errorf("%s is not what it was", path)
		}
		want := attribution.GroupName(path)
		if got := attribution.GroupOf(tid); got != want {
			n.w.Errorf("the task of %s is in %q", path, got)
		}
	}
}

func caseRemoved(w *world) {
	others := w.neighbours()
	w.StartApplier()
	pod, c := w.Serve("removed")
	c.Init.Do("threads 5")
	w.Settled()
	events, ino := len(w.Events()), inode(pod.Group)
	w.must(unix.Rmdir(pod.Group))
	w.Sweep()
	w.WantIn(pod.Group, c)
	if inode(pod.Group) == ino {
		w.Errorf("the group is the one that was removed")
	}
	w.Settled()
	if got := w.History(pod.UID, events); got != "Exists 1/1" {
		w.Errorf("told was %q", got)
	}
	// Found by an event of the pod, no sweep is needed.
	w.must(unix.Rmdir(pod.Group))
	second := pod.Create()
	second.Start().Wait()
	w.WantIn(pod.Group, c, second)
	w.Settled()
	others.untouched()
}

func caseEmptied(w *world) {
	others := w.neighbours()
	w.StartApplier()
	pod, c := w.Serve("emptied")
	c.Init.Do("threads 5")
	w.Settled()
	events := len(w.Events())
	w.give(attribution.Root, c)
	w.Sweep()
	w.WantIn(pod.Group, c)
	w.Settled()
	if got := w.History(pod.UID, events); got != "" {
		w.Errorf("told was %q", got)
	}
	others.untouched()
}

func caseMovedElsewhere(w *world) {
	others := w.neighbours()
	w.StartApplier()
	pod, c := w.Serve("moved")
	c.Init.Do("threads 5")
	w.give(attribution.Root+"/mon_groups/agent", c)
	w.Sweep()
	w.WantIn(pod.Group, c)
	// To a control group: the pod's group follows its tasks, and leaves the
	// schemata that the other tool wants for them.
	w.give(attribution.Root+"/tool", c)
	w.give(attribution.Root+"/tool/mon_groups/job", c)
	w.Sweep()
	w.WantIn(groupIn("tool", pod.UID), c)
	w.give(attribution.Root, c)
	w.Sweep()
	w.WantIn(pod.Group, c)
	c.WantState("Reconciled")
	w.Settled()
	others.untouched()
}

// unmount unmounts resctrl, and says how often it was busy.
func (w *world) unmount() (busy int) {
	w.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := unix.Unmount(attribution.Root, 0)
		if err == nil {
			return busy
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			w.Fatalf("umount: %v, %d times busy", err, busy)
		}
		busy++
	}
}

func (w *world) mount() {
	w.Helper()
	w.must(unix.Mount("resctrl", attribution.Root, "resctrl", 0, ""))
}

func caseRemount(w *world) {
	w.StartApplier()
	pod, c := w.Serve("remount")
	w.Settled()
	if busy := w.unmount(); busy > 0 {
		w.Errorf("umount was busy %d times with an idle applier", busy)
	}
	events := len(w.Events())
	w.Retry()
	w.Settled()
	if got := w.History(pod.UID, events); got != "Failed not_mounted 1/0" {
		w.Errorf("after umount and a sweep, told was %q", got)
	}
	late, lateC := w.lateStart("late")
	if attribution.Mounted() {
		w.Fatal("somebody mounted it again; that is the administrator's")
	}
	w.mount()
	w.Sweep()
	w.WantIn(pod.Group, c)
	w.WantIn(late.Group, lateC)
	w.Settled()

	// Mounted again before anybody looked: the groups are gone all the same.
	events = len(w.Events())
	w.unmount()
	w.mount()
	w.Sweep()
	w.WantIn(pod.Group, c)
	w.WantIn(late.Group, lateC)
	w.Settled()
	if got := w.History(pod.UID, events); got != "Exists 1/1" {
		w.Errorf("after a remount and a sweep, told was %q", got)
	}
	w.underLoad()
	w.mount()
	w.Sweep()
	w.Sweep() // containers that were started meanwhile
	w.WantIn(pod.Group, c)
	w.Settled()
}

// lateStart is a pod that starts without resctrl.
func (w *world) lateStart(name string) (*attribution.Pod, *attribution.Container) {
	w.Helper()
	pod, _ := w.RunPod(name)
	c := pod.Create()
	c.Start().Wait()
	c.WantState("Partial not_mounted")
	return pod, c
}

// underLoad unmounts while applier and job are at work all the time.
func (w *world) underLoad() {
	w.Helper()
	pod, _ := w.RunPod("load")
	c := pod.Create()
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Add(1)
	go func() {
		defer work.Done()
		for {
			select {
			case <-stop:
				return
			default:
				c.Start().Wait()
			}
		}
	}()
	w.Until("the applier is at work", func() error {
		if in, all := attribution.Share(c.Cgroup, pod.Group); in < all || all == 0 {
			return fmt.Errorf("%d of %d", in, all)
		}
		return nil
	})
	begin := time.Now()
	busy := w.unmount()
	close(stop)
	work.Wait()
	w.Logf("umount with an applier at work: done in %v, busy %d times", time.Since(begin).Round(time.Millisecond), busy)
}

// hog takes every RMID for groups of another tool.
func (w *world) hog() []string {
	w.Helper()
	var all []string
	for {
		path := fmt.Sprintf("%s/mon_groups/hog%d", attribution.Root, len(all))
		err := attribution.Make(path)
		if errors.Is(err, unix.ENOSPC) {
			return all
		}
		w.must(err)
		all = append(all, path)
	}
}

func caseExhausted(w *world) {
	others := w.neighbours()
	w.StartApplier()
	pod, c := w.Serve("served")
	hogs := w.hog()
	w.Settled()
	events := len(w.Events())
	late, _ := w.RunPod("late")
	lateC := late.Create()
	lateC.Start().Wait()
	w.Settled()
	if got := w.History(late.UID, events); got != "Failed capacity 0/0, Failed capacity 1/0" {
		w.Errorf("without an RMID, told was %q", got)
	}
	// Its group goes, and its RMID to the other tool.
	w.must(unix.Rmdir(pod.Group))
	w.must(attribution.Make(attribution.Root + "/mon_groups/thief"))
	w.Retry()
	w.Settled()
	if got := w.History(pod.UID, events); got != "Failed capacity 1/0" {
		w.Errorf("a group that is gone and has no RMID: told was %q", got)
	}
	for _, path := range slices.Concat(hogs[:1], []string{attribution.Root + "/mon_groups/thief"}) {
		w.must(unix.Rmdir(path))
	}
	w.Until("both pods are served", func() error {
		if job := w.Retry(); job.Code != 0 {
			return fmt.Errorf("resctrl-retry ended with %d", job.Code)
		}
		return nil
	})
	w.WantIn(pod.Group, c)
	w.WantIn(late.Group, lateC)
	w.Settled()
	for _, path := range hogs[1:] {
		if inode(path) == 0 {
			w.Errorf("%s is gone", path)
		}
	}
	others.untouched()
}
