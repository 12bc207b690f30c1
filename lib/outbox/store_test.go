package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/state"
)

var _ outbox.Source = (*state.Store)(nil)

func event(i int) state.SourcedEvent {
	return state.SourcedEvent{Source: "test", Event: rules.Event{Time: time.Unix(int64(i), 0), Type: rules.AddOrUpdate,
		PodUID: fmt.Sprint("u", i), GroupState: rules.GroupExists, GroupPath: "/r/mon_groups/pod_<&>\x9b"}}
}

// On the real database: what is committed is what the log holds, over a new
// opening and over a database that was put back to an older day.
func TestStoreIsASource(t *testing.T) {
	t.Parallel()
	dir, ctx := t.TempDir(), context.Background()
	db, path := filepath.Join(dir, "state.db"), filepath.Join(dir, "events.jsonl")
	step := func(first, last int) {
		t.Helper()
		s, err := state.Open(db, state.Options{Node: "n"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := first; i <= last; i++ {
			if err := s.Commit(ctx, state.Batch{Events: []state.SourcedEvent{event(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := outbox.New(path, s, outbox.Options{LogID: s.LogID(), Fsync: true}).Export(ctx); err != nil {
			t.Fatal(err)
		}
	}
	step(1, 3)
	backup, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	step(4, 6)
	if err := os.WriteFile(db, backup, 0o640); err != nil {
		t.Fatal(err)
	}
	step(7, 8)
	step(9, 9)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	if len(lines) != 9 {
		t.Fatalf("%d lines, want 9:\n%s", len(lines), content)
	}
	for i, line := range lines {
		if want := fmt.Sprintf(`,"seq":%d,`, i+1); !strings.Contains(line, want) {
			t.Errorf("line %d lacks %s: %s", i+1, want, line)
		}
		if want := fmt.Sprintf(`"pod_uid":"u%d","group_state":"Exists","group_path":"/r/mon_groups/pod_<&>`, i+1); !strings.Contains(line, want) {
			t.Errorf("line %d lacks %s: %s", i+1, want, line)
		}
	}
}
