// Package ctl is resctrlctl: the person's read-only window on watcher, applier,
// resctrl, state and events. It writes nothing and takes no lock.
package ctl

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// name is the program's.
const name = "resctrlctl"

// app is one run of resctrlctl.
type app struct {
	now func() time.Time

	json, all, follow bool
	pod               string
	since             int64
	last              int
	flags             *flag.FlagSet

	cfg *config.Config
	out io.Writer
	log *slog.Logger
}

// command is one of resctrlctl's commands.
type command struct {
	name, help string
	options    []string // beside --json
	run        func(*app, context.Context) error
}

func commands() []command {
	return []command{
		{"status", "everything on one screen, and what is wrong", nil, (*app).status},
		{"pods", "the pods with their groups and counters", []string{"pod", "all"}, (*app).pods},
		{"containers", "the containers, and why some are not in their group", []string{"pod", "all"}, (*app).containers},
		{"events", "the events of the state's table; -f goes on with new ones", []string{"pod", "f", "since", "last"}, (*app).events},
		{"doctor", "checks of this node, each with what to do", nil, (*app).doctor},
	}
}

// Command is resctrlctl for program.Main; now is the clock. Its arguments must
// have gone through Arrange.
func Command(now func() time.Time) program.Command {
	a := &app{now: now}
	var details strings.Builder
	details.WriteString("Commands:\n")
	for _, c := range commands() {
		fmt.Fprintf(&details, "  %-11s %s\n", c.name, c.help)
	}
	details.WriteString(`
It only reads. root may always; the members of state.group while resctrl-applier runs.
Times are UTC in tables. A count like 2/3 is: 2 of 3 containers have all their tasks in
the group. With --json the fields have the names of the state's columns; see state/README.md.

Exit codes: 0; 1 failed, or doctor found something broken; 64 usage; 66 no such pod;
69 there is no state to read (yet); 78 configuration.

Examples:
  resctrlctl status
  resctrlctl containers --pod 7f5c2b1e-4f0e-4a53-a9a5-5d2a3b4c6d7e
  resctrlctl events -f --json | jq -r 'select(.group_state == "Failed") | .pod_name'`)
	return program.Command{
		Name:  name,
		Usage: "[options] status | pods | containers | events | doctor",
		Summary: "Shows what nri-watcher, resctrl-applier and resctrl-retry have done with the pods of this\n" +
			"node, and what keeps them from it.",
		Details: details.String(),
		Flags:   a.addFlags,
		Run:     a.run,
	}
}

func (a *app) addFlags(fs *flag.FlagSet) {
	a.flags = fs
	fs.BoolVar(&a.json, "json", false, "print JSON; events as the lines of events.jsonl")
	fs.StringVar(&a.pod, "pod", "", "pods, containers, events: only those of the pod with this `UID`")
	fs.BoolVar(&a.all, "all", false, "pods, containers: also those of pods that have ended, but whose group is still to be removed")
	fs.BoolVar(&a.follow, "f", false, "events: go on with new ones until interrupted")
	fs.Int64Var(&a.since, "since", 0, "events: only those after number `SEQ`")
	fs.IntVar(&a.last, "last", 0, "events: of those that are there, only the last `N`")
}

func (a *app) run(ctx context.Context, env *program.Env) error {
	if len(env.Args) == 0 {
		return usage("a command is missing: " + names())
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == env.Args[0] })
	if i < 0 {
		return usage(fmt.Sprintf("unknown command %q: one of %s", env.Args[0], names()))
	}
	c := commands()[i]
	if len(env.Args) > 1 {
		return usage(fmt.Sprintf("unexpected argument %q after %s", env.Args[1], c.name))
	}
	if err := a.checkFlags(c); err != nil {
		return err
	}
	a.cfg, a.out, a.log = env.Config, env.Stdout, env.Logger
	return c.run(a, ctx)
}

func names() string {
	var all []string
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}

// checkFlags refuses options that the command would silently ignore.
func (a *app) checkFlags(c command) error {
	var err error
	a.flags.Visit(func(f *flag.Flag) {
		of := slices.DeleteFunc(commands(), func(c command) bool { return !slices.Contains(c.options, f.Name) })
		if len(of) > 0 && !slices.Contains(c.options, f.Name) {
			err = usage(fmt.Sprintf("%s takes no option -%s", c.name, f.Name))
		}
		if f.Name == "pod" && a.pod == "" {
			err = usage("--pod needs the UID of a pod")
		}
	})
	if a.since < 0 || a.last < 0 {
		return usage("--since and --last take numbers from 0")
	}
	return err
}

func usage(text string) error { return program.Fail(program.ExitUsage, errors.New(text)) }

// Arrange moves the options before the command, where program looks for them:
// people type "resctrlctl status --json". "help" is --help.
func Arrange(args []string) []string {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	new(app).addFlags(fs)
	var options, rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		options = append(options, arg)
		if takesValue(fs, strings.TrimLeft(arg, "-")) {
			if i++; i == len(args) {
				return options // which says that the value is missing
			}
			options = append(options, args[i])
		}
	}
	if len(rest) > 0 && rest[0] == "help" {
		return []string{"--help"}
	}
	return append(append(options, "--"), rest...)
}

// takesValue says whether the next argument belongs to the option.
func takesValue(fs *flag.FlagSet, option string) bool {
	if option == "config" || option == "log-level" { // of every program
		return true
	}
	f := fs.Lookup(option)
	if f == nil {
		return false
	}
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return !ok || !b.IsBoolFlag()
}

// openState opens the state; its error has the exit code.
func (a *app) openState() (*state.Reader, error) {
	r, err := state.OpenReader(a.cfg.State.Path)
	if errors.Is(err, state.ErrNotCreated) || errors.Is(err, state.ErrNoApplier) {
		return nil, program.Fail(program.ExitUnavailable, err)
	}
	return r, err
}

func (a *app) resctrl() *resctrl.FS {
	return resctrl.New(resctrl.Options{Root: a.cfg.Resctrl.Root, Prefix: a.cfg.Resctrl.GroupPrefix,
		Simulated: a.cfg.Resctrl.Simulated, ProcRoot: a.cfg.Proc.Root, Logger: a.log})
}

func (a *app) proc(elem ...string) string {
	return filepath.Join(append([]string{a.cfg.Proc.Root}, elem...)...)
}
