// Command resctrl-applier gives every pod its resctrl group, as lifecycle
// records ask.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/nri-resctrl/nri-resctrl/lib/applier"
	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
)

func main() {
	var stdin bool
	program.Main(program.Command{
		Name:  "resctrl-applier",
		Usage: "[options]",
		Summary: "Reads lifecycle records of pods and containers from the pipe, gives every pod its resctrl\n" +
			"group with all tasks of its containers in it, and records pods and events.",
		Flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&stdin, "stdin", false, "read the records from standard input and exit at its end")
		},
		Run: func(ctx context.Context, env *program.Env) error { return run(ctx, env, stdin) },
	})
}

func run(ctx context.Context, env *program.Env, stdin bool) (err error) {
	if err := program.NoArgs(env); err != nil {
		return err
	}
	cfg := env.Config
	node := engine.NewNode(cfg, env.Logger)
	release, err := node.Locks.Instance("applier")
	if held := (*lock.HeldError)(nil); errors.As(err, &held) {
		return program.Fail(program.ExitUnavailable, fmt.Errorf("another resctrl-applier runs: %w; stop it first, or give this one its own [pipe] paths", err))
	} else if err != nil {
		return program.Fail(program.ExitUnavailable, fmt.Errorf("take the lock of the one resctrl-applier: %w", err))
	}
	defer release()
	e, err := node.Applier(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	systemd := program.NewSystemd(env.Logger)
	o := applier.Options{
		Engine: e, Resctrl: node.Resctrl,
		AutoMount: cfg.Resctrl.AutoMount, Cleanup: cfg.Resctrl.CleanupOnStart,
		Heartbeat: cfg.Watcher.Heartbeat.Duration,
		Version:   program.Version(), Logger: env.Logger, Notify: systemd.Status,
	}
	if stdin {
		return applier.RunStdin(ctx, o, env.Stdin)
	}
	return applier.Run(ctx, o, cfg.Pipe, systemd)
}
