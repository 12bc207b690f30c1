package resctrl_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

const (
	errBusy    = unix.EBUSY
	errNoSpace = unix.ENOSPC
)

// simWorld makes a simulated node with 10 RMIDs.
func simWorld(t *testing.T, simulated bool, change func(*sim.Config)) *world {
	const root, proc = "/sys/fs/resctrl", "/sim/proc"
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs = 10
	change(&cfg)
	clock, script := sim.NewManualClock(), longIDs()
	model := sim.New(cfg, clock, script)
	return simWorldOn(t, cfg, model, script, clock, memfs.New(model, root, proc), root, proc, simulated)
}

// fuseWorld is the same, mounted, with the real system calls.
func fuseWorld(t *testing.T, change func(*sim.Config)) *world {
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs = 10
	change(&cfg)
	clock, script := sim.NewManualClock(), longIDs()
	model := sim.New(cfg, clock, script)
	mount, err := fusemount.New(t.TempDir(), fusemount.Options{Model: model, Cgroups: sim.NewCgroups(script), Source: script})
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	t.Cleanup(func() {
		if err := mount.Unmount(); err != nil {
			t.Error(err)
		}
	})
	w := simWorldOn(t, cfg, model, script, clock, resctrl.RealOS(), mount.Resctrl(), mount.Proc(), true)
	w.mounted = func(on bool) {
		if on {
			w.must(model.Mount())
		} else {
			w.must(mount.UnmountResctrl())
		}
	}
	return w
}

// longIDs gives a source whose ids are as long as they get, so that few tasks
// fill a write.
func longIDs() *sim.Script {
	script := sim.NewScript()
	script.Put(sim.Task{TID: 4_000_000, PPID: 1})
	script.Exit(4_000_000)
	return script
}

func simWorldOn(t *testing.T, cfg sim.Config, model *sim.Model, script *sim.Script, clock *sim.ManualClock,
	raw resctrl.OS, root, proc string, simulated bool,
) *world {
	w := &world{
		T: t, root: root, raw: raw, guard: newGuard(t, raw, root),
		v61: cfg.Kernel61, simulated: simulated, rmids: cfg.NumRMIDs,
		tick: func() { clock.Advance(100 * time.Millisecond) },
	}
	w.fs = resctrl.New(resctrl.Options{Root: root, Prefix: prefix, Simulated: simulated, ProcRoot: proc, OS: w.guard})
	w.procs = &scripted{w: w, Script: script}
	w.mounted = func(on bool) {
		if on {
			w.must(model.Mount())
		} else {
			w.must(model.Unmount())
		}
	}
	w.where = func(tid int) text {
		groups, err := model.TaskGroup(tid)
		w.must(err)
		return groupText(groups)
	}
	return w
}

// groupText makes "ctrl|mon" of the text of cpu_resctrl_groups.
func groupText(groups string) text {
	var ctrl, mon string
	for line := range strings.Lines(groups) {
		line = strings.TrimSpace(line)
		if v, ok := strings.CutPrefix(line, "res:"); ok {
			ctrl = strings.Trim(v, "/")
		}
		if v, ok := strings.CutPrefix(line, "mon:"); ok {
			mon = v
		}
	}
	return ctrl + "|" + mon
}

// groupOf is the path of a group's text.
func (w *world) groupOf(t text) string {
	ctrl, mon, _ := strings.Cut(t, "|")
	return w.group(ctrl, mon)
}

// scripted are the simulator's tasks.
type scripted struct {
	w *world
	*sim.Script
}

func (s *scripted) start() int             { return s.Spawn() }
func (s *scripted) clone(pid, n int) []int { return s.CloneN(pid, n) }
func (s *scripted) fork(pid int) int       { return s.Fork(pid) }
func (s *scripted) end(pid int)            { s.Exit(pid) }

func (s *scripted) replace(pid int) {
	s.Exit(pid)
	s.Put(sim.Task{TID: pid, TGID: pid, PPID: 1, Creator: 1})
}

func (s *scripted) zombie(pid int) int {
	child := s.Fork(pid)
	task, _ := s.Task(child)
	task.Zombie = true
	s.Put(task)
	return child
}

func (s *scripted) list(pids ...int) []int {
	var tids []int
	for _, pid := range pids {
		threads, err := s.Threads(pid)
		s.w.must(err)
		for _, t := range threads {
			tids = append(tids, t.TID)
		}
	}
	return tids
}

func (s *scripted) put(pid int, group text) { s.w.put(s.list(pid), group) }
