package world_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// line is an event of the log L with the fields given.
func line(seq, more string) string {
	return `{"log":"L","seq":` + seq + `,"time":"2026-01-01T00:00:00.5Z","pod_uid":"a","pod_namespace":"ns","pod_name":"n","node":"x","source":"resctrl-applier",` + more + "}\n"
}

const (
	exists  = `"type":"AddOrUpdate","group_state":"Exists","group_path":"/g","total_containers":2,"reconciled_containers":1`
	failed  = `"type":"AddOrUpdate","group_state":"Failed","reason":"capacity","total_containers":2,"reconciled_containers":0`
	removed = `"type":"Removed"`
)

// TestRebuild: the reader takes what is sound, and stumbles over anything that
// a consumer could not make sense of.
func TestRebuild(t *testing.T) {
	other := func(s string) string { return strings.Replace(s, `"L"`, `"M"`, 1) }
	tests := []struct{ name, log, want string }{
		{"pods", line("1", failed) + line("2", exists), ""},
		{"removed and back", line("1", exists) + line("4", removed) + line("5", exists), ""},
		{"a state made anew", line("7", exists) + other(line("1", failed)), ""},
		{"the same twice", line("1", exists) + line("1", exists), "event 1 follows event 1"},
		{"backwards", line("2", exists) + line("1", exists), "event 1 follows event 2"},
		{"removed twice", line("1", exists) + line("2", removed) + line("3", removed), "was not there"},
		{"an old log again", line("1", exists) + other(line("1", exists)) + line("2", exists), "another one followed"},
		{"torn", strings.TrimSuffix(line("1", exists), "\n"), "torn line"},
		{"broken", line("1", exists) + "{\"log\":\"L\"" + line("2", exists), "invalid character"},
		{"no path", line("1", strings.Replace(exists, "/g", "", 1)), "do not fit"},
		{"no reason", line("1", strings.Replace(failed, "capacity", "", 1)), "do not fit"},
		{"another state", line("1", strings.Replace(exists, "Exists", "Maybe", 1)), "do not fit"},
		{"more than all", line("1", strings.Replace(exists, `s":1`, `s":3`, 1)), "cannot be"},
		{"below zero", line("1", strings.Replace(exists, `s":1`, `s":-1`, 1)), "cannot be"},
		{"reconciled without a group", line("1", strings.Replace(failed, `s":0`, `s":1`, 1)), "not there"},
		{"no time", strings.Replace(line("1", exists), "2026", "soon", 1), "no time"},
		{"somebody's", strings.Replace(line("1", exists), "resctrl-applier", "me", 1), "source of ours"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "events.jsonl")
			if err := os.WriteFile(path, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			events, err := world.ReadEvents(path)
			var pods map[string]world.PodOf
			if err == nil {
				pods, err = world.Rebuild(events)
			}
			if tt.want == "" && (err != nil || len(pods) != 1) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("pods %v, error %v, want %q", pods, err, tt.want)
			}
		})
	}
}
