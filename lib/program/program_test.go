package program

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

// result is what a run left behind.
type result struct {
	code        int
	out, errOut string
}

// try runs cmd with args and the environment.
func try(t *testing.T, cmd Command, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	env := &Env{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
		Getenv: func(string) string { return "" },
	}
	return result{Run(t.Context(), cmd, env), out.String(), errOut.String()}
}

func command(run func(context.Context, *Env) error) Command {
	return Command{Name: "nri-test", Summary: "Does nothing.", Run: run}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want int
		out  string
	}{
		{"done", nil, 0, ""},
		{"signal", fmt.Errorf("wait: %w", context.Canceled), 0, ""},
		{"failure", errors.New("open x: gone"), 1, "nri-test: open x: gone\n"},
		{"wrapped", fmt.Errorf("start: %w", Fail(ExitUnavailable, errors.New("lock is held"))), 69, "nri-test: start: lock is held\n"},
		{"usage", Fail(ExitUsage, errors.New("what?")), 64, "nri-test: what?\nTry 'nri-test --help'.\n"},
		{"coded and canceled", Fail(ExitCapacity, context.Canceled), 75, "nri-test: context canceled\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := try(t, command(func(context.Context, *Env) error { return tt.err }), "--config", write(t, ""))
			if got.code != tt.want {
				t.Errorf("code %d, want %d", got.code, tt.want)
			}
			if got.errOut != tt.out {
				t.Errorf("printed %q, want %q", got.errOut, tt.out)
			}
		})
	}
	if Fail(ExitData, nil) != nil {
		t.Error("no error got a code")
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	never := func(context.Context, *Env) error { return errors.New("it ran") }
	good := write(t, "[log]\nlevel = \"warn\"\n")
	bad := write(t, "[log]\nlevell = \"warn\"\n")
	withFlag := command(never)
	withFlag.Flags = func(fs *flag.FlagSet) {
		fs.Bool("stdout", false, "write to standard output")
		fs.Bool("f", false, "follow")
	}
	noGroup := write(t, "[state]\ngroup = \"nri-test-none\"\n")

	tests := []struct {
		name     string
		args     []string
		code     int
		out, err string // must be contained
	}{
		{"help", []string{"--help"}, 0, "--stdout\n        write to standard output", ""},
		{"help on a letter", []string{"--help"}, 0, "\n  -f\n        follow", ""},
		{"version", []string{"--version"}, 0, "nri-test " + Version() + "\n", ""},
		{"good config", []string{"--check-config"}, 0, "configuration is good (" + good + ")", ""},
		{"bad config", []string{"--config", bad, "--check-config"}, 78, "", bad},
		{"no such group", []string{"--config", noGroup, "--check-config"}, 78, "", "groupadd"},
		{"bad config, no check", []string{"--config", bad}, 78, "", "levell"},
		{"config not there", []string{"--config", bad + ".gone"}, 78, "", "named by --config"},
		{"unknown flag", []string{"--frob"}, 64, "", "Try 'nri-test --help'."},
		{"bad level", []string{"--log-level", "loud"}, 64, "", `unknown log level "loud"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := try(t, withFlag, append([]string{"--config", good}, tt.args...)...)
			if got.code != tt.code {
				t.Errorf("code %d, want %d; %s", got.code, tt.code, got.errOut)
			}
			if !strings.Contains(got.out, tt.out) || !strings.Contains(got.errOut, tt.err) {
				t.Errorf("printed %q and %q, want %q and %q", got.out, got.errOut, tt.out, tt.err)
			}
		})
	}
}

func TestEnvOfARun(t *testing.T) {
	t.Parallel()
	path := write(t, "[log]\nlevel = \"error\"\nformat = \"json\"\n")
	cmd := command(func(_ context.Context, env *Env) error {
		if env.ConfigPath != path || env.Config.Log.Level != "error" {
			t.Errorf("the configuration came from %s: %+v", env.ConfigPath, env.Config.Log)
		}
		if len(env.Args) != 1 || env.Args[0] != "rest" || NoArgs(env) == nil {
			t.Errorf("left over: %q", env.Args)
		}
		env.Logger.Debug("a word", "pod_uid", "u1")
		return nil
	})
	got := try(t, cmd, "--config", path, "--log-level", "debug", "rest")
	if got.code != 0 || !strings.Contains(got.errOut, `"msg":"a word","pod_uid":"u1"`) {
		t.Errorf("got %+v", got)
	}
}

func TestIsNull(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	if !isNull(null) || isNull(zero) || logsElsewhere(io.Discard) {
		t.Errorf("null %v, zero %v", isNull(null), isNull(zero))
	}
}

func TestJournalHandlerSharesOneLine(t *testing.T) {
	t.Parallel()
	log, err := NewLogger(io.Discard, "x", config.Log{Level: "loud"}, "")
	if log != nil || ExitCode(err) != ExitConfig {
		t.Errorf("a level of the configuration that is none gave %v, %v", log, err)
	}
	h := newJournalHandler(&slog.HandlerOptions{Level: slog.LevelDebug}, "nri-test")
	derived := h.WithAttrs(nil).WithGroup("g").(*journalHandler)
	if derived.out != h.out || derived.vars["SYSLOG_IDENTIFIER"] != "nri-test" {
		t.Error("a derived handler does not share its line or name")
	}
}

// TestSystemd is not parallel: it sets the environment of the process.
func TestSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	next := func() string {
		buf := make([]byte, 256)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	s := NewSystemd(slog.New(slog.DiscardHandler))
	s.Ready("watching")
	if got := next(); got != "READY=1\nSTATUS=watching" {
		t.Errorf("ready: %q", got)
	}
	s.Status("lost")
	s.Stopping()
	if got := next() + next(); got != "STATUS=lostSTOPPING=1" {
		t.Errorf("status, stopping: %q", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Watchdog(ctx, func() bool { return true }) }()
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("watchdog: %q", got)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the watchdog ended with %v", err)
	}
}

// A text log is read on a terminal: no control character reaches it raw.
func TestTextLogEscapes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log, err := NewLogger(&b, "test", config.Log{Format: "text"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a\x7fb", "\x1b[2J", "\u202e", "\u009b", "\n", "\r"} {
		log.Info("m", "pod_name", name)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(b.String(), "\ntime=", ""), "\\n\n", "")
	text = strings.TrimSuffix(text, "\n")
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(text, `x7f`) {
		t.Errorf("%q", text)
	}
}
