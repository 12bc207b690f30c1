package ctl

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
)

func TestArrange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ typed, want string }{
		{"", "--"},
		{"status", "-- status"},
		{"status --json", "--json -- status"},
		{"--json status", "--json -- status"},
		{"events -f --pod u --since=3", "-f --pod u --since=3 -- events"},
		{"events --config c -last 2", "--config c -last 2 -- events"},
		{"events --pod", "--pod"},
		{"pods -- -x", "-- pods -x"},
		{"help", "--help"},
		{"help events", "--help"},
		{"pods -", "-- pods -"},
		{"pods --unknown x", "--unknown -- pods x"},
	} {
		if got := Arrange(strings.Fields(tc.typed)); !slices.Equal(got, strings.Fields(tc.want)) {
			t.Errorf("Arrange(%q) = %q, want %q", tc.typed, got, tc.want)
		}
	}
}

// Every option of a command exists, and every option is some command's.
func TestCommandsAndOptionsAgree(t *testing.T) {
	t.Parallel()
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	new(app).addFlags(fs)
	used := map[string]bool{"json": true}
	for _, c := range commands() {
		for _, o := range c.options {
			used[o] = true
			if fs.Lookup(o) == nil {
				t.Errorf("%s has an option -%s that does not exist", c.name, o)
			}
		}
	}
	fs.VisitAll(func(f *flag.Flag) {
		if !used[f.Name] {
			t.Errorf("no command has the option -%s", f.Name)
		}
	})
}

