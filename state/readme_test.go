package state

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// node makes a database in which every query of the README finds something.
func node(t *testing.T) *Store {
	t.Helper()
	s := openTemp(t)
	web := podOf("uid-1", 2)
	web.Pod.Name = "web-1"
	waits := podOf("uid-2", 1)
	waits.Pod.GroupState, waits.Pod.Reason, waits.Pod.FailedSince, waits.Pod.Attempts = rules.GroupFailed, rules.ReasonCapacity, t0.Add(-time.Hour), 3
	waits.Pod.Reconciled = 0
	waits.Containers[0].State, waits.Containers[0].Reason, waits.Containers[0].Counted = rules.ContainerPartial, rules.ReasonCapacity, false
	gone := podOf("uid-3", 0)
	gone.Pod.Name = "gone"
	stuck := podOf("uid-4", 0)
	stuck.Pod.Removing = true
	b := batchOf(web, waits, stuck)
	b.Orphans = []rules.Container{orphan("c9", "sb-9", 0)}
	removed := eventOf(gone)
	removed.Type = rules.Removed
	b.Events = []SourcedEvent{eventOf(web), eventOf(waits), eventOf(gone), removed}
	mustCommit(t, s, b)
	if err := s.SetPosition(context.Background(), 2, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	return s
}

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// Every query that the README shows runs as it stands, through the program
// that people type it into, beside a running applier, and finds something.
func TestREADMEQueries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := sqlBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 20 {
		t.Fatalf("only %d queries found", len(blocks))
	}
	s := node(t)
	runs := []func(path, query string) (string, error){queryDriver}
	if _, err := exec.LookPath("sqlite3"); err == nil {
		runs = append(runs, queryProgram)
	}
	for _, block := range blocks {
		for _, run := range runs {
			out, err := run(s.path, block[1])
			if err != nil || strings.TrimSpace(out) == "" {
				t.Errorf("%s\ngives %q, %v", block[1], out, err)
			}
		}
	}
	// The programs go on while and after people look.
	mustCommit(t, s, batchOf(podOf("uid-9", 1)))
}

func queryProgram(path, query string) (string, error) {
	out, err := exec.Command("sqlite3", "-readonly", "-bail", path, query).CombinedOutput()
	return string(out), err
}

func queryDriver(path, query string) (string, error) {
	db := openPool(path, time.Second, "deferred", "FULL", "PRAGMA query_only = 1")
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		to := make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			return "", err
		}
		for _, v := range values {
			out.WriteString(v.String + "|")
		}
		out.WriteString("\n")
	}
	return out.String(), rows.Err()
}

// The README names every table, view and column of pods' and containers' rows
// that a person may meet as a value.
func TestREADMEKnowsTheSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := openTemp(t)
	names, err := s.texts(context.Background(), `SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'
		UNION SELECT key FROM meta`)
	if err != nil || len(names) < 8 {
		t.Fatalf("names %q, %v", names, err)
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
	for _, r := range []rules.Reason{rules.ReasonCapacity, rules.ReasonNotMounted, rules.ReasonUnsupported, rules.ReasonPermission,
		rules.ReasonIO, rules.ReasonCreating, rules.ReasonNoTasks, rules.ReasonOtherControlGroup, rules.ReasonUnstable} {
		if !strings.Contains(string(text), "`"+string(r)+"`") {
			t.Errorf("README.md does not name the reason %s", r)
		}
	}
	if migrations, _ := filepath.Glob("migrations/*.sql"); len(migrations) == 0 {
		t.Error("no migrations beside the README")
	}
}
