package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// TestSecondDaemon: a second applier, or watcher, says who holds the lock and
// exits 69; the first does not notice.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	n := running(t)
	for _, first := range []*world.Daemon{n.Applier, n.Watcher} {
		r, err := n.Run(first.Name)
		n.must(err)
		if r.Code != 69 {
			t.Errorf("a second %s ended with %d: %s", first.Name, r.Code, r.Err)
		}
		if err := oneLine(r.Err, fmt.Sprintf(`\b%d\b`, first.PID), `run/\w+\.lock`); err != nil {
			t.Error(err)
		}
	}
	n.container(n.pod("u"), "app")
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
	if s := n.status(); s.Applier.PID != n.Applier.PID || s.Watcher.PID != n.Watcher.PID || len(s.Problems) > 0 {
		t.Errorf("status: %+v", s)
	}
}

// TestBadConfiguration: every program names file, line and key, says what is
// allowed, and exits 78 before it has made anything.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	bad := []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "[watcher]\nqueue_sise = 5\n", []string{":2: ", `watcher\.queue_sise`}},
		{"unknown table", "\n\n[wacher]\n", []string{":3: ", "wacher"}},
		{"wrong type", "[watcher]\nqueue_size = \"many\"\n", []string{":2: ", `watcher\.queue_size`, "allowed"}},
		{"out of range", "[watcher]\n\nqueue_size = 0\n", []string{":3: ", `watcher\.queue_size`, "1 to 1000000"}},
		{"no duration", "[state]\nevent_retention = \"a week\"\n", []string{":2: ", `state\.event_retention`, "allowed"}},
		{"relative path", "[resctrl]\nroot = \"sys/fs/resctrl\"\n", []string{":2: ", `resctrl\.root`, "absolute"}},
		{"no TOML", "[watcher\n", []string{":1: "}},
	}
	for _, b := range bad {
		file := filepath.Join(n.Dir, "bad.toml")
		n.must(os.WriteFile(file, []byte(b.text), 0o644))
		for _, args := range [][]string{
			{world.WatcherProgram}, {world.ApplierProgram}, {world.RetryProgram}, {world.CtlProgram, "status"},
			{world.WatcherProgram, "--check-config"}, {world.ApplierProgram, "--check-config"},
		} {
			r, err := n.Run(args[0], append([]string{"--config", file}, args[1:]...)...)
			n.must(err)
			if r.Code != 78 {
				t.Errorf("%s: %v ended with %d: %s", b.name, args, r.Code, r.Err)
			}
			if err := oneLine(r.Err, append(b.want, file)...); err != nil {
				t.Errorf("%s: %v: %v", b.name, args, err)
			}
		}
	}
	for _, name := range []string{world.WatcherProgram, world.ApplierProgram, world.RetryProgram, world.CtlProgram} {
		for _, args := range [][]string{{"--check-config"}, {"--version"}, {"--help"}} {
			if r, err := n.Run(name, args...); err != nil || r.Code != 0 || r.Out == "" {
				t.Errorf("%s %s: %+v, %v", name, args, r, err)
			}
		}
		if r, err := n.Run(name, "--config", filepath.Join(n.Dir, "gone.toml")); err != nil || r.Code != 78 {
			t.Errorf("%s with a file that is not there: %+v, %v", name, r, err)
		}
		if r, err := n.Run(name, "--frobnicate"); err != nil || r.Code != 64 {
			t.Errorf("%s --frobnicate: %+v, %v", name, r, err)
		}
	}
	for _, path := range []string{n.Pipe(), n.AckPipe(), n.Database(), n.EventLog()} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s was made: %v", path, err)
		}
	}
}

// TestResctrlUnusable: not mounted (and auto_mount off), no permission, no
// kernel support: the applier says it in one clear line, goes on, status tells
// it, and nothing is lost: once it can be used, the pods get their groups.
func TestResctrlUnusable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		set    set
		mend   func(*node)
	}{
		{"not_mounted", cpu(func(c *sim.Config) { c.Unmounted = true }), func(n *node) { n.must(n.Model.Mount()) }},
		{"unsupported", cpu(func(c *sim.Config) { c.Monitoring = false }), nil},
		{"permission", func(*world.Options) {}, func(n *node) { n.Mount.Faults.Clear() }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, c.set)
			if c.reason == "permission" {
				n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Errno: syscall.EACCES})
			}
			box := n.pod("u")
			n.container(box, "app")
			n.startApplier()
			n.startWatcher()
			failed := "Failed " + c.reason
			n.history("u", failed+" 0/0, "+failed+" 1/0")
			n.container(box, "more")
			n.history("u", failed+" 0/0, "+failed+" 1/0, "+failed+" 2/0")
			n.must(n.Settled())
			n.toldOnce(c.reason)
			n.job(0, 1)
			if c.mend == nil {
				n.must(n.Runtime.RemovePod(box))
				n.last("u", failed+" 0/0, Removed")
				return
			}
			c.mend(n)
			n.job(0)
			n.last("u", "Exists 2/0, Exists 2/1, Exists 2/2")
			n.settle()
		})
	}
}

// toldOnce: one line of the applier's log says what is wrong and what to do,
// and resctrlctl status says it, too.
func (n *node) toldOnce(reason string) {
	n.t.Helper()
	var lines []string
	for l := range strings.Lines(n.Applier.Log()) {
		if strings.Contains(l, reason) && !strings.Contains(l, "level=INFO") {
			lines = append(lines, l)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "; ") {
		n.t.Errorf("the applier tells %s in %d lines: %q", reason, len(lines), lines)
	}
	s := n.status()
	if reason != "permission" && (s.Resctrl.Reason != reason || s.Applier.Resctrl != reason) || len(s.Problems) == 0 {
		n.t.Errorf("status: %+v", s)
	}
	r, err := n.Ctl("status")
	n.must(err)
	if !strings.Contains(r.Out, reason) {
		n.t.Errorf("resctrlctl status does not tell %s:\n%s", reason, r.Out)
	}
}

// TestRuntimeAbsent: the NRI socket is not there: the watcher waits, says so
// once, and connects when it comes.
func TestRuntimeAbsent(t *testing.T) {
	t.Parallel()
	n := newNode(t, noRuntime(), with("log.level", `"debug"`))
	n.startApplier()
	n.startWatcher()
	const word = "the NRI socket is not there"
	n.logged(n.Watcher, word, 3) // at debug level, each attempt
	loud := 0
	for l := range strings.Lines(n.Watcher.Log()) {
		if strings.Contains(l, word) && !strings.Contains(l, "level=DEBUG") {
			loud++
		}
	}
	if loud != 1 {
		t.Errorf("it was told %d times:\n%s", loud, n.Watcher.Log())
	}
	if s := n.status(); s.Runtime.State == "connected" || len(s.Problems) == 0 {
		t.Errorf("status: %+v", s)
	}
	n.must(n.Runtime.Up())
	n.snapshots(1)
	n.container(n.pod("u"), "app")
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
}
