// Package program is what the main functions of all the programs share: the
// common flags, the configuration, the logger, the signals and the exit codes.
// Only Main ends the process; everything else returns.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

// Command is one program.
type Command struct {
	Name    string // as it is typed: "nri-watcher"
	Usage   string // what follows the name in the first line of --help: "[options]"
	Summary string // one or a few sentences for --help
	Details string // more for --help, after the options; may be empty

	// Flags adds the program's own options; may be nil.
	Flags func(*flag.FlagSet)
	// Run does the work until it is done or ctx ends (SIGINT, SIGTERM). Its
	// error is printed once and decides the exit code (see ExitCode).
	Run func(ctx context.Context, env *Env) error
}

// Env is all that a Command may use of the outside.
type Env struct {
	Args       []string // what is left after the options
	Stdin      io.Reader
	Stdout     io.Writer
	Stderr     io.Writer
	Getenv     func(string) string
	Config     *config.Config
	ConfigPath string // the file it came from; "" where there was none
	Logger     *slog.Logger
	// LevelFlag is the value of --log-level; "" where it was not given.
	LevelFlag string
}

// Main runs cmd as this process and exits with its code.
func Main(cmd Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	env := &Env{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	code := Run(ctx, cmd, env)
	stop()
	os.Exit(code)
}

// Run is Main without the process: env's Args are the arguments after the
// program's name. It returns the exit code, and has printed the error.
func Run(ctx context.Context, cmd Command, env *Env) int {
	err := start(ctx, cmd, env)
	if errors.Is(err, errDone) {
		return ExitOK
	}
	code := ExitCode(err)
	if code == ExitOK { // done, or ended by a signal
		return code
	}
	fmt.Fprintf(env.Stderr, "%s: %v%s\n", cmd.Name, err, rootHint(err))
	if env.Logger != nil && logsElsewhere(env.Stderr) {
		env.Logger.Error("ending", "error", err, "exit_code", code)
	}
	if code == ExitUsage {
		fmt.Fprintf(env.Stderr, "Try '%s --help'.\n", cmd.Name)
	}
	return code
}

// rootHint is what an ordinary user is told of an error that root would not have.
func rootHint(err error) string {
	if !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 || strings.Contains(err.Error(), "root") {
		return ""
	}
	return " (run it as root)"
}

// errDone says that a flag was the whole of the work.
var errDone = errors.New("done")

// start reads flags and configuration and runs the command.
func start(ctx context.Context, cmd Command, env *Env) error {
	opts, err := parse(cmd, env)
	if err != nil {
		return err
	}
	env.LevelFlag = opts.level
	env.Config, env.ConfigPath, err = loadConfig(opts.config)
	if err != nil {
		return err
	}
	if opts.check {
		if g := env.Config.State.Group; g != "" && !groupExists(g) {
			return Fail(ExitConfig, fmt.Errorf("state.group %q: this machine has no such group (make it with groupadd, or change the configuration)", g))
		}
		from := env.ConfigPath
		if from == "" {
			from = "no file " + config.DefaultPath + ": the defaults"
		}
		fmt.Fprintf(env.Stdout, "configuration is good (%s)\n", from)
		return errDone
	}
	env.Logger, err = NewLogger(env.Stderr, cmd.Name, env.Config.Log, opts.level)
	if err != nil {
		return err
	}
	return cmd.Run(ctx, env)
}

// groupExists says whether the system knows the group, by name or number.
func groupExists(name string) bool {
	_, err := user.LookupGroup(name)
	if err != nil {
		_, err = strconv.ParseUint(name, 10, 31)
	}
	return err == nil
}

// options are the flags that every program has.
type options struct {
	config, level  string
	check, version bool
}

// parse reads the arguments and leaves in env.Args what follows the options.
func parse(cmd Command, env *Env) (options, error) {
	var o options
	flags := flag.NewFlagSet(cmd.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.config, "config", "", "read the configuration from `FILE` (else $"+config.EnvPath+", else "+config.DefaultPath+")")
	flags.BoolVar(&o.check, "check-config", false, "check the configuration and exit")
	flags.StringVar(&o.level, "log-level", "", "log at `LEVEL` debug, info, warn or error, whatever the configuration says")
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	if cmd.Flags != nil {
		cmd.Flags(flags)
	}
	switch err := flags.Parse(env.Args); {
	case errors.Is(err, flag.ErrHelp):
		printHelp(env.Stdout, cmd, flags)
		return o, errDone
	case err != nil:
		return o, Fail(ExitUsage, err)
	case o.version:
		fmt.Fprintf(env.Stdout, "%s %s\n", cmd.Name, Version())
		return o, errDone
	}
	if o.level != "" {
		if _, err := parseLevel(o.level); err != nil {
			return o, Fail(ExitUsage, fmt.Errorf("--log-level: %w", err))
		}
	}
	env.Args = flags.Args()
	return o, nil
}

// NoArgs is the check of a program that takes options only.
func NoArgs(env *Env) error {
	if len(env.Args) > 0 {
		return Fail(ExitUsage, fmt.Errorf("unexpected argument %q", env.Args[0]))
	}
	return nil
}
