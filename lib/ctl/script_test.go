package ctl

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/lock"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// envNow is the clock of the scripts.
const envNow = "RESCTRLCTL_TEST_NOW"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"resctrlctl": func() {
		os.Args = append(os.Args[:1:1], Arrange(os.Args[1:])...)
		program.Main(Command(func() time.Time {
			now, err := time.Parse(time.RFC3339, os.Getenv(envNow))
			if err != nil {
				return time.Now()
			}
			return now
		}))
	}})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv(envNow, "2026-01-01T12:00:00Z")
			e.Setenv("NRI_RESCTRL_CONFIG", filepath.Join(e.WorkDir, "config.toml"))
			var user strings.Builder // what doctor says of whoever runs the tests
			if err := (&app{out: &user}).printFindings([]finding{new(app).checkUser()}); err != nil {
				return err
			}
			e.Setenv("USER_LINES", strings.TrimSuffix(user.String(), "\n"))
			// FIFOs and state are private to the user, the script's directory is not.
			return os.WriteFile(filepath.Join(e.WorkDir, "config.toml"), fmt.Appendf(nil, `
				watcher.nri_socket = "%[1]s/nri.sock"
				pipe.path = "%[1]s/run/lifecycle.pipe"
				pipe.ack_path = "%[1]s/run/ack.pipe"
				resctrl.root = "%[1]s/resctrl"
				resctrl.simulated = true
				cgroup.root = "%[1]s/cgroup"
				proc.root = "%[1]s/proc"
				state.path = "%[1]s/state/state.db"
				events.path = "%[1]s/events.jsonl"
				events.node = "node-1"
				`, e.WorkDir), 0o644)
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "sql": fill, "hold": hold, "mkfifo": makeFIFO, "listen": listen, "expand": expand,
		},
	})
}

// exits runs a command and wants this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		got = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// fill makes the state, if it is not there, and runs the statements of files.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs("state/state.db")
	s, err := state.Open(path, state.Options{Node: "node-1"})
	ts.Check(err)
	ts.Check(s.Close())
	db, err := sql.Open("sqlite3", "file:"+path)
	ts.Check(err)
	defer db.Close()
	for _, file := range args {
		expand(ts, false, []string{file})
		_, err := db.Exec(ts.ReadFile(file))
		ts.Check(err)
	}
}

// expand writes the script's directory where its files say $WORK, and the
// process that holds the locks where they say $PID.
func expand(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		text := strings.NewReplacer("$WORK", ts.Getenv("WORK"), "$PID", strconv.Itoa(os.Getpid())).Replace(ts.ReadFile(name))
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o644))
	}
}

// hold takes instance locks until the script's end, as the daemons do.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		release, err := lock.New(ts.MkAbs("run")).Instance(name)
		ts.Check(err)
		ts.Defer(release)
	}
	ts.Setenv("PID", strconv.Itoa(os.Getpid()))
}

func makeFIFO(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		ts.Check(unix.Mkfifo(ts.MkAbs(name), 0o600))
	}
}

func listen(ts *testscript.TestScript, neg bool, args []string) {
	l, err := net.Listen("unix", ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Defer(func() { l.Close() })
}
