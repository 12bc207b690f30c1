package kernel_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// envKernel says that this is a guest, whose resctrl may be used.
const envKernel = "NRI_RESCTRL_KERNEL"

func TestMain(m *testing.M) {
	if os.Getenv(envRole) != "" {
		os.Exit(play())
	}
	goleak.VerifyTestMain(m)
}

// oneCase is one fact. Its needs are of the resctrl: it is left out where they
// are not met.
type oneCase struct {
	name  string
	needs need
	run   func(*world)
}

type need int

const (
	anything   need = 0
	monitoring need = 1 << iota
	allocation
	only612
	only61
	twoDomains
	monitoringOnly
	allocationOnly
	manyCPUs
	asRoot     // calls that are checked for who makes them, and root to make them
	errorWords // RMIDs 2 and 3 read Error and Unavailable
	cacheLines // those of a group are evicted slowly
)

func (n need) met(e env) bool {
	for flag, has := range map[need]bool{
		monitoring: e.monitoring, allocation: e.allocation,
		only612: !e.v61, only61: e.v61, twoDomains: e.domains > 1,
		monitoringOnly: !e.allocation, allocationOnly: !e.monitoring,
		manyCPUs: e.cpus > 1, asRoot: e.face != "memory" && os.Geteuid() == 0, errorWords: e.words, cacheLines: e.evicts,
	} {
		if n&flag != 0 && !has {
			return false
		}
	}
	return true
}

func allCases() []oneCase {
	return slices.Concat(layoutCases, exhaustionCases, taskCases, taskErrorCases,
		groupCases, permissionCases, nameCases, readingCases, controlCases, mountCases)
}

// runCase runs one case; a failure that the list of differences expects is
// none, and one that it expects in vain is.
func runCase(t *testing.T, c oneCase, w *world) {
	why, differs := differs(c.name, w.env)
	failed := attempt(c, w)
	switch {
	case failed != "" && !differs:
		t.Fatal(failed)
	case failed == "" && differs:
		t.Fatalf("the list of differences says that this fails (%s), and it does not", why)
	case failed != "":
		t.Logf("known difference: %s: %s", why, failed)
	}
}

func attempt(c oneCase, w *world) (failed string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			failed = string(r)
		default:
			panic(r)
		}
	}()
	c.run(w)
	return ""
}

// simEnvs are the CPUs and kernels that the simulator plays.
func simEnvs() map[string]sim.Config {
	words := sim.DefaultConfig()
	words.ErrorRMID, words.UnavailableRMID = 2, 3
	slow, slow61 := sim.DefaultConfig(), sim.Kernel61Config()
	slow.OccupancyDecay, slow61.OccupancyDecay = 12*time.Second, 12*time.Second
	few, two, mon, alloc := sim.DefaultConfig(), sim.DefaultConfig(), sim.DefaultConfig(), sim.DefaultConfig()
	few.NumRMIDs = 6
	two.L3Domains, two.CPUs = 2, 4
	mon.Allocation = false
	alloc.Monitoring = false
	return map[string]sim.Config{
		"6.12": sim.DefaultConfig(), "few-rmids": few, "two-domains": two,
		"monitoring-only": mon, "allocation-only": alloc, "6.1": sim.Kernel61Config(), "words": words,
		"evicts-slowly": slow, "evicts-slowly-6.1": slow61,
	}
}

func envOf(name, face string, c sim.Config) env {
	return env{
		name: name, face: face, v61: c.Kernel61, monitoring: c.Monitoring, allocation: c.Allocation,
		words: c.ErrorRMID > 0, evicts: c.OccupancyDecay > 0, domains: c.L3Domains, cpus: c.CPUs, rmids: c.NumRMIDs, closids: c.NumCLOSIDs,
	}
}

func runAll(t *testing.T, e env, newWorld func(*testing.T) *world) {
	for _, c := range allCases() {
		if !c.needs.met(e) || (e.words || e.evicts) && c.needs&(errorWords|cacheLines) == 0 {
			continue // such a CPU is for these cases alone
		}
		t.Run(c.name, func(t *testing.T) {
			if e.face != "kernel" {
				t.Parallel()
			}
			runCase(t, c, newWorld(t))
		})
	}
}

func TestMemory(t *testing.T) {
	for name, cfg := range simEnvs() {
		t.Run(name, func(t *testing.T) {
			e := envOf(name, "memory", cfg)
			runAll(t, e, func(t *testing.T) *world { return memoryWorld(t, e, cfg) })
		})
	}
}

func TestFuse(t *testing.T) {
	envs := simEnvs()
	for _, name := range []string{"6.12", "6.1", "monitoring-only"} { // the others differ in the model alone
		cfg := envs[name]
		t.Run(name, func(t *testing.T) {
			e := envOf(name, "fuse", cfg)
			runAll(t, e, func(t *testing.T) *world { return fuseWorld(t, e, cfg) })
		})
	}
}

func TestKernel(t *testing.T) {
	if os.Getenv(envKernel) == "" {
		t.Skip("needs the resctrl of a guest: make test-kernel")
	}
	e := kernelEnv(t)
	t.Logf("%+v", e)
	made := 0
	runAll(t, e, func(t *testing.T) *world { return kernelWorld(t, e, &made) })
}
