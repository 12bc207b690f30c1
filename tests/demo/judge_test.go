package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// told is what the events must have told of each pod of the story, in order:
// the contract's sequences.
var told = map[string]string{
	// Found at synchronize, adopted by the applier that came back.
	"orders": "Exists 0/0, Exists 1/1, Exists 1/1",
	"cart":   "Exists 0/0, Exists 0/0",
	// The restart of its container was seen in the snapshot alone: the dead one
	// is gone first, then the new one is found.
	"web":    "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 1/1, Exists 2/2",
	"search": "Exists 0/0, Removed",
	"mail":   "Exists 0/0, Removed",
	"batch":  "Failed capacity 0/0, Failed capacity 1/0, Exists 1/0, Exists 1/1, Exists 1/1",
}

// judge says what is wrong with the event log and the database in dir.
func judge(dir string) error {
	log, database := filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "state.db")
	pods, err := world.AgreeOnRecord(database, log)
	if err != nil {
		return err
	}
	events, err := world.ReadEvents(log)
	if err != nil {
		return err
	}
	history := map[string][]string{}
	var errs []error
	for i, e := range events {
		history[e.Name] = append(history[e.Name], e.String())
		if e.Log != events[0].Log || e.Seq != int64(i+1) || e.Namespace != "shop" || e.Node != "sim-node" {
			errs = append(errs, fmt.Errorf("event %d is %s", i+1, e.Line))
		}
		by := "resctrl-applier"
		if e.Name == "batch" && slices.Contains([]int{3, 4}, len(history["batch"])) {
			by = "resctrl-retry" // it served the pod
		}
		if e.Source != by {
			errs = append(errs, fmt.Errorf("event %d is by %s, want %s", e.Seq, e.Source, by))
		}
	}
	for name, want := range told {
		if got := strings.Join(history[name], ", "); got != want {
			errs = append(errs, fmt.Errorf("pod %s: told %q, want %q", name, got, want))
		}
	}
	if len(pods) != 4 || len(history) != len(told) {
		errs = append(errs, fmt.Errorf("%d pods at the end of %d, want 4 of %d", len(pods), len(history), len(told)))
	}
	errs = append(errs, judgeState(database))
	return errors.Join(errs...)
}

// judgeState looks at what the events do not tell.
func judgeState(database string) error {
	rows, err := world.QueryFile(database, `SELECT p.name || '/' || c.name || ' ' || c.state || ' ' || c.tasks
		FROM containers c JOIN pods p USING (pod_uid) ORDER BY 1`)
	if err != nil {
		return err
	}
	var got []string
	for _, r := range rows {
		words := strings.Fields(r[0])
		if words[0] == "orders/db" && len(words[2]) > 1 && words[2] >= "50" {
			words[2] = "many"
		} else {
			words[2] = "some"
		}
		got = append(got, strings.Join(words, " "))
	}
	want := []string{"batch/job Reconciled some", "orders/db Reconciled many", "web/app Reconciled some", "web/proxy Reconciled some"}
	if !slices.Equal(got, want) {
		return fmt.Errorf("containers are %q, want %q", got, want)
	}
	return nil
}

// testJudge: the judge sees what was tampered with.
func testJudge(t *testing.T, dir string) {
	log, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(log)))
	swapped := slices.Clone(lines)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	for name, text := range map[string]string{
		"a line is missing": strings.Join(lines[1:], ""),
		"a line twice":      lines[0] + strings.Join(lines, ""),
		"lines swapped":     strings.Join(swapped, ""),
		"torn":              string(log[:len(log)-2]),
		"a counter changed": strings.Replace(string(log), `"reconciled_containers":2`, `"reconciled_containers":1`, 1),
		"empty":             "",
	} {
		bad := t.TempDir()
		if err := os.CopyFS(bad, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bad, "events.jsonl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if judge(bad) == nil {
			t.Errorf("%s, and the judge has no objection", name)
		}
	}
}
