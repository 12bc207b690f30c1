//go:build faults

package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// places are what we write to, below the node's directory.
var places = []string{
	"run/lifecycle.pipe", "run/ack.pipe", "run/applier.lock", "run/writer.lock", "run/writer.turn",
	"lib/state.db", "lib/state.db-wal", "lib/state.db-shm", "lib/state.db.lock", "out/events.jsonl",
}

// TestSymlinks: a link to somebody's file stands at each place that we write
// to. The file is not changed, nor its mode; the applier says which path it is,
// or does without.
func TestSymlinks(t *testing.T) {
	c := newCell(t, nil)
	for _, place := range places {
		for _, to := range []string{"canary", "absent"} {
			c.sweep()
			canary := filepath.Join(c.Dir, "log", "canary")
			c.must(os.WriteFile(canary, []byte("precious"), 0o604))
			target := filepath.Join(c.Dir, "log", to)
			c.must(os.Symlink(target, filepath.Join(c.Dir, place)))
			o := stdin(c, tracer.Plan{}, c.story())
			if o.code > 127 || strings.Contains(o.log, "goroutine ") {
				t.Errorf("%s: it died (%d): %s", place, o.code, o.log)
			}
			text, err := os.ReadFile(canary)
			st, serr := os.Stat(canary)
			if err != nil || serr != nil || string(text) != "precious" || st.Mode().Perm() != 0o604 {
				t.Errorf("%s: what it led to is now %q, %v, %v", place, text, st.Mode(), err)
			}
			if _, err := os.Lstat(filepath.Join(c.Dir, "log", "absent")); err == nil {
				t.Errorf("%s: a file was made where it led to", place)
				c.must(os.Remove(filepath.Join(c.Dir, "log", "absent")))
			}
			if o.code != 0 && !strings.Contains(o.log, filepath.Base(place)) {
				t.Errorf("%s: exit code %d does not say so: %s", place, o.code, o.log)
			}
			t.Logf("%s -> %s: exit code %d", place, to, o.code)
		}
	}
}

// TestModes: nobody else can write what we make, or read more than the group
// may, whatever the umask.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	c := newCell(t, nil)
	for _, d := range []string{"run", "lib", "out"} {
		c.sweep()
		c.must(os.RemoveAll(filepath.Join(c.Dir, d, "deep")))
	}
	c.must(c.WriteConfig(map[string]string{
		"pipe.path": `"` + c.Dir + `/run/deep/lifecycle.pipe"`, "pipe.ack_path": `"` + c.Dir + `/run/deep/ack.pipe"`,
		"state.path": `"` + c.Dir + `/lib/deep/state.db"`, "events.path": `"` + c.Dir + `/out/deep/events.jsonl"`,
	}))
	d, err := c.startTraced(tracer.Plan{})
	c.must(err)
	_, err = os.Stat(c.Dir) // the daemon makes all of it by itself
	c.must(err)
	c.must(untilThere(filepath.Join(c.Dir, "run/deep/lifecycle.pipe"), filepath.Join(c.Dir, "lib/deep/state.db-wal")))
	d.stop()
	if o := stdin(c, tracer.Plan{}, c.story()); o.code != 0 {
		t.Fatalf("%d: %s", o.code, o.log)
	}
	for _, dir := range []string{"run", "lib", "out"} {
		filepath.Walk(filepath.Join(c.Dir, dir, "deep"), func(path string, st os.FileInfo, err error) error {
			c.must(err)
			most := os.FileMode(0o640)
			switch {
			case st.IsDir():
				most = 0o750
			case st.Mode().Type() == os.ModeNamedPipe, strings.Contains(path, ".lock"), strings.Contains(path, "writer."):
				most = 0o600
			}
			if st.Mode().Perm()&^most != 0 {
				t.Errorf("%s has mode %v", path, st.Mode())
			}
			return nil
		})
	}
}

// untilThere waits for files.
func untilThere(paths ...string) error {
	return world.Until("files are there", func() error {
		for _, p := range paths {
			if _, err := os.Lstat(p); err != nil {
				return err
			}
		}
		return nil
	})
}
