package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// filledAt makes a database of some pods and events, and closes it.
func filledAt(t testing.TB, dir string) (path, logID string) {
	t.Helper()
	path = filepath.Join(dir, "state.db")
	s := openAt(t, path, Options{})
	fill(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, s.LogID()
}

func fill(t testing.TB, s *Store) {
	t.Helper()
	for i := range 30 {
		p := podOf(fmt.Sprintf("pod-%02d", i), 2)
		b := Batch{Events: []SourcedEvent{eventOf(p)}}
		b.Pods = append(b.Pods, p)
		mustCommit(t, s, b)
	}
}

// reopen opens what was damaged, and checks that it then works.
func reopen(t testing.TB, path string) (s *Store, logged string) {
	t.Helper()
	var log bytes.Buffer
	s = openAt(t, path, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	p := podOf("after", 1)
	b := Batch{Events: []SourcedEvent{eventOf(p)}}
	b.Pods = append(b.Pods, p)
	mustCommit(t, s, b)
	wantPod(t, s, p)
	return s, log.String()
}

func asides(t testing.TB, path string) []string {
	t.Helper()
	found, err := filepath.Glob(path + ".damaged-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestReopenKeepsEverything(t *testing.T) {
	t.Parallel()
	path, logID := filledAt(t, t.TempDir())
	s, logged := reopen(t, path)
	if s.LogID() != logID || logged != "" || len(asides(t, path)) != 0 {
		t.Errorf("log id %s, was %s; logged %q", s.LogID(), logID, logged)
	}
	wantPod(t, s, podOf("pod-07", 2))
	if lines, _ := s.Unexported(context.Background(), 29, 10); len(lines) != 2 || !strings.Contains(lines[1], `"seq":31,`) {
		t.Errorf("events after 29: %q", lines)
	}
}

// edit damages a file's bytes.
func edit(f func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f(b), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// execute damages a sound file's content.
func execute(q string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		db := openPool(path, time.Second, "immediate", "FULL", "PRAGMA foreign_keys = 0")
		defer db.Close()
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
}

// damages are what can happen to a database that is not open.
func damages() map[string]func(*testing.T, string) {
	return map[string]func(*testing.T, string){
		"not a database":      edit(func([]byte) []byte { return []byte("pods are kept here\n") }),
		"truncated":           edit(func(b []byte) []byte { return b[:len(b)/2] }),
		"truncated in a page": edit(func(b []byte) []byte { return b[:len(b)-777] }),
		"truncated header":    edit(func(b []byte) []byte { return b[:50] }),
		"zeroed":              edit(func(b []byte) []byte { clear(b); return b }),
		"zeroed header":       edit(func(b []byte) []byte { clear(b[:100]); return b }),
		"zeroed tables":       edit(func(b []byte) []byte { clear(b[4096:]); return b }),
		"version in header":   edit(func(b []byte) []byte { b[61] ^= 1; return b }),
		"application id":      edit(func(b []byte) []byte { b[70] ^= 4; return b }),
		"a state's letter":    edit(func(b []byte) []byte { return bytes.Replace(b, []byte("Reconciled/"), []byte("Reconcilet/"), -1) }),
		"an event's line":     edit(func(b []byte) []byte { return bytes.Replace(b, []byte(`","type":"Add`), []byte(`",#type":"Add`), -1) }),
		"an old event's page": func(t *testing.T, path string) {
			execute(`INSERT INTO meta VALUES ('export_seq', '30') ON CONFLICT DO UPDATE SET value = '30'`)(t, path)
			edit(func(b []byte) []byte {
				page := bytes.LastIndex(b, []byte(`"seq":3,`)) / 4096 * 4096
				clear(b[page : page+4096])
				return b
			})(t, path)
		},
		"a table is gone":   execute("DROP TABLE containers"),
		"a column is gone":  execute("DROP VIEW failed_pods; ALTER TABLE pods DROP COLUMN attempts; CREATE VIEW failed_pods AS SELECT 1"),
		"a view is gone":    execute("DROP VIEW node_summary"),
		"meta is empty":     execute("DELETE FROM meta"),
		"sandbox of no pod": execute("DELETE FROM pods WHERE pod_uid = 'pod-03'"),
	}
}

func TestDamagedFileIsMovedAside(t *testing.T) {
	t.Parallel()
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, logID := filledAt(t, t.TempDir())
			damage(t, path)
			bad, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, logged := reopen(t, path)
			aside := asides(t, path)
			if len(aside) != 1 {
				t.Fatalf("moved aside: %q; logged %s", aside, logged)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("what was moved aside is not what was damaged: %d bytes of %d, %v", len(kept), len(bad), err)
			}
			if s.LogID() == logID {
				t.Error("the new database has the old log id")
			}
			if !strings.Contains(logged, "damaged") || !strings.Contains(logged, aside[0]) {
				t.Errorf("not told: %s", logged)
			}
		})
	}
}

// Whatever bit flips, in the database or in the WAL that a kill left: Open
// gives a store that works, and what it then says is sound.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openTemp(t)
	fill(t, s)
	files := map[string][]byte{}
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(s.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		files[suffix] = b
	}
	seed := uint64(20260301)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 150 {
		path := filepath.Join(dir, fmt.Sprint(i), "state.db")
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		for suffix, b := range files {
			b = bytes.Clone(b)
			if (suffix == "-wal") == (i%2 == 0) {
				for range 1 + r.IntN(8) {
					b[r.IntN(len(b))] ^= 1 << r.IntN(8)
				}
			}
			if i%10 == 0 && suffix == "-wal" {
				b = b[:r.IntN(len(b))]
			}
			if err := os.WriteFile(path+suffix, b, 0o640); err != nil {
				t.Fatal(err)
			}
		}
		s, _ := reopen(t, path)
		uids, err := s.PodUIDs(context.Background())
		if err != nil {
			t.Fatalf("flip %d: %v", i, err)
		}
		for _, uid := range uids {
			mustPod(t, s, uid)
		}
		s.Close()
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	path, _ := filledAt(t, t.TempDir())
	db := openPool(path, time.Second, "immediate", "FULL", "")
	for _, q := range []string{"PRAGMA user_version = 99", "UPDATE meta SET value = '99' WHERE key = 'schema'"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	before, _ := os.ReadFile(path)
	_, err := Open(path, Options{})
	var newer *NewerError
	if !errors.As(err, &newer) || newer.Found != 99 || newer.Known != 2 || newer.Path != path {
		t.Fatalf("Open = %v", err)
	}
	if !strings.Contains(err.Error(), "install the newer") {
		t.Errorf("error does not say what to do: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) || len(asides(t, path)) != 0 {
		t.Error("the refused database was changed")
	}
}

func TestDatabaseOfAnotherProgramIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "places.sqlite")
	db := openPool(path, time.Second, "immediate", "FULL", "")
	if _, err := db.Exec("CREATE TABLE bookmarks (url)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	_, err := Open(path, Options{})
	if err == nil || !strings.Contains(err.Error(), "another program") || len(asides(t, path)) != 0 {
		t.Fatalf("Open = %v, moved aside %q", err, asides(t, path))
	}
}

func TestMigrationsGoForwardAndAreWholeOrNot(t *testing.T) {
	t.Parallel()
	path, _ := filledAt(t, t.TempDir())
	ctx := context.Background()
	db := openPool(path, time.Second, "immediate", "FULL", "")
	defer db.Close()
	known, err := knownMigrations()
	if err != nil {
		t.Fatal(err)
	}
	next := len(known) + 1
	broken := append(known, migration{next, "9999_broken.sql", "ALTER TABLE pods ADD COLUMN colour TEXT; SELECT nonsense"})
	if err := migrate(ctx, db, path, broken); err == nil || !strings.Contains(err.Error(), "9999_broken.sql") {
		t.Fatalf("broken migration = %v", err)
	}
	if v, err := schemaVersion(ctx, db, path, len(known)); v != len(known) || err != nil {
		t.Fatalf("after a broken migration: version %d, %v", v, err)
	}
	good := append(known, migration{next, "9999_good.sql", "ALTER TABLE pods ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'"})
	if err := migrate(ctx, db, path, good); err != nil {
		t.Fatal(err)
	}
	var colour string
	if err := db.QueryRow("SELECT colour FROM pods WHERE pod_uid = 'pod-07'").Scan(&colour); err != nil || colour != "red" {
		t.Fatalf("migrated pod: %q, %v", colour, err)
	}
	if _, err := Open(path, Options{}); err == nil || !errors.As(err, new(*NewerError)) {
		t.Errorf("the old program opens the new database: %v", err)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	for name, mk := range map[string]func(string) error{
		"symlink":   func(p string) error { return os.Symlink("/etc/passwd", p) },
		"fifo":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"wal link":  func(p string) error { return os.Symlink("/etc/passwd", p+"-wal") },
	} {
		path := filepath.Join(t.TempDir(), "state.db")
		if err := mk(path); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: Open = %v, %v", name, s, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "state.db"), Options{Group: "no-such-group"}); err == nil || !strings.Contains(err.Error(), "state.group") {
		t.Errorf("unknown group: %v", err)
	}
}

// The umask is a process's, so a process of its own has a hostile one.
func TestModesAndGroupDoNotDependOnTheUmask(t *testing.T) {
	t.Parallel()
	const env = "STATE_TEST_UMASK"
	group := ""
	if os.Geteuid() == 0 {
		group = "4242"
	}
	if path := os.Getenv(env); path != "" {
		unix.Umask(0o077)
		s := openAt(t, path, Options{Group: group})
		fill(t, s)
		for _, suffix := range suffixes {
			wantAccess(t, path+suffix, 0o640, group)
		}
		wantAccess(t, filepath.Dir(path), 0o750, group)
		return
	}
	path := filepath.Join(t.TempDir(), "lib", "state.db")
	cmd := exec.Command(os.Args[0], "-test.run=^TestModesAndGroupDoNotDependOnTheUmask$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Another group, later, is given to what is there.
	if group != "" {
		openAt(t, path, Options{Group: "4343"})
		wantAccess(t, path, 0o640, "4343")
		wantAccess(t, path+"-wal", 0o640, "4343")
	}
}

func wantAccess(t *testing.T, name string, mode os.FileMode, group string) {
	t.Helper()
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	gid := fmt.Sprint(st.Sys().(*syscall.Stat_t).Gid)
	if st.Mode().Perm() != mode || (group != "" && gid != group) {
		t.Errorf("%s has mode %o and group %s, want %o and %q", name, st.Mode().Perm(), gid, mode, group)
	}
}

// A path with everything that a DSN could stumble over.
func TestStrangePaths(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?mode=memory&c#d%41", "state.db")
	filledAt(t, filepath.Dir(path))
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

// TestOlderSchema: a database of the first schema is opened with all its rows.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	known, err := knownMigrations()
	if err != nil {
		t.Fatal(err)
	}
	db := openPool(path, time.Second, "immediate", "FULL", "")
	if err := migrate(t.Context(), db, path, known[:1]); err != nil {
		t.Fatal(err)
	}
	const day = "2026-01-01T00:00:00.000000000Z"
	if _, err := db.Exec(`INSERT INTO pods (pod_uid, namespace, name, group_state, group_path, reason, created_at, updated_at)
		VALUES ('old', 'ns', 'n', 'Failed', '/g', 'capacity', ?, ?); INSERT INTO meta VALUES ('log', 'first')`, day, day); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := s.Pod(t.Context(), "old")
	if err != nil || p == nil || p.Pod.Reason != "capacity" || s.LogID() != "first" {
		t.Fatalf("pod %+v, log %q, %v", p, s.LogID(), err)
	}
	p.Pod.LastError = "Out of RMIDs"
	if err := s.Commit(t.Context(), Batch{Pods: []*rules.PodState{p}}); err != nil {
		t.Fatal(err)
	}
	if again, err := s.Pod(t.Context(), "old"); err != nil || again.Pod.LastError != "Out of RMIDs" {
		t.Errorf("pod %+v, %v", again, err)
	}
}
