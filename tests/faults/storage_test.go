//go:build faults

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// storagePatience is for an applier that waits for a lock of the database at
// every step; recoverPatience for one that has had its snapshot.
const (
	storagePatience = 60 * time.Second
	recoverPatience = 4 * time.Second
)

// storage is what goes wrong with the disk under a running applier.
type storage struct {
	name string
	dirs []string // on a small disk of their own
	// hurt makes the fault, and gives what ends it.
	hurt func(*storageCase) (heal func() error, err error)
	// lost: state is forgotten meanwhile, and the log says so.
	lost bool
	// early: it is so before the applier starts.
	early bool
	// unread: what state knew of pods is unknown until the next snapshot, so the
	// group of a pod that ends in that second stays until then.
	unread bool
	said   string // what the applier's log says of it
}

// storageCase is a node with small disks and an applier at work.
type storageCase struct {
	*cell
}

func (c *storageCase) dir(name string) string { return filepath.Join(c.Dir, name) }

var storages = []storage{
	{name: "no room for state", dirs: []string{"lib"}, hurt: fill("lib"), lost: true, said: "state cannot be used"},
	{name: "no room for the event log", dirs: []string{"out"}, hurt: fill("out"), said: "events wait"},
	{name: "no room for both", dirs: []string{"lib", "out"}, hurt: fill("lib", "out"), lost: true, said: "state cannot be used"},
	{name: "start on a read-only disk", dirs: []string{"lib"}, early: true, hurt: seal("lib"), lost: true, said: "state cannot be used"},
	{name: "event log read-only", dirs: []string{"out"}, hurt: seal("out"), said: "events wait"},
	{name: "an open sqlite3 transaction", hurt: openTransaction, lost: true, said: "locked by another program"},
	{name: "database truncated", hurt: damage(func(b []byte) []byte { return b[:len(b)/3] }), lost: true, unread: true},
	{name: "database zeroed", hurt: damage(func(b []byte) []byte { return make([]byte, len(b)) }), lost: true, unread: true},
	{name: "database full of junk", hurt: damage(func(b []byte) []byte { return []byte(strings.Repeat("junk", len(b)/4)) }), lost: true, unread: true},
	{name: "database removed", hurt: removeState, lost: true, said: "deleted or replaced"},
}

// TestStorage: the disk fails under a running applier, pods start meanwhile
// and get their groups; when it is healed, everything catches up.
func TestStorage(t *testing.T) {
	for _, s := range storages {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			if len(s.dirs) > 0 && os.Geteuid() != 0 {
				t.Skip("small disks are mounted by root only")
			}
			s.try(t)
		})
	}
}

func (s storage) try(t *testing.T) {
	// One RMID more, for a group that stays a while.
	c := &storageCase{cell: newCell(t, func(o *world.Options) { o.Sim.NumRMIDs++ })}
	for _, d := range s.dirs {
		c.must(unix.Mount("tmpfs", c.dir(d), "tmpfs", 0, "size=4m,mode=750"))
		t.Cleanup(func() { unix.Unmount(c.dir(d), unix.MNT_DETACH) })
	}
	p := c.newPeer()
	var heal func() error
	var err error
	if s.early {
		heal, err = s.hurt(c)
		c.must(err)
	}
	d, err := c.StartApplier()
	c.must(err)
	c.must(p.answer([]fields{c.pod("a"), c.pod("z")}, []fields{c.container("a2", "RUNNING"), c.container("z1", "RUNNING")}))
	if !s.early {
		c.until(d, "the first pods", func() error { return c.expect(map[string]string{"a": "Exists 1/1", "z": "Exists 1/1"}) })
	}

	w := &wire{epoch: epochName(c.epochs), seq: 6}
	if !s.early {
		heal, err = s.hurt(c)
		c.must(err)
	}
	for _, uid := range []string{"b", "c"} {
		w.put("RUN_POD_SANDBOX", fields{"pod": c.pod(uid)})
		w.put("START_CONTAINER", fields{"pod": c.pod(uid), "container": c.container(uid+"1", "CREATED")})
	}
	w.put("REMOVE_POD_SANDBOX", fields{"pod": c.pod("z")})
	w.put("RUN_POD_SANDBOX", fields{"pod": c.pod("d")})
	w.put("RUN_POD_SANDBOX", fields{"pod": c.pod("e")})
	w.put("START_CONTAINER", fields{"pod": c.pod("e"), "container": c.container("e1", "CREATED")})
	c.must(p.put(w.String()))
	c.until(d, "the groups are there although the disk fails", func() error { return c.groupsThere(s.unread) })
	if s.said != "" {
		c.until(d, "it says what is wrong", func() error {
			if !strings.Contains(d.Log(), s.said) {
				return fmt.Errorf("not a word of %q", s.said)
			}
			return nil
		})
	}
	c.must(heal())
	if s.lost {
		for !c.settled() { // a new epoch is asked for, perhaps more than one
			err := p.answer([]fields{c.pod("a"), c.pod("b"), c.pod("c"), c.pod("d"), c.pod("e")}, []fields{
				c.container("a2", "RUNNING"), c.container("b1", "RUNNING"), c.container("c1", "RUNNING"), c.container("e1", "RUNNING")})
			if err != nil {
				t.Fatalf("%v; as it is: %v\n%s", err, c.expectAny(storyEnd), d.Log())
			}
		}
		if !strings.Contains(d.Log(), "unrecorded_events=") {
			t.Errorf("the loss is not told:\n%s", d.Log())
		}
	}
	c.until(d, "everything catches up", func() error { return c.expectAny(storyEnd) })
}

