//go:build faults

package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// life is a pod that a script has running, and its containers: whether each
// still runs.
type life struct {
	box, uid   string
	containers map[string]bool
}

// script is somebody who keeps the node busy.
type script struct {
	w      *world.World
	r      *rand.Rand
	name   string
	serial int
	lives  []*life
}

// most is how many pods a script has at a time.
const most = 5

// killPatience is for a snapshot and some passes of the job on a machine that
// does much else.
const killPatience = 5 * time.Minute

// act does one of what happens on a node.
func (s *script) act() error {
	dice := s.r.IntN(12)
	if len(s.lives) == 0 || dice < 4 && len(s.lives) < most {
		return s.come()
	}
	l := s.lives[s.r.IntN(len(s.lives))]
	switch {
	case dice < 6 && len(l.containers) < 3:
		return s.start(l)
	case dice < 7:
		return s.leave(l)
	}
	for id, runs := range l.containers {
		switch {
		case dice < 9:
			delete(l.containers, id)
			return s.w.Runtime.RemoveContainer(id)
		case !runs:
			continue
		case dice < 10:
			l.containers[id] = false
			return s.w.Runtime.StopContainer(id)
		case dice < 11:
			_, err := s.w.Runtime.Exec(s.w.Context(), id, "sleep")
			return err
		}
		return s.w.Runtime.Update(id)
	}
	return s.leave(l)
}

func (s *script) come() error {
	s.serial++
	l := &life{uid: fmt.Sprintf("%s%d", s.name, s.serial), containers: map[string]bool{}}
	var err error
	if l.box, err = s.w.Runtime.RunPod("pod-"+l.uid, "ns", l.uid, nrirt.PodOptions{}); err != nil {
		return err
	}
	s.lives = append(s.lives, l)
	return s.start(l)
}

func (s *script) start(l *life) error {
	s.serial++
	id, err := s.w.Runtime.CreateContainer(l.box, fmt.Sprint("c", s.serial), nrirt.ContainerOptions{Workload: []string{"threads", "2"}})
	if err != nil {
		return err
	}
	l.containers[id] = true
	return s.w.Runtime.StartContainer(id)
}

func (s *script) leave(l *life) error {
	parent, err := s.w.Runtime.PodCgroup(l.box)
	if err != nil {
		return err
	}
	for i := range s.lives {
		if s.lives[i] == l {
			s.lives = append(s.lives[:i], s.lives[i+1:]...)
			break
		}
	}
	return errors.Join(s.w.Runtime.RemovePod(l.box), s.w.Runtime.RemovePodCgroup(parent))
}

// killing is a node whose programs are killed again and again.
type killing struct {
	*world.World
	r       *rand.Rand
	scripts []*script
	kills   map[string]int
	rotated []string // the log's earlier files, the oldest first
}

