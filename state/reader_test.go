package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filled makes a database by the migrations and plain SQL and keeps it open,
// as an applier does.
func filled(t *testing.T, path string, statements ...string) *sql.DB {
	t.Helper()
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_journal_mode=WAL&_foreign_keys=on&_txlock=immediate"}
	db, err := sql.Open("sqlite3", dsn.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	known, err := knownMigrations()
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(t.Context(), db, path, known); err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return db
}

const (
	t1 = "2026-01-01T00:00:01.000000000Z"
	t2 = "2026-01-01T00:00:02.000000000Z"
)

func story() []string {
	pod := func(uid, state, reason, since string, removing int) string {
		return fmt.Sprintf(`INSERT INTO pods (pod_uid, namespace, name, group_state, group_path, reason, removing,
			total_containers, reconciled_containers, failed_since, created_at, updated_at)
			VALUES ('%s', 'ns', 'name-%s', '%s', '/r/mon_groups/pod_%s', '%s', %d, 2, 1, %s, '%s', '%s')`,
			uid, uid, state, uid, reason, removing, since, t1, t2)
	}
	container := func(id, pod, state, reason string) string {
		return fmt.Sprintf(`INSERT INTO containers (container_id, sandbox_id, pod_uid, name, state, reason, created_at, updated_at)
			VALUES ('%s', 'sb', %s, 'n', '%s', '%s', '%s', '%s')`, id, pod, state, reason, t1, t2)
	}
	event := func(uid, typ string) string {
		return fmt.Sprintf(`INSERT INTO events (time, type, pod_uid, group_state, source, line)
			VALUES ('%s', '%s', '%s', '', 'x', 'line-%s')`, t2, typ, uid, uid)
	}
	return []string{
		pod("a", "Exists", "", "NULL", 0), pod("b", "Failed", "capacity", "'"+t2+"'", 0),
		pod("c", "Failed", "capacity", "'"+t1+"'", 0), pod("d", "Failed", "io", "'"+t2+"'", 0), pod("gone", "Exists", "", "NULL", 1),
		container("1", "'a'", "Reconciled", ""), container("2", "'a'", "Partial", "unstable"), container("3", "'b'", "Partial", "capacity"),
		container("4", "NULL", "NoPod", ""), container("5", "'gone'", "Reconciled", ""),
		`INSERT INTO sandboxes (sandbox_id, pod_uid, state, created_at) VALUES ('sb', 'a', 'Ready', '` + t1 + `')`,
		event("a", "AddOrUpdate"), event("b", "AddOrUpdate"), event("a", "Removed"), event("a", "AddOrUpdate"),
		`INSERT INTO meta VALUES ('log', 'L1')`,
	}
}

func open(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestReaderReadsRows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%41.db")
	filled(t, path, story()...)
	r := open(t, path)
	pods, err := r.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	since := t2
	want := PodRow{PodUID: "b", Namespace: "ns", Name: "name-b", GroupState: "Failed", GroupPath: "/r/mon_groups/pod_b", Reason: "capacity",
		TotalContainers: 2, ReconciledContainers: 1, FailedSince: &since, CreatedAt: t1, UpdatedAt: t2}
	if len(pods) != 5 || !pods[4].Removing || pods[0].FailedSince != nil {
		t.Errorf("pods are %+v", pods)
	} else if diff := cmp.Diff(want, pods[1]); diff != "" {
		t.Errorf("pod b (-want +got):\n%s", diff)
	}
	for uid, want := range map[string]string{"": "4 1 2 3 5", "a": "1 2", "nobody": ""} {
		rows, err := r.Containers(t.Context(), uid)
		var ids []string
		for _, c := range rows {
			ids = append(ids, c.ContainerID)
		}
		if got := strings.Join(ids, " "); err != nil || got != want {
			t.Errorf("containers of %q: %q, %v; want %q", uid, got, err, want)
		}
	}
	sandboxes, err := r.Sandboxes(t.Context())
	if err != nil || len(sandboxes) != 1 || sandboxes[0].PodUID != "a" {
		t.Errorf("sandboxes are %+v, %v", sandboxes, err)
	}
}

func TestReaderReadsEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	filled(t, path, story()...)
	r := open(t, path)
	for _, tc := range []struct {
		filter EventFilter
		want   string
	}{
		{EventFilter{}, "1 2 3 4"},
		{EventFilter{After: 1, Before: 4}, "2 3"},
		{EventFilter{PodUID: "a"}, "1 3 4"},
		{EventFilter{After: 1, Limit: 2}, "2 3"},
		{EventFilter{After: 4}, ""},
	} {
		rows, err := r.Events(t.Context(), tc.filter)
		var seqs []string
		for _, e := range rows {
			seqs = append(seqs, fmt.Sprint(e.Seq))
		}
		if got := strings.Join(seqs, " "); err != nil || got != tc.want {
			t.Errorf("%+v: %q, %v; want %q", tc.filter, got, err, tc.want)
		}
	}
	for _, tc := range []struct {
		uid  string
		n    int
		want int64
	}{{"", 2, 2}, {"", 4, 0}, {"", 9, 0}, {"a", 2, 1}, {"a", 1, 3}} {
		if got, err := r.BeforeLast(t.Context(), tc.uid, tc.n); err != nil || got != tc.want {
			t.Errorf("BeforeLast(%q, %d) = %d, %v; want %d", tc.uid, tc.n, got, err, tc.want)
		}
	}
	if id, err := r.LogID(t.Context()); id != "L1" || err != nil {
		t.Errorf("LogID is %q, %v", id, err)
	}
}

