// Command demo plays a short story of the whole pipeline for a person who
// watches: the programs as they are built, on a simulated node in a directory
// of its own, with the genuine NRI protocol and real processes. It leaves
// nothing behind. "make demo" runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// options are the demo's flags.
type options struct {
	keep     string
	bin      string
	without  string
	pace     time.Duration
	patience time.Duration
}

func main() {
	nrirt.RunWorkload() // a container's process is this program, too
	nrirt.SilenceNRI()
	var o options
	flag.StringVar(&o.keep, "keep", "", "copy event log, database and the programs' logs to this `DIR` at the end")
	flag.StringVar(&o.bin, "bin", "", "use the programs in this `DIR`, do not build them")
	flag.StringVar(&o.without, "without", "", "leave out a program, nri-watcher or resctrl-applier: the story must then fail")
	flag.DurationVar(&o.pace, "pace", 1200*time.Millisecond, "the pause after each step, for the reader")
	flag.DurationVar(&o.patience, "patience", 20*time.Second, "how long each step may take")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Stdout, o)
	if ctx.Err() != nil {
		stop()
		fmt.Fprintln(os.Stderr, "\ninterrupted; everything was cleaned up")
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run makes the node, plays the story on it and takes everything away again.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	show := newScreen(out, o.pace)
	shop, err := world.NewWorkshop(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	// Whatever the story is waiting for when it is interrupted, the end of the
	// node ends the wait.
	stop := context.AfterFunc(ctx, func() { shop.Close() })
	defer stop()
	if shop.Bin = o.bin; shop.Bin == "" {
		show.note("building the programs (the first time, this takes a minute)")
	}
	if err := shop.Build(); err != nil {
		return err
	}
	cpu := sim.DefaultConfig()
	cpu.NumRMIDs = rmids
	w, err := world.New(shop, world.Options{Sim: &cpu})
	if err != nil {
		return err
	}
	show.dir = w.Dir
	s := &story{ctx: ctx, w: w, show: show, options: o}
	if err := s.play(); err != nil {
		return err
	}
	if o.keep != "" {
		if err := keep(w, o.keep); err != nil {
			return err
		}
		show.note("event log, database and logs were copied to " + o.keep)
	}
	if s.failures > 0 {
		return fmt.Errorf("%d steps did not go as they should", s.failures)
	}
	return nil
}

// keep stops the programs, so that the database is whole, and copies what they
// wrote.
func keep(w *world.World, dir string) error {
	for _, d := range []*world.Daemon{w.Watcher, w.Applier} {
		if d != nil {
			if _, err := d.Stop(); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, sub := range []string{"out", "lib", "log"} {
		if err := os.CopyFS(dir, os.DirFS(w.Dir+"/"+sub)); err != nil {
			return fmt.Errorf("keep what was written: %w", err)
		}
	}
	return nil
}