// until is world.Until with the applier's log in its complaint.
func (c *storageCase) until(d *world.Daemon, what string, ask func() error) {
	c.t.Helper()
	if err := world.UntilWithin(storagePatience, what, ask); err != nil {
		c.t.Fatalf("%v\n%s", err, d.Log())
	}
	if !d.Alive() {
		c.t.Fatalf("the applier has ended:\n%s", d.Log())
	}
}

// settled says whether the applier has found its way back to the end of the
// story, or asks nobody any more; it gives it a moment for that.
func (c *storageCase) settled() bool {
	return world.UntilWithin(recoverPatience, "", func() error { return c.expectAny(storyEnd) }) == nil
}

// groupsThere: the five pods' groups are there, with their tasks in them, and
// none of pod z, unless it may stay.
func (c *storageCase) groupsThere(zStays bool) error {
	groups, err := c.Groups()
	if zStays {
		groups = slices.DeleteFunc(groups, func(g string) bool { return g == c.GroupPath("z") })
	}
	if err != nil || len(groups) != len(storyEnd) {
		return fmt.Errorf("groups %v, %v", groups, err)
	}
	for id, group := range map[string]string{"b1": c.GroupPath("b"), "e1": c.GroupPath("e"),
		"c1": filepath.Join(c.Mount.Resctrl(), controlGroup, "mon_groups", "pod_c")} {
		if n, missing, err := c.Membership(id, group); n == 0 || len(missing) > 0 || err != nil {
			return fmt.Errorf("container %s: %d tasks, %v not in its group, %v", id, n, missing, err)
		}
	}
	return nil
}

// expectAny is expect for a state that may have been made anew: of the event
// log only what has the present database's id is compared.
func (c *storageCase) expectAny(want map[string]string) error {
	id, err := c.Value("SELECT value FROM meta WHERE key = 'log'")
	if err != nil {
		return err
	}
	rotated, _ := os.ReadFile(c.EventLog() + ".1")
	text, err := os.ReadFile(c.EventLog())
	if err != nil {
		return err
	}
	text = append(rotated, text...)
	var own strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, fmt.Sprintf(`{"log":%q,`, id)) {
			own.WriteString(line)
		}
	}
	part := filepath.Join(c.Dir, "log", "own.jsonl")
	if _, err := world.ReadEvents(c.EventLog()); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(part, []byte(own.String()), 0o600), c.expect(want, part))
}

// fill takes all room of disks.
func fill(dirs ...string) func(*storageCase) (func() error, error) {
	return func(c *storageCase) (func() error, error) {
		for _, d := range dirs {
			if d == "lib" { // what was checkpointed of the WAL is room that it has
				if out, err := exec.Command("sqlite3", c.Database(), "PRAGMA wal_checkpoint(TRUNCATE);").CombinedOutput(); err != nil || string(out) != "0|0|0\n" {
					return nil, fmt.Errorf("the WAL is not emptied: %v, %s", err, out)
				}
			}
			if err := os.WriteFile(c.dir(d)+"/ballast", make([]byte, 8<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
				return nil, fmt.Errorf("the disk is not full: %v", err)
			}
			if d == "out" { // the present file's last page has room
				if err := os.Rename(c.EventLog(), c.EventLog()+".1"); err != nil {
					return nil, err
				}
			}
		}
		return func() error {
			var errs []error
			for _, d := range dirs {
				errs = append(errs, os.Remove(c.dir(d)+"/ballast"))
			}
			return errors.Join(errs...)
		}, nil
	}
}

// seal makes a disk read-only on which nothing is open.
func seal(dir string) func(*storageCase) (func() error, error) {
	return func(c *storageCase) (func() error, error) {
		again := func(flags uintptr) error { return unix.Mount("", c.dir(dir), "", unix.MS_REMOUNT|flags, "size=4m") }
		return func() error { return again(0) }, again(unix.MS_RDONLY)
	}
}

// openTransaction is a person's BEGIN IMMEDIATE, open for a minute with LONG.
func openTransaction(c *storageCase) (func() error, error) {
	end, err := heldTransaction(c.Database())
	since := time.Now()
	return func() error {
		for hold := time.Minute; long && time.Since(since) < hold; {
			time.Sleep(hold - time.Since(since))
		}
		return end()
	}, err
}

// damage changes the database's bytes in place.
func damage(change func([]byte) []byte) func(*storageCase) (func() error, error) {
	return func(c *storageCase) (func() error, error) {
		for _, path := range []string{c.Database(), c.Database() + "-wal"} {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				return nil, err
			}
			_, err = f.Write(change(b))
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
		}
		return func() error { return nil }, nil
	}
}

func removeState(c *storageCase) (func() error, error) {
	return func() error { return nil }, errors.Join(os.Remove(c.Database()), os.Remove(c.Database()+"-wal"), os.Remove(c.Database()+"-shm"))
}
