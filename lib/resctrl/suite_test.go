package resctrl_test

import (
	"os"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(envHelper); mode != "" {
		helperMain(mode)
		return
	}
	os.Exit(m.Run())
}

// needs says where a case makes sense.
type needs int

const (
	everywhere  needs = iota
	controls          // the CPU has allocation, so that there are control groups
	kernelOnly        // real processes or mounts
	noMonitor         // a CPU with allocation only
	anyMonitor        // a CPU with or without monitoring
	simOnly           // faults that the kernel does not show at will
	kernelCtrls       // kernelOnly and controls
)

type suiteCase struct {
	name  string
	needs needs
	run   func(*world)
}

func suite() []suiteCase {
	var all []suiteCase
	all = append(all, groupCases()...)
	all = append(all, moveCases()...)
	all = append(all, cleanupCases()...)
	all = append(all, assignCases()...)
	all = append(all, reuseCases()...)
	all = append(all, kernelCases()...)
	return all
}

// fits says whether a case runs on a world with these properties.
func (c suiteCase) fits(kernel, monitoring, allocation bool) bool {
	switch c.needs {
	case controls:
		return monitoring && allocation
	case kernelOnly:
		return kernel && monitoring
	case kernelCtrls:
		return kernel && monitoring && allocation
	case noMonitor:
		return !monitoring
	case anyMonitor:
		return true
	case simOnly:
		return !kernel && monitoring
	default:
		return monitoring
	}
}

// TestSimulator runs the suite on the simulator: membership from the simulated
// /proc and from tasks files, as on Linux 6.12 and 6.1, with less of a CPU.
func TestSimulator(t *testing.T) {
	t.Parallel()
	worlds := []struct {
		name      string
		simulated bool
		change    func(*sim.Config)
	}{
		{"6.12", false, func(*sim.Config) {}},
		{"6.12 by tasks files", true, func(*sim.Config) {}},
		{"6.1", false, kernel61},
		{"6.1 by tasks files", true, kernel61},
		{"monitoring only", false, func(c *sim.Config) { c.Allocation = false }},
		{"monitoring only by tasks files", true, func(c *sim.Config) { c.Allocation = false }},
		{"allocation only", false, func(c *sim.Config) { c.Monitoring = false }},
	}
	for _, world := range worlds {
		cfg := sim.DefaultConfig()
		world.change(&cfg)
		for _, c := range suite() {
			if !c.fits(false, cfg.Monitoring, cfg.Allocation) {
				continue
			}
			t.Run(world.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				w := simWorld(t, world.simulated, world.change)
				c.run(w)
				w.guard.end()
			})
		}
	}
}

// TestFUSE runs it on the simulator's mount.
func TestFUSE(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*sim.Config){"6.12": func(*sim.Config) {}, "6.1": kernel61} {
		for _, c := range suite() {
			if !c.fits(false, true, true) {
				continue
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				w := fuseWorld(t, change)
				c.run(w)
				w.guard.end()
			})
		}
	}
}

func kernel61(c *sim.Config) { c.Kernel61, c.Limbo = true, 0 }

// TestKernel runs the suite on this machine's resctrl.
func TestKernel(t *testing.T) {
	kernelSuite(t, suite(), false)
}

// TestKernelTasksFiles runs the cases that ask for a task's group as on a kernel
// without CONFIG_PROC_CPU_RESCTRL.
func TestKernelTasksFiles(t *testing.T) {
	kernelSuite(t, append(assignCases(), reuseCases()...), true)
}

func kernelSuite(t *testing.T, cases []suiteCase, noProc bool) {
	if os.Getenv(envKernel) == "" {
		t.Skipf("%s is not set: not run on this machine's own resctrl", envKernel)
	}
	monitoring := dirThere(kernelRoot + "/mon_groups")
	allocation := dirThere(kernelRoot+"/info/L3") || dirThere(kernelRoot+"/info/MB")
	for _, c := range cases {
		if !c.fits(true, monitoring, allocation) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w := kernelWorld(t)
			w.guard.noProc = noProc
			c.run(w)
			w.guard.end()
		})
	}
}

func dirThere(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
