package applier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/lock"
	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
	"github.com/nri-resctrl/nri-resctrl/lib/rules"
	"github.com/nri-resctrl/nri-resctrl/state"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memcgroup"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/memfs"
)

// node is a simulated node with an applier's parts on it.
type node struct {
	t     *testing.T
	dir   string
	model *sim.Model
	os    *memfs.FS
	log   *bytes.Buffer
	opts  Options
}

func newNode(t *testing.T, change func(*sim.Config)) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir(), log: &bytes.Buffer{}}
	cfg := sim.DefaultConfig()
	change(&cfg)
	script := sim.NewScript()
	n.model = sim.New(cfg, sim.NewManualClock(), script)
	n.os = memfs.New(n.model, "/sys/fs/resctrl", "/proc")
	logger := slog.New(slog.NewTextHandler(n.log, nil))
	fs := resctrl.New(resctrl.Options{Root: "/sys/fs/resctrl", Prefix: "pod_", ProcRoot: "/proc", Logger: logger, OS: n.os})
	eng, err := engine.New(t.Context(), engine.Options{
		Resctrl: fs, Cgroups: memcgroup.New(sim.NewCgroups(script)), Locks: lock.New(n.dir),
		OpenState: func() (*state.Store, engine.Exporter, error) {
			s, err := state.Open(filepath.Join(n.dir, "state.db"), state.Options{Node: "n1", Logger: logger})
			if err != nil {
				return nil, nil, err
			}
			return s, outbox.New(filepath.Join(n.dir, "events.jsonl"), s, outbox.Options{LogID: s.LogID(), Logger: logger}), nil
		},
		Naming: rules.Naming{Root: "/sys/fs/resctrl", Prefix: "pod_"}, Source: engine.SourceApplier, Logger: logger,
		Now: time.Now, BootID: "boot", BootTime: func() time.Duration { return time.Hour },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	n.opts = Options{Engine: eng, Resctrl: fs, AutoMount: true, Cleanup: true, Version: "test", Logger: logger}
	return n
}

// input makes lines of an epoch: each record gets its number.
type input struct {
	bytes.Buffer
	seq uint64
}

func (in *input) add(recs ...lifecycle.Record) *input {
	for _, rec := range recs {
		in.seq++
		rec.V, rec.Epoch, rec.Seq, rec.Time = 1, "e1", in.seq, time.Now().UTC()
		line, err := lifecycle.Encode(rec)
		if err != nil {
			panic(err)
		}
		in.Write(line)
	}
	return in
}

func number(n int) *int { return &n }

// epoch is a snapshot of one pod.
func epoch() *input {
	return new(input).add(
		lifecycle.Record{Event: lifecycle.Synchronize, Phase: lifecycle.PhaseBegin, Runtime: "test"},
		lifecycle.Record{Event: lifecycle.Synchronize, Pod: &lifecycle.Pod{ID: "s1", UID: "a"}},
		lifecycle.Record{Event: lifecycle.Synchronize, Phase: lifecycle.PhaseEnd, Pods: number(1), Containers: number(0)},
	)
}

func (n *node) run(in string) error {
	n.t.Helper()
	return RunStdin(n.t.Context(), n.opts, strings.NewReader(in))
}

func (n *node) events() []string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dir, "events.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			n.t.Fatal(err)
		}
		all = append(all, fmt.Sprint(e["type"], " ", e["pod_uid"], " ", e["group_state"], " ", e["reason"]))
	}
	return all
}

