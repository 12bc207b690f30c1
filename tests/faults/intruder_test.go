//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// attempts are what somebody tries on a file $P of ours in the directory $D; in
// $OWN is what he made himself.
var attempts = []string{
	`: >>"$P"`, `: >"$P"`, `echo '{"hello":"me"}' >>"$P"`, `rm -f "$P"`, `mv "$P" "$P.away"`, `ln -f "$P" "$OWN/hard"`, `chmod 0666 "$P"`,
	`ln -s "$OWN/file" "$D/new"`, `mkfifo "$D/new"`, `mkdir "$D/new"`, `touch "$D/new"`, `mv "$D" "$D.away"`, `rmdir "$D"`, `chmod 0777 "$D"`,
	`mv -f "$OWN/file" "$P"`,
}

// readings are what a reader of state and log may do, and nobody else.
var readings = []string{`cat "$P"`, `ls "$D"`}

// try runs a script as another user; it says whether that worked.
func (n *node) try(script, path, own string, gid uint32) bool {
	n.t.Helper()
	cmd := exec.Command("timeout", "5", "sh", "-c", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "P=" + path, "D=" + filepath.Dir(path), "OWN=" + own}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: gid}}
	return cmd.Run() == nil
}

// TestIntruder: an ordinary user, and one of state.group, try all they can on
// what the programs make, also where somebody opened the directories for all.
func TestIntruder(t *testing.T) {
	n := newNode(t, nil)
	const group = 1 // daemon, on every Debian
	deep := func(dir, file string) string { return filepath.Join(n.Dir, dir, "deep", file) }
	settings := map[string]string{"state.group": `"daemon"`}
	for key, path := range map[string]string{"pipe.path": deep("run", "lifecycle.pipe"), "pipe.ack_path": deep("run", "ack.pipe"),
		"state.path": deep("lib", "state.db"), "events.path": deep("out", "events.jsonl")} {
		settings[key] = fmt.Sprintf("%q", path)
	}
	n.must(n.WriteConfig(settings))
	own := filepath.Join(n.Dir, "own")
	n.must(os.Mkdir(own, 0o777))
	n.must(os.Chown(own, stranger, stranger))
	n.must(os.Chmod(shop.Dir, 0o711)) // the way to it is not what is tried
	for _, d := range []string{"run", "lib", "out"} {
		n.must(os.Chmod(filepath.Join(n.Dir, d), 0o755))
	}
	n.startBoth()
	n.pod("steady")
	n.until("the pod is told", func() error {
		return exec.Command("grep", "-q", `"reconciled_containers":1`, deep("out", "events.jsonl")).Run()
	})

	fresh := func() {
		file := filepath.Join(own, "file")
		n.must(os.WriteFile(file, []byte("mine"), 0o644))
		n.must(os.Chown(file, stranger, stranger))
	}
	fresh()
	for _, script := range []string{`: >>"$P"`, `mkfifo "$D/new"`, `cat "$P"`} { // where he may
		if !n.try(script, filepath.Join(own, "file"), own, stranger) {
			t.Fatalf("%s does not even work on a file of his own", script)
		}
	}
	for _, open := range []bool{false, true} {
		for _, dir := range []string{"run", "lib", "out"} {
			if open {
				n.must(os.Chmod(deep(dir, ""), 0o755))
			}
			entries, err := os.ReadDir(deep(dir, ""))
			n.must(err)
			for _, e := range entries {
				path := deep(dir, e.Name())
				shared := (dir == "lib" || dir == "out") && !strings.HasSuffix(path, ".lock")
				for _, gid := range []uint32{stranger, group} {
					for _, script := range attempts {
						fresh()
						if n.try(script, path, own, gid) {
							t.Errorf("group %d may %s, P=%s", gid, script, path)
						}
					}
					for _, script := range readings {
						listing := strings.HasPrefix(script, "ls")
						may := gid == group && (shared || listing && dir != "run") || listing && open
						if n.try(script, path, own, gid) != may {
							t.Errorf("group %d, directories open %v: %s, P=%s: it is not so that he may: %v", gid, open, script, path, may)
						}
					}
				}
			}
		}
	}
	for _, d := range []*world.Daemon{n.Applier, n.Watcher} {
		if n.try(fmt.Sprint("kill -STOP ", d.PID), "/", own, group) {
			t.Errorf("he may stop %s", d.Name)
		}
	}
	if !n.try(`sqlite3 -readonly "$P" 'SELECT 1 FROM pods'`, deep("lib", "state.db"), own, group) || n.try(`sqlite3 "$P" 'DELETE FROM events'`, deep("lib", "state.db"), own, group) {
		t.Error("the group may not read the state, or may write it")
	}
	n.pod("after")
	n.until("a pod after all that", func() error {
		pods, err := world.AgreeOnRecord(deep("lib", "state.db"), deep("out", "events.jsonl"))
		if err == nil && pods["after"].Reconciled != 1 {
			err = fmt.Errorf("%+v", pods)
		}
		return err
	})
}

// TestNamesAreData: what a pod's author may choose reaches logs, state, events
// and a person's terminal as data.
func TestNamesAreData(t *testing.T) {
	names := []string{
		"\x1b[2J\x1b]0;owned\x07", "a\nlevel=ERROR msg=forged", "a\r\nb", "\u202egnp.exe", "\u009b31m", "back\b\b\b\b", "'; DROP TABLE pods; --",
		`"},{"type":"Removed"}`, "%s%n%x", "\x7f", "tab\there", strings.Repeat("long ", 5000), "\u2028", "ünïcode", `back\slash`,
	}
	for _, format := range []string{"text", "json"} {
		n := running(t, map[string]string{"log.format": fmt.Sprintf("%q", format), "log.level": `"debug"`})
		want := map[string]string{}
		for i, name := range names {
			uid := fmt.Sprint("u", i)
			box, err := n.Runtime.RunPod(name, name, uid, nrirt.PodOptions{})
			n.must(err)
			key := name[:min(len(name), 4000)] // a longer id cannot be told, and is counted
			_, err = n.Runtime.CreateContainer(box, name, nrirt.ContainerOptions{ID: "container-" + key, CgroupsPath: "/" + key})
			n.must(err)
			want[uid] = "Exists 1/0"
		}
		n.has(want)
		for _, args := range [][]string{{"status"}, {"pods"}, {"containers"}, {"events"}, {"doctor"}} {
			for _, more := range [][]string{nil, {"--json"}} {
				r, err := n.Ctl(append(args, more...)...)
				n.must(err)
				harmless(t, fmt.Sprint("resctrlctl ", args, more), r.Out+r.Err)
			}
		}
		r, err := n.Retry("--json")
		n.must(err)
		harmless(t, "resctrl-retry", r.Out+r.Err)
		for _, d := range []*world.Daemon{n.Watcher, n.Applier} {
			if format == "text" {
				harmless(t, d.Name, d.Log())
			}
			for line := range strings.Lines(d.Log()) {
				if format == "json" && !json.Valid([]byte(line)) || format == "text" && !strings.HasPrefix(line, "time=") {
					t.Errorf("%s logged %.200q", d.Name, line)
				}
			}
		}
	}
}

// harmless: a text has no character that a terminal obeys but newlines, nor one
// that turns the direction of writing.
func harmless(t *testing.T, who, text string) {
	t.Helper()
	at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) })
	if at >= 0 {
		t.Errorf("%s says %q", who, text[max(0, at-60):min(len(text), at+60)])
	}
}