func newKilling(t *testing.T, seed uint64) *killing {
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs, cfg.Limbo = 8, 0 // fewer than there are pods, at times
	w, err := world.New(shop, world.Options{Sim: &cfg, Config: map[string]string{
		"watcher.start_barrier": `"10ms"`, "retry.vanished_after": `"1h"`, // what has ended is found by snapshots alone
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	k := &killing{World: w, r: dice(seed, "kills"), kills: map[string]int{}}
	for _, name := range []string{"a", "b"} {
		k.scripts = append(k.scripts, &script{w: w, name: name, r: dice(seed, "script "+name)})
	}
	return k
}

// ensure starts what does not run.
func (k *killing) ensure() error {
	var errs []error
	if k.Applier == nil || !k.Applier.Alive() {
		_, err := k.StartApplier()
		errs = append(errs, err)
	}
	if k.Watcher == nil || !k.Watcher.Alive() {
		_, err := k.StartWatcher()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pause is a moment of the dice.
func (k *killing) pause() { time.Sleep(time.Duration(k.r.IntN(40_000)) * time.Microsecond) }

// round kills each program once, at some moment of a busy time, in any order;
// afterwards everything must be as it really is.
func (k *killing) round() error {
	if err := k.ensure(); err != nil {
		return err
	}
	job, err := k.Start(world.RetryProgram)
	if err != nil {
		return err
	}
	errs := make([]error, len(k.scripts))
	var wg sync.WaitGroup
	for i, s := range k.scripts {
		wg.Go(func() {
			for range 4 {
				errs[i] = errors.Join(errs[i], s.act())
			}
		})
	}
	victims := []*world.Daemon{k.Watcher, k.Applier, job}
	k.r.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, d := range victims {
		k.pause()
		if d.Kill(); d.Signaled() {
			k.kills[d.Name]++
		}
		if k.r.IntN(2) == 0 {
			err = errors.Join(err, k.ensure())
		}
	}
	if k.r.IntN(10) == 0 {
		err = errors.Join(err, k.rotate())
	}
	wg.Wait()
	if err = errors.Join(append(errs, err, k.ensure())...); err != nil {
		return err
	}
	return world.UntilWithin(killPatience, "the programs are where the node is", func() error {
		err := k.judge()
		if err != nil {
			if r, rerr := k.Retry(); rerr != nil || r.Code != 0 && r.Code != 75 {
				return fmt.Errorf("%w; the job: %d, %v, %s", err, r.Code, rerr, r.Err)
			}
		}
		return err
	})
}

// rotate renames the log while everybody writes.
func (k *killing) rotate() error {
	to := fmt.Sprintf("%s.%d", k.EventLog(), len(k.rotated)+1)
	if err := os.Rename(k.EventLog(), to); err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	k.rotated = append(k.rotated, to)
	return nil
}

// judge: the witnesses agree with each other and with the scripts' own notes.
func (k *killing) judge() error {
	if err := k.Agree(append(k.rotated[:len(k.rotated):len(k.rotated)], k.EventLog())...); err != nil {
		return err
	}
	rows, err := k.Query("SELECT pod_uid, group_state, total_containers, reconciled_containers FROM pods")
	if err != nil {
		return err
	}
	lives := map[string]*life{}
	for _, s := range k.scripts {
		for _, l := range s.lives {
			lives[l.uid] = l
		}
	}
	if len(rows) != len(lives) {
		return fmt.Errorf("%d pods are known, %d live", len(rows), len(lives))
	}
	free, _, _ := k.Model.RMIDs()
	for _, row := range rows {
		l := lives[row[0]]
		if l == nil {
			return fmt.Errorf("pod %s has ended", row[0])
		}
		running := 0
		for _, runs := range l.containers {
			if runs {
				running++
			}
		}
		total, _ := strconv.Atoi(row[2])
		reconciled, _ := strconv.Atoi(row[3])
		switch {
		case total < running || total > len(l.containers): // an exited one is not told to a watcher that comes later
			return fmt.Errorf("pod %s has %d containers, %d of them run, not %d", l.uid, len(l.containers), running, total)
		case row[1] == "Exists" && reconciled < running, row[1] == "Failed" && reconciled > 0:
			return fmt.Errorf("pod %s is %s, %d containers run, %d are reconciled", l.uid, row[1], running, reconciled)
		case row[1] == "Failed" && free > 0:
			return fmt.Errorf("pod %s is Failed, and %d RMIDs are free", l.uid, free)
		}
	}
	return nil
}

// TestRandomKills: each program is killed at any moment of a busy node.
func TestRandomKills(t *testing.T) {
	want := 50
	if long {
		want = 1000
	}
	for i, seed := range seeds {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			k := newKilling(t, seed)
			kills, rounds := 0, 0
			for ; kills < want; rounds++ {
				if err := k.round(); err != nil {
					t.Fatalf("seed %d, round %d: %v\n%s\n%s", seed, rounds, err, k.Applier.Log(), k.Watcher.Log())
				}
				kills = k.kills[world.WatcherProgram] + k.kills[world.ApplierProgram] + k.kills[world.RetryProgram]
			}
			events, err := k.Value("SELECT max(seq) FROM events")
			t.Logf("seed %d: %d rounds, kills %v, %s events, %d rotations, %v", seed, rounds, k.kills, events, len(k.rotated), err)
			for _, program := range []string{world.WatcherProgram, world.ApplierProgram, world.RetryProgram} {
				if k.kills[program] < want/8 {
					t.Errorf("%s was killed %d times only", program, k.kills[program])
				}
			}
		})
	}
}