func (n *node) status() (s Status) {
	n.t.Helper()
	v, _, err := n.opts.Engine.Store.Meta(n.t.Context(), MetaApplier)
	if err == nil {
		err = json.Unmarshal([]byte(v), &s)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	if err != nil {
		return 1
	}
	return 0
}

func TestStdin(t *testing.T) {
	t.Parallel()
	whole := epoch().add(
		lifecycle.Record{Event: lifecycle.RunPodSandbox, Pod: &lifecycle.Pod{ID: "s2", UID: "b"}},
		lifecycle.Record{Event: lifecycle.RemovePodSandbox, Pod: &lifecycle.Pod{ID: "s1", UID: "a"}},
	).String()
	lines := strings.SplitAfter(whole, "\n")
	tests := map[string]struct {
		in     string
		exit   int
		err    string
		events []string
	}{
		"nothing":        {in: "", events: nil},
		"whole":          {in: whole, events: []string{"AddOrUpdate a Exists <nil>", "AddOrUpdate b Exists <nil>", "Removed a <nil> <nil>"}},
		"gap":            {in: strings.Join(lines[:3], "") + lines[4], exit: 65, err: "record 5 of epoch e1 comes after record 3", events: []string{"AddOrUpdate a Exists <nil>"}},
		"garbage":        {in: "hello\n", exit: 65, err: "line 1"},
		"cut off":        {in: strings.Join(lines[:2], ""), exit: 65, err: "inside a snapshot"},
		"no begin":       {in: lines[3], exit: 65, err: "before any snapshot"},
		"too long":       {in: strings.Repeat("x", lifecycle.MaxLine+1), exit: 65, err: "line 1 is longer than"},
		"no newline end": {in: strings.TrimSuffix(strings.Join(lines[:3], ""), "\n"), events: []string{"AddOrUpdate a Exists <nil>"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(*sim.Config) {})
			err := n.run(tt.in)
			if exitCode(err) != tt.exit || tt.err != "" && !strings.Contains(fmt.Sprint(err), tt.err) {
				t.Errorf("error %v, want exit %d and %q", err, tt.exit, tt.err)
			}
			if got := n.events(); fmt.Sprint(got) != fmt.Sprint(tt.events) {
				t.Errorf("events %q, want %q", got, tt.events)
			}
		})
	}
}

func TestAutoMount(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		n := newNode(t, func(c *sim.Config) { c.Unmounted = true })
		n.opts.AutoMount = on
		if err := n.run(epoch().String()); err != nil {
			t.Fatal(err)
		}
		want, events := "ok", "[AddOrUpdate a Exists <nil>]"
		if !on {
			want, events = "not_mounted", "[AddOrUpdate a Failed not_mounted]"
		}
		if n.model.Mounted() != on || n.status().Resctrl != want || fmt.Sprint(n.events()) != events {
			t.Errorf("auto_mount %v: mounted %v, status %+v, events %q", on, n.model.Mounted(), n.status(), n.events())
		}
		if told := strings.Count(n.log.String(), "level=ERROR"); told != map[bool]int{true: 0, false: 1}[on] {
			t.Errorf("auto_mount %v: told %d times:\n%s", on, told, n.log)
		}
	}
}

func TestNoPermissionAndNoSupport(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*sim.Config){
		"unsupported": func(c *sim.Config) { c.Monitoring = false },
		"permission":  func(*sim.Config) {},
	} {
		n := newNode(t, change)
		if want == "permission" {
			n.os.Fail(memfs.OpMkdir, 0, syscall.EACCES)
		}
		if err := n.run(epoch().String()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(n.events()); got != "[AddOrUpdate a Failed "+want+"]" {
			t.Errorf("%s: events %s", want, got)
		}
	}
}

func TestHeartbeatsAreKept(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(*sim.Config) {})
	beat := `{"v":1,"epoch":"","seq":0,"time":"2026-01-02T03:04:05Z","event":"HEARTBEAT","runtime_state":"connected"}`
	lost := `{"v":1,"epoch":"","seq":0,"time":"2026-01-02T03:04:06Z","event":"RUNTIME_LOST","runtime_state":"disconnected"}`
	if err := n.run(beat + "\n" + lost + "\n" + epoch().String()); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{MetaHeartbeat: beat, MetaRuntimeLost: lost} {
		if v, _, err := n.opts.Engine.Store.Meta(t.Context(), key); err != nil || v != want {
			t.Errorf("%s: %q, %v", key, v, err)
		}
	}
}

// TestStdinThatWaitsIsInterrupted: a terminal, or a pipe that nobody writes to.
func TestStdinThatWaitsIsInterrupted(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(*sim.Config) {})
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunStdin(ctx, n.opts, r) }()
	if _, err := w.Write([]byte("\n")); err != nil { // it reads
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	w.Close() // ends the read that nobody waits for
}
