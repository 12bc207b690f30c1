package outbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A process that commits and exports is killed again and again, at whatever
// it does, while its log is rotated by rename: no event is lost, doubled or
// broken, since no file goes away.
func TestKilledExporter(t *testing.T) {
	t.Parallel()
	const env = "OUTBOX_TEST_KILL"
	if dir := os.Getenv(env); dir != "" {
		commitAndExport(t, dir)
		return
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "events.jsonl")
	var files []string
	rotate := func() {
		to := fmt.Sprintf("%s.%d", log, len(files)+1)
		if err := os.Rename(log, to); err == nil {
			files = append(files, to)
		} else if !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledExporter$")
		cmd.Env = append(os.Environ(), env+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; i < 10+3*round && lines.Scan(); i++ {
			if lines.Text() != "exported" {
				t.Errorf("child says %q", lines.Text())
				break
			}
			if i%8 == round%8 {
				rotate()
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		if round%3 == 0 {
			rotate()
		}
	}
	s, err := state.Open(filepath.Join(dir, "state.db"), state.Options{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := outbox.New(log, s, outbox.Options{LogID: s.LogID()}).Export(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, s, append(files, log))
}

func commitAndExport(t *testing.T, dir string) {
	ctx := context.Background()
	s, err := state.Open(filepath.Join(dir, "state.db"), state.Options{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	log := outbox.New(filepath.Join(dir, "events.jsonl"), s, outbox.Options{LogID: s.LogID()})
	for i := 0; ; i++ {
		var b state.Batch
		for range 1 + i%5 {
			e := event(i)
			e.Name = strings.Repeat("n", i%1000)
			b.Events = append(b.Events, e)
		}
		if err := s.Commit(ctx, b); err != nil {
			t.Fatal(err)
		}
		if err := log.Export(ctx); err != nil {
			t.Fatal(err)
		}
		fmt.Println("exported") // and dies of SIGPIPE with its parent
	}
}

// wantWhole checks that the files hold the events of the table, each once.
func wantWhole(t *testing.T, s *state.Store, files []string) {
	t.Helper()
	ctx := context.Background()
	var seq int64
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			var e struct{ Seq int64 }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%s: broken line %q", name, line)
			}
			seq++
			committed, ok, err := s.Line(ctx, seq)
			if err != nil {
				t.Fatal(err)
			}
			if !ok || line != committed+"\n" {
				t.Fatalf("%s: seq %d stands where %d belongs: %q", name, e.Seq, seq, line)
			}
		}
	}
	if rest, err := s.Unexported(ctx, seq, 1); err != nil || len(rest) != 0 || seq < 100 {
		t.Fatalf("the log ends at seq %d, then come %q, %v", seq, rest, err)
	}
}

// BenchmarkCommitAndExport is what one event costs from Commit to the log.
func BenchmarkCommitAndExport(b *testing.B) {
	for _, fsync := range []bool{true, false} {
		b.Run(fmt.Sprintf("fsync=%v", fsync), func(b *testing.B) {
			dir, ctx := b.TempDir(), context.Background()
			s, err := state.Open(filepath.Join(dir, "state.db"), state.Options{Node: "n"})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			log := outbox.New(filepath.Join(dir, "events.jsonl"), s, outbox.Options{LogID: s.LogID(), Fsync: fsync})
			for i := 0; b.Loop(); i++ {
				if err := s.Commit(ctx, state.Batch{Events: []state.SourcedEvent{event(i)}}); err != nil {
					b.Fatal(err)
				}
				if err := log.Export(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
