package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// rmids is how many RMIDs the simulated CPU has: the root group holds one,
// the others are for five pods.
const rmids = 6

// story is the story as it is being played.
type story struct {
	options
	ctx  context.Context
	w    *world.World
	show *screen

	shown    int // events that were shown
	failures int
	pods     map[string]string // sandbox ids by name
	boxes    map[string]string // container ids by pod/container
}

// play plays all steps. Its errors are those of the stage: what does not go as
// it should is shown and counted.
func (s *story) play() error {
	s.pods, s.boxes = map[string]string{}, map[string]string{}
	for _, step := range []func() error{
		s.before, s.start, s.arrive, s.stray, s.exhaust, s.waiting, s.served, s.killed, s.end,
	} {
		if err := step(); err != nil {
			return err
		}
		if err := s.pause(); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) pause() error {
	select {
	case <-time.After(s.pace):
		return s.ctx.Err()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// before: a pod that was there first.
func (s *story) before() error {
	s.show.title("A node before us")
	s.show.note(fmt.Sprintf("A simulated CPU with %d RMIDs (the root group has one), a runtime that speaks NRI, real", rmids))
	s.show.note("processes; all of it in DIR, which is " + s.w.Dir)
	s.show.done(`the runtime runs pod shop/orders; its container "db" has 50 threads`)
	if err := s.pod("orders"); err != nil {
		return err
	}
	if err := s.container("orders", "db", "threads", "50"); err != nil {
		return err
	}
	s.membership("orders/db", "orders")
	return nil
}

// start: the daemons find it.
func (s *story) start() error {
	s.show.title("The daemons start, and find the pod with every thread of it")
	if err := s.startApplier(); err != nil {
		return err
	}
	if s.without != world.WatcherProgram {
		s.show.done("nri-watcher starts, and synchronizes with the runtime")
		if _, err := s.w.StartWatcher(); err != nil {
			return err
		}
	}
	s.expect("orders", "Exists 0/0, Exists 1/1")
	s.events()
	s.membership("orders/db", "orders")
	return nil
}

func (s *story) startApplier() error {
	if s.without == world.ApplierProgram {
		return nil
	}
	s.show.done("resctrl-applier starts")
	_, err := s.w.StartApplier()
	return err
}

// arrive: a pod comes while they run.
func (s *story) arrive() error {
	s.show.title("A pod with two containers comes")
	s.show.done(`the runtime runs pod shop/web and starts its containers "app" and "proxy"`)
	if err := s.pod("web"); err != nil {
		return err
	}
	for _, c := range []string{"app", "proxy"} {
		if err := s.container("web", c, "forks", "2"); err != nil {
			return err
		}
	}
	s.expect("web", "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2")
	s.events()
	s.show.note("Each first process was in its group before it ran its program, so all that it starts is, too.")
	s.membership("web/app", "web")
	return nil
}

// stray: no event tells of an exec.
func (s *story) stray() error {
	s.show.title(`Somebody runs "kubectl exec": a process outside of the group, and no event tells of it`)
	s.show.done("the runtime executes a process in web/app")
	if _, err := s.w.Runtime.Exec(s.ctx, s.boxes["web/app"], "sleep"); err != nil {
		return err
	}
	s.membership("web/app", "web")
	s.retry(0)
	s.check("the stray is in the group", func() error { return s.complete("web/app", "web") })
	s.events()
	s.membership("web/app", "web")
	return nil
}

// exhaust: more pods than RMIDs.
func (s *story) exhaust() error {
	s.show.title("RMIDs run out")
	s.show.done("the runtime runs pods cart, search, mail - and then batch, with one container")
	for _, name := range []string{"cart", "search", "mail", "batch"} {
		if err := s.pod(name); err != nil {
			return err
		}
	}
	if err := s.container("batch", "job", "sleep"); err != nil {
		return err
	}
	s.expect("mail", "Exists 0/0")
	s.expect("batch", "Failed capacity 0/0, Failed capacity 1/0")
	s.events()
	s.show.note("The container runs all the same: it waits for nothing but a group.")
	return nil
}

// waiting: the job cannot help yet.
func (s *story) waiting() error {
	s.show.title("The retry job finds no RMID either")
	s.retry(75)
	s.expect("batch", "Failed capacity 0/0, Failed capacity 1/0")
	s.events()
	return nil
}

// served: a pod leaves, and its RMID can be used after a while.
func (s *story) served() error {
	s.show.title("A pod leaves; the retry job serves the one that waits")
	s.show.done("the runtime removes pod shop/mail")
	if err := s.w.Runtime.RemovePod(s.pods["mail"]); err != nil {
		return err
	}
	s.expect("mail", "Exists 0/0, Removed")
	s.events()
	s.retry(75)
	s.show.note("A freed RMID is in limbo for a second: the kernel says EBUSY, and the pod waits on.")
	var last world.Result
	s.check("the retry job serves the pod", func() (err error) {
		if last, err = s.w.Retry(); err == nil && last.Code != 0 {
			err = fmt.Errorf("exit code %d: %s", last.Code, last.Err)
		}
		return err
	})
	s.show.done(fmt.Sprintf("resctrl-retry, run again, as its timer does: exit code %d", last.Code))
	s.expect("batch", "Failed capacity 0/0, Failed capacity 1/0, Exists 1/0, Exists 1/1")
	s.events()
	return nil
}

// killed: nothing is lost with the applier.
func (s *story) killed() error {
	s.show.title("The applier is killed, life goes on, it comes back")
	before, err := s.counters()
	if err != nil && s.failures == 0 {
		return err
	}
	if s.without != world.ApplierProgram {
		s.show.done("kill -9 resctrl-applier")
		s.w.Applier.Kill()
	}
	s.show.done("meanwhile the runtime removes pod shop/search, and the kubelet restarts web/proxy")
	if err := s.w.Runtime.RemovePod(s.pods["search"]); err != nil {
		return err
	}
	if err := s.w.Runtime.RemoveContainer(s.boxes["web/proxy"]); err != nil {
		return err
	}
	if err := s.container("web", "proxy", "forks", "2"); err != nil {
		return err
	}
	if err := s.startApplier(); err != nil {
		return err
	}
	s.expect("search", "Exists 0/0, Removed")
	s.check("event log, state and simulator agree", func() error { return s.w.Agree() })
	s.check("web has its two containers again", func() error { return s.lastOf("web", "Exists 2/2") })
	s.events()
	after, err := s.counters()
	if err != nil && s.failures == 0 {
		return err
	}
	delete(before, "search")
	s.check("no counter was lost", func() error { return sameCounters(before, after) })
	return nil
}

// end: what a person looks at.
func (s *story) end() error {
	s.show.title("What there is now")
	s.command("resctrlctl status", func() (world.Result, error) { return s.w.Ctl("status") })
	s.command("resctrlctl pods", func() (world.Result, error) { return s.w.Ctl("pods") })
	query := "SELECT name, group_state, total_containers AS known, reconciled_containers AS reconciled FROM pods ORDER BY name"
	s.show.done(fmt.Sprintf("sqlite3 -readonly -box DIR/lib/state.db '%s'", query))
	if err := s.query(query); err != nil {
		s.fail("query the state", err)
	}
	s.show.line("")
	s.show.line(s.show.paint(bold, "What to do next"))
	s.show.line(`   make build         builds the programs into bin/; conf/ and systemd/ have what a node installs
   make test          runs every test that needs no virtual machine
   make test-node     the programs under systemd and containerd, on a kernel with resctrl
   README.md          how to install, what the events mean, queries to type into sqlite3`)
	return nil
}

// command shows a program's output.
func (s *story) command(text string, run func() (world.Result, error)) {
	s.show.done(text)
	r, err := run()
	if err == nil && r.Code != 0 && s.failures == 0 {
		err = fmt.Errorf("exit code %d: %s", r.Code, r.Err)
	}
	if err != nil {
		s.fail(text, err)
	}
	s.show.text(r.Out)
}

// query asks the state with sqlite3, or without where it is not installed.
func (s *story) query(query string) error {
	if _, err := exec.LookPath("sqlite3"); err == nil {
		out, err := exec.CommandContext(s.ctx, "sqlite3", "-readonly", "-box", s.w.Database(), query).CombinedOutput()
		s.show.text(string(out))
		return err
	}
	s.show.note("(sqlite3 is not installed: sudo apt-get install sqlite3; this is what it would print)")
	rows, err := s.w.Query(query)
	for _, r := range rows {
		s.show.text(strings.Join(r, "|"))
	}
	return err
}

// pod runs a pod in the namespace shop; its UID is its name with a tail.
func (s *story) pod(name string) (err error) {
	s.pods[name], err = s.w.Runtime.RunPod(name, "shop", uid(name), nrirt.PodOptions{Pause: true})
	return err
}

// uid makes a pod's UID out of its name, so that the reader knows it again.
func uid(name string) string { return "0b5c7ae1-" + name }

func (s *story) container(pod, name string, workload ...string) (err error) {
	id, err := s.w.Runtime.CreateContainer(s.pods[pod], name, nrirt.ContainerOptions{Workload: workload})
	if err != nil {
		return err
	}
	s.boxes[pod+"/"+name] = id
	return errors.Join(s.w.Runtime.StartContainer(id), s.w.Runtime.Ready(s.ctx, id))
}

// counters are each pod's, as the state has them.
func (s *story) counters() (map[string]string, error) {
	rows, err := s.w.Query("SELECT name, total_containers || '/' || reconciled_containers FROM pods WHERE NOT removing")
	all := map[string]string{}
	for _, r := range rows {
		all[r[0]] = r[1]
	}
	return all, err
}

func sameCounters(before, after map[string]string) error {
	for name, was := range before {
		if after[name] != was {
			return fmt.Errorf("pod %s had %s and has %q", name, was, after[name])
		}
	}
	return nil
}

// newEvents are those that were not shown yet.
func (s *story) newEvents() ([]world.Event, error) {
	all, err := s.w.Events()
	if err != nil {
		return nil, err
	}
	fresh := slices.Clone(all[min(s.shown, len(all)):])
	s.shown = len(all)
	return fresh, nil
}
