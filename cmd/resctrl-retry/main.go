// Command resctrl-retry retries what failed or stayed incomplete, once.
package main

import (
	"context"
	"errors"
	"flag"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/lib/retry"
)

func main() {
	var o retry.Options
	program.Main(program.Command{
		Name:  "resctrl-retry",
		Usage: "[options]",
		Summary: "Tries once to make the groups that failed and to complete the containers that stayed\n" +
			"incomplete, looks after running pods, and exits. A systemd timer runs it every 10 seconds.",
		Details: "Exit codes: 0 done, also when nothing was to do; 75 pods still wait for a free RMID;\n" +
			"66 no such pod or container; 78 wrong configuration; 1 errors, each named.",
		Flags: func(fs *flag.FlagSet) {
			fs.Var(&o.Pod, "pod", "retry only the group of the pod with this `UID`")
			fs.Var(&o.Container, "container", "retry only the container with this `ID`")
			fs.BoolVar(&o.JSON, "json", false, "print what was done as JSON")
		},
		Run: func(ctx context.Context, env *program.Env) error { return run(ctx, env, o) },
	})
}

func run(ctx context.Context, env *program.Env, o retry.Options) error {
	if err := program.NoArgs(env); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return program.Fail(program.ExitUsage, err)
	}
	o.Sweep = env.Config.Retry.SweepRunning
	o.VanishedAfter = env.Config.Retry.VanishedAfter.Duration
	o.EventRetention = env.Config.State.EventRetention.Duration
	e, err := engine.NewNode(env.Config, env.Logger).Job(ctx)
	if err != nil {
		return err
	}
	return errors.Join(retry.Run(ctx, e, o, env.Stdout, env.Logger), e.Close())
}