func TestSafe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain pod-0":      "plain pod-0",
		"Grün 北京":          "Grün 北京",
		"a\x1b[31mb":       `a\x1b[31mb`,
		"a\nb\tc\rd":       `a\nb\tc\rd`,
		`a\nb`:             `a\\nb`,
		"\u202eevil\u2066": `\u202eevil\u2066`,
		"\u009b2J\x7f":     `\u009b2J\x7f`,
		"bad\xffutf8":      `bad\xffutf8`,
		"\ufffd":           `\ufffd`,
		"no\u00a0break":    `no\u00a0break`,
		"\U000e0041":       `\U000e0041`,
	} {
		if got := safe(in); got != want {
			t.Errorf("safe(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestEscapeJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":"b\n"}` + "\n": `{"a":"b\n"}` + "\n",
		"\"\u009b\"":         `"\u009b"`,
		"\"\u202eé\"":        `"\u202eé"`,
		"\"\U000e0041\"":     `"\udb40\udc41"`,
	} {
		if got := escapeJSON(in); got != want {
			t.Errorf("escapeJSON(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                             "0 s ago",
		59*time.Second + 999999999:    "59 s ago",
		time.Minute:                   "1 min ago",
		time.Hour:                     "1 h 0 min ago",
		47*time.Hour + 59*time.Minute: "47 h 59 min ago",
		48 * time.Hour:                "2 d ago",
		-time.Second:                  "in the future (did the clock go back?)",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%v) = %q, want %q", d, got, want)
		}
	}
}

func appAt(dir, proc string) *app {
	c := config.Default()
	c.Pipe.Path, c.Proc.Root = filepath.Join(dir, "lifecycle.pipe"), proc
	return &app{cfg: c, now: time.Now}
}

// A daemon runs while it has its lock, by /proc/locks and without it alike. Not
// parallel, as TestLookingTakesNoLock.
func TestDaemonRunsWhileItHasItsLock(t *testing.T) {
	for name, proc := range map[string]string{"proc": "/proc", "no proc": t.TempDir()} {
		dir := t.TempDir()
		a := appAt(dir, proc)
		if got, _ := a.daemon("applier"); got != stopped {
			t.Errorf("%s: without a lock file: %s", name, got)
		}
		release, err := lock.New(dir).Instance("applier")
		if err != nil {
			t.Fatal(err)
		}
		if got, pid := a.daemon("applier"); got != runs || pid != os.Getpid() {
			t.Errorf("%s: with the lock held: %s by %d", name, got, pid)
		}
		if got, _ := a.daemon("watcher"); got != stopped {
			t.Errorf("%s: the other daemon: %s", name, got)
		}
		release()
		if got, _ := a.daemon("applier"); got != stopped {
			t.Errorf("%s: after the release: %s", name, got)
		}
	}
}

// Looking must not keep a daemon from starting. Not parallel: a process that
// another test forks has the lock, too, until its exec.
func TestLookingTakesNoLock(t *testing.T) {
	dir := t.TempDir()
	a := appAt(dir, "/proc")
	locks := lock.New(dir)
	first, err := locks.Instance("applier") // which makes the file
	if err != nil {
		t.Fatal(err)
	}
	first()
	if _, exact := mountDevice(dir, deviceOf(t, dir)); !exact {
		t.Skip("on this filesystem the lock itself must be tried: run with TMPDIR on another")
	}
	stop, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for {
			select {
			case <-stop:
				return
			default:
				a.daemon("applier")
			}
		}
	}()
	defer func() { close(stop); <-looked }()
	for range 1000 {
		release, err := locks.Instance("applier")
		if err != nil {
			t.Fatalf("a daemon could not start while somebody looked: %v", err)
		}
		release()
	}
}

func deviceOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

func TestFlockHolder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, locks string
		pid         int
	}{
		{"nobody", "", 0},
		{"somebody", "1: POSIX  ADVISORY  WRITE 1 00:1a:1234 0 EOF\n2: FLOCK  ADVISORY  WRITE 712 00:1a:1234 0 EOF\n", 712},
		{"by the mount's device", "1: FLOCK  ADVISORY  WRITE 712 103:02:1234 0 EOF\n", 712},
		{"another file", "1: FLOCK  ADVISORY  WRITE 712 00:1a:12345 0 EOF\n", 0},
		{"another device", "1: FLOCK  ADVISORY  WRITE 712 00:1b:1234 0 EOF\n", 0},
		{"shared", "1: FLOCK  ADVISORY  READ  712 00:1a:1234 0 EOF\n", 0},
		{"somebody waits", "1: -> FLOCK  ADVISORY  WRITE 713 00:1a:1234 0 EOF\n", 0},
		{"another PID namespace", "1: FLOCK  ADVISORY  WRITE 0 00:1a:1234 0 EOF\n", -1},
		{"garbage", "x\n\n1: FLOCK\n", 0},
	} {
		path := filepath.Join(t.TempDir(), "locks")
		if err := os.WriteFile(path, []byte(tc.locks), 0o600); err != nil {
			t.Fatal(err)
		}
		pid, err := flockHolder(path, 1234, unix.Mkdev(0, 0x1a), unix.Mkdev(0x103, 2))
		if pid != tc.pid || err != nil {
			t.Errorf("%s: %d, %v; want %d", tc.name, pid, err, tc.pid)
		}
	}
	if _, err := flockHolder(t.TempDir()+"/no", 1234); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file of locks: %v", err)
	}
}

func TestListens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{os.Mkdir(dir+"/run", 0o700), os.Symlink("run", dir+"/var"), os.WriteFile(dir+"/run/s", nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	row := func(flags, path string) string {
		return fmt.Sprintf("Num       RefCount Protocol Flags    Type St Inode Path\n0: 00000002 00000000 %s 0001 01 12345 %s\n", flags, path)
	}
	for table, want := range map[string]bool{
		"":                                false,
		row("00010000", dir+"/run/s"):     true,
		row("00010000", dir+"/var/s"):     true, // the runtime bound it through the link
		row("00000000", dir+"/run/s"):     false,
		row("00010000", dir+"/run/other"): false,
		row("00010000", ""):               false,
	} {
		for _, path := range []string{dir + "/run/s", dir + "/var/s"} {
			if got := listens(table, path); got != want {
				t.Errorf("listens(%q, %q) = %t", table, path, got)
			}
		}
	}
}
