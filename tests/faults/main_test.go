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
	"os/signal"
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
	nrirt.SilenceNRI()
	if n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seeds[1] = n
	}
	fmt.Printf("seeds %d and %d (SEED=%d repeats the second), LONG=%v\n", seeds[0], seeds[1], seeds[1], long)
	os.Exit(runAll(m))
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
