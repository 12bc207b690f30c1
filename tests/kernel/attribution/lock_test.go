package attribution_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/kernel/attribution"
)

// tree is what resctrl is like: every group, and where the tasks are.
func (w *world) tree(containers ...*attribution.Container) string {
	var b strings.Builder
	for _, pattern := range []string{"*", "mon_groups/*", "*/mon_groups/*"} {
		paths, _ := filepath.Glob(filepath.Join(attribution.Root, pattern))
		for _, p := range paths {
			if st, err := os.Stat(p); err == nil && st.IsDir() {
				fmt.Fprintf(&b, "%s %d\n", p, inode(p))
			}
		}
	}
	for _, c := range containers {
		for _, tid := range attribution.TasksBelow(c.Cgroup) {
			fmt.Fprintf(&b, "%d %s\n", tid, attribution.GroupOf(tid))
		}
	}
	return b.String()
}

func caseLockHeld(w *world) {
	w.StartApplier()
	pod, c := w.Serve("before")
	w.Settled()
	events := len(w.Events())
	unlock, err := attribution.Lock()
	w.must(err)
	until := time.Now().Add(10 * time.Second)
	next, _ := w.RunPod("during")
	nextC := next.Create()
	ack := nextC.Start()
	before := w.tree(c, nextC)
	for time.Now().Before(until) {
		if after := w.tree(c, nextC); after != before {
			w.Fatalf("somebody else has the lock, and resctrl was\n%s\nand is\n%s", before, after)
		}
		if ack.Acked() {
			w.Fatal("acknowledged, and nothing could be attempted")
		}
		time.Sleep(20 * time.Millisecond)
	}
	unlock()
	ack.Wait()
	w.WantIn(next.Group, nextC)
	w.WantIn(pod.Group, c)
	w.Settled()
	if got := w.History(next.UID, events); got != "Exists 0/0, Exists 1/0, Exists 1/1" {
		w.Errorf("told was %q", got)
	}
}

// caseLockAsked holds the lock for each kind of change until the program is seen
// to wait for it.
func caseLockAsked(w *world) {
	others := w.neighbours()
	w.StartApplier()
	pod, c := w.Serve("pod")
	var next *attribution.Pod
	var nextC *attribution.Container
	job := func() (wait func()) {
		done := make(chan struct{})
		go func() { defer close(done); w.Retry() }()
		return func() { <-done }
	}
	acked := func(k attribution.Ticket) func() { return k.Wait }
	for _, change := range []struct {
		name   string
		before func()
		do     func() (wait func())
		after  func()
	}{
		{"create", func() {}, func() func() {
			var k attribution.Ticket
			next, k = w.RunPod("next")
			return acked(k)
		}, func() { nextC = next.Create() }},
		{"assign", func() {}, func() func() { return acked(nextC.Start()) }, func() { w.WantIn(next.Group, nextC) }},
		{"sweep a stray", func() { w.give(attribution.Root, c) }, job, func() { w.WantIn(pod.Group, c) }},
		{"make a lost group", func() { w.must(unix.Rmdir(pod.Group)) }, job, func() { w.WantIn(pod.Group, c) }},
		{"move", func() { w.give(attribution.Root+"/tool", c) }, job, func() { w.WantIn(groupIn("tool", pod.UID), c) }},
		{"remove", func() {}, func() func() { return acked(next.Remove()) }, func() { w.wantGone(next.Group) }},
	} {
		change.before()
		unlock, err := attribution.Lock()
		w.must(err)
		before := w.tree(c)
		wait := change.do()
		w.waiting()
		if after := w.tree(c); after != before {
			w.Errorf("%s: without the lock, resctrl was\n%s\nand is\n%s", change.name, before, after)
		}
		unlock()
		wait()
		change.after()
	}
	w.Settled()
	others.untouched()
}

// waiting waits until a program of ours has had the writer's lock for longer than
// any change takes: it waits for resctrl's.
func (w *world) waiting() {
	w.Helper()
	var since time.Time
	w.Until("a program waits for the lock", func() error {
		switch {
		case !w.Writing():
			since = time.Time{}
			return errors.New("none has the writer's lock")
		case since.IsZero():
			since = time.Now()
		}
		if d := time.Since(since); d < 500*time.Millisecond {
			return fmt.Errorf("for %v only", d)
		}
		return nil
	})
}
