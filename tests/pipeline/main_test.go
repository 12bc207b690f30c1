// Package pipeline judges the programs from outside: as they are built, on a
// simulated node, by what they leave in the event log, the state and resctrl.
package pipeline

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// shop is where the programs are, built once for all tests.
var shop *world.Workshop

func TestMain(m *testing.M) {
	nrirt.RunWorkload()
	nrirt.SilenceNRI()
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if shop, err = world.NewWorkshop(underRace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shop.Bin = os.Getenv("PROGRAMS") // built elsewhere, for a release say; "" builds them
	// An interrupted test run calls no t.Cleanup.
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