func TestReaderSummary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db := filled(t, path, story()...)
	r := open(t, path)
	got, err := r.Summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	delete(got.Meta, "schema")
	want := &Summary{PodsExists: 1, PodsRemoving: 1, PodsFailed: map[string]int{"capacity": 2, "io": 1}, OldestFailure: t1,
		Containers: map[string]int{"Reconciled": 1, "Partial": 2, "NoPod": 1}, Unreconciled: map[string]int{"unstable": 1, "capacity": 1},
		LastEvent: 4, LastEventTime: t2, Meta: map[string]string{"log": "L1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := db.Exec("DELETE FROM events"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Summary(t.Context()); err != nil || got.LastEvent != 4 || got.LastEventTime != "" {
		t.Errorf("after pruning: last event %d at %q, %v; want 4 at no time", got.LastEvent, got.LastEventTime, err)
	}
}

func TestReaderNeverWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	filled(t, path, story()...)
	r := open(t, path)
	if _, err := r.db.Exec("DELETE FROM pods"); err == nil || !strings.Contains(err.Error(), "readonly") {
		t.Errorf("a write through the reader: %v", err)
	}
}

func TestReaderSeesChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.db")
	db := filled(t, path, story()...)
	r := open(t, path)
	before, err := r.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := r.Version(t.Context()); again != before {
		t.Errorf("version went from %d to %d without a change", before, again)
	}
	if _, err := db.Exec("UPDATE pods SET attempts = 1"); err != nil {
		t.Fatal(err)
	}
	if after, err := r.Version(t.Context()); err != nil || after == before {
		t.Errorf("version stayed %d over a commit, %v", after, err)
	}
	if r.Replaced() {
		t.Error("replaced, says the reader of a file that nobody touched")
	}
	if err := os.Rename(path, path+".damaged"); err != nil {
		t.Fatal(err)
	}
	if !r.Replaced() {
		t.Error("not replaced, though the file is away")
	}
	filled(t, path)
	if !r.Replaced() {
		t.Error("not replaced, though another file is there")
	}
}

func TestOpenReaderRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newer := filepath.Join(dir, "newer.db")
	filled(t, newer, "PRAGMA user_version = 99", "UPDATE meta SET value = '99' WHERE key = 'schema'")
	for _, tc := range []struct {
		name, path string
		is         error
		want       string
	}{
		{"absent", filepath.Join(dir, "no.db"), ErrNotCreated, "start resctrl-applier"},
		{"absent directory", filepath.Join(dir, "no", "no.db"), ErrNotCreated, "start resctrl-applier"},
		{"empty", write("empty.db", ""), ErrNotCreated, "start resctrl-applier"},
		{"garbage", write("garbage.db", strings.Repeat("garbage ", 100)), ErrCorrupt, "damaged"},
		{"newer", newer, nil, "has schema version 99"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := OpenReader(tc.path)
			if err == nil {
				r.Close()
				t.Fatal("it opened")
			}
			if tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", err, tc.is, tc.want)
			}
			var ne *NewerError
			if tc.name == "newer" && !errors.As(err, &ne) {
				t.Errorf("%T is no *NewerError", err)
			}
		})
	}
}

// asUser is set in the process that TestReaderOfAGroup starts as another user.
const asUser = "STATE_TEST_READ_AS_USER"

func TestReaderOfAGroup(t *testing.T) {
	if path := os.Getenv(asUser); path != "" {
		r, err := OpenReader(path)
		if err == nil {
			_, err = r.Summary(context.Background())
			r.Close()
		}
		fmt.Println("result:", err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process as another user")
	}
	const member, stranger = 54321, 54322
	dir, err := os.MkdirTemp("", "reader") // t.TempDir's parent lets nobody else in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s.db")
	if err := errors.Join(os.Chmod(dir, 0o750), os.Chown(dir, 0, member), makeFile(path, member)); err != nil {
		t.Fatal(err)
	}
	read := func(gid uint32) string {
		t.Helper()
		// Through /proc, as another user may not reach the test's own directory.
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestReaderOfAGroup$")
		cmd.Env = append(os.Environ(), asUser+"="+path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54320, Gid: gid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	db := filled(t, path, story()...)
	if got := read(member); !strings.Contains(got, "result: <nil>") {
		t.Errorf("a member while the applier runs: %s", got)
	}
	if got := read(stranger); !strings.Contains(got, ErrNotAllowed.Error()) || !strings.Contains(got, "join the group 54321") {
		t.Errorf("a stranger: %s", got)
	}
	db.Close()
	if got := read(member); !strings.Contains(got, ErrNoApplier.Error()) {
		t.Errorf("a member without an applier: %s", got)
	}
	r, err := OpenReader(path)
	if err != nil {
		t.Fatalf("root without an applier: %v", err)
	}
	r.Close()
	if err := os.Chown(dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := read(member); !strings.Contains(got, ErrNotAllowed.Error()) || !strings.Contains(got, "state.group") {
		t.Errorf("a member of no use: %s", got)
	}
}
