package attribution_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// caseLockContended: somebody takes the lock again and again, at any moment, and
// has a look at the beginning and at the end.
func caseLockContended(w *world) {
	w.StartApplier()
	stop, found := make(chan struct{}), make(chan string, 1)
	holds := 0
	go func() {
		defer close(found)
		var what string
		if holds, what = contend(stop); what != "" {
			found <- what
		}
	}()
	end := sync.OnceFunc(func() { close(stop) })
	w.Cleanup(end)
	for i := range 12 {
		pod, _ := w.RunPod(fmt.Sprintf("contended%d", i))
		c := pod.Create()
		c.Init.Do("threads 5")
		c.Start().Wait()
		w.WantIn(pod.Group, c)
		w.give(attribution.Root, c)
		if i%4 == 0 {
			w.Sweep()
			w.WantIn(pod.Group, c)
		}
		pod.Remove().Wait()
	}
	end()
	for what := range found {
		w.Errorf("while somebody else had the lock: %s", what)
	}
	w.Logf("the lock was taken %d times between", holds)
	w.Settled()
}

// contend takes the lock again and again, until something changed while it had it.
// The test itself moves tasks to the root group, and that alone does not count.
func contend(stop chan struct{}) (holds int, what string) {
	for what == "" {
		select {
		case <-stop:
			return holds, ""
		case <-time.After(time.Duration(holds%8) * 500 * time.Microsecond): // others want it too
		}
		dir, err := os.Open(attribution.Root)
		if err != nil {
			return holds, err.Error()
		}
		for unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			continue // at once when it is free
		}
		holds++
		groups, tasks := attribution.OurGroups(), memberships()
		for range 3 {
			if what == "" {
				what = changed(groups, tasks)
			}
		}
		dir.Close()
	}
	return holds, what
}

func memberships() map[int]string {
	groups := map[int]string{}
	for _, tid := range attribution.TasksBelow(filepath.Join(attribution.Cgroups, "kubepods")) {
		groups[tid] = attribution.GroupOf(tid)
	}
	return groups
}

func changed(groups []string, tasks map[int]string) string {
	if now := attribution.OurGroups(); !slices.Equal(now, groups) {
		return fmt.Sprintf("groups were %v, and are %v", groups, now)
	}
	for tid, now := range memberships() {
		if was, ok := tasks[tid]; ok && now != was && now != "" && now != "|" {
			return fmt.Sprintf("task %d was in %q, and is in %q", tid, was, now)
		}
	}
	return ""
}
