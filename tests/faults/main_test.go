//go:build faults

// Package faults runs the unchanged programs under every fault that can be
// made from outside: `make test-faults`, LONG=1 for all of it. SEED repeats
// the random part of a run. Judges and workloads import nothing of lib/ or
// state/.
package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

var (
	shop *world.Workshop // the programs, built once
	long = os.Getenv("LONG") == "1"
	// seeds: a fixed one, and one that is another every time.
	seeds = []uint64{1, uint64(time.Now().UnixNano()) % 1_000_000}
)

func TestMain(m *testing.M) {
	tracer.RunIfAsked()
	nrirt.RunWorkload()
	if os.Geteuid() == 0 && os.Getenv(apart) == "" {
		os.Exit(goApart())
	}
	nrirt.SilenceNRI()
	if n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seeds[1] = n
	}
	fmt.Printf("seeds %d and %d (SEED=%d repeats the second), LONG=%v\n", seeds[0], seeds[1], seeds[1], long)
	os.Exit(runAll(m))
}

// apart is set in the process that has a mount namespace of its own.
const apart = "FAULTS_APART"

// goApart runs the tests in a mount namespace of their own: small disks are
// mounted in it, and nobody else's namespace keeps what we unmount.
func goApart() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), apart+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	runtime.LockOSThread() // a parent's death is that of its thread
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "a mount namespace:", err)
		return 1
	}
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 1
}

func runAll(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if shop, err = world.NewWorkshop(false); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	disarm := context.AfterFunc(ctx, func() {
		shop.Close()
		os.Exit(130)
	})
	code := m.Run()
	disarm()
	if err := shop.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// dice are the dice of one seed and one use of it.
func dice(seed uint64, use string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, c := range []byte(use) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}
