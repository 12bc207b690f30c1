// Command nri-watcher tells the node's pods and containers, as the container
// runtime's NRI tells them, to resctrl-applier.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/containerd/nri/pkg/api"
	"github.com/oklog/run"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/lib/watcher"
)

func main() {
	var stdout bool
	program.Main(program.Command{
		Name:    "nri-watcher",
		Summary: "Tells the node's pods and containers, as the container runtime's NRI tells them,\nto resctrl-applier. Runs until it is ended by a signal, or as a plugin that the\nruntime launches from its plugin directory.",
		Flags: func(fs *flag.FlagSet) {
			fs.BoolVar(&stdout, "stdout", false, "write the records to standard output, for people or for 'resctrl-applier --stdin'; runs beside the daemon")
		},
		Run: func(ctx context.Context, env *program.Env) error { return watch(ctx, env, stdout) },
	})
}

// watch runs the watcher with the service manager told of it.
func watch(ctx context.Context, env *program.Env, stdout bool) error {
	if err := program.NoArgs(env); err != nil {
		return err
	}
	systemd := program.NewSystemd(env.Logger)
	opts := watcher.Options{Config: env.Config, Logger: env.Logger, Notifier: systemd}
	if stdout {
		opts.Stdout = env.Stdout
	}
	if err := launched(env, &opts); err != nil {
		return err
	}
	w := watcher.New(opts)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g run.Group
	g.Add(func() error { return w.Run(ctx) }, func(error) { cancel() })
	g.Add(func() error { return systemd.Watchdog(ctx, w.Alive) }, func(error) { cancel() })
	return g.Run()
}

// launched sees whether the runtime launched this program from its plugin
// directory, by the environment that it sets.
func launched(env *program.Env, opts *watcher.Options) error {
	text := env.Getenv(api.PluginSocketEnvVar)
	if text == "" {
		return nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= 0 {
		return program.Fail(program.ExitUsage, fmt.Errorf("%s=%q is no file descriptor", api.PluginSocketEnvVar, text))
	}
	opts.LaunchedFD = fd
	opts.LaunchedName = env.Getenv(api.PluginIdxEnvVar) + "-" + env.Getenv(api.PluginNameEnvVar) + ".conf"
	opts.NewLogger = func(c config.Log) (*slog.Logger, error) {
		return program.NewLogger(env.Stderr, "nri-watcher", c, env.LevelFlag)
	}
	return nil
}
