package config

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const installed = "../../conf/config.toml"

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestInstalledFileIsTheDefaults(t *testing.T) {
	data, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(installed, data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("conf/config.toml is not Default() (-want +got):\n%s", diff)
	}
}

// The three lists of keys agree: the installed file, fields and the Config.
func TestEveryKeyIsEverywhere(t *testing.T) {
	var file map[string]map[string]any
	meta, err := toml.DecodeFile(installed, &file)
	if err != nil {
		t.Fatal(err)
	}
	var inFile, inFields, inStruct []string
	for _, k := range meta.Keys() {
		if len(k) == 2 {
			inFile = append(inFile, k.String())
		}
	}
	for _, f := range new(Config).fields() {
		inFields = append(inFields, f.name())
	}
	for _, table := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		for _, f := range reflect.VisibleFields(table.Type) {
			inStruct = append(inStruct, table.Tag.Get("toml")+"."+f.Tag.Get("toml"))
		}
	}
	for _, l := range [][]string{inFile, inFields, inStruct} {
		slices.Sort(l)
	}
	if diff := cmp.Diff(inStruct, inFile); diff != "" {
		t.Errorf("keys of Config and conf/config.toml (-struct +file):\n%s", diff)
	}
	if diff := cmp.Diff(inStruct, inFields); diff != "" {
		t.Errorf("keys of Config and fields (-struct +fields):\n%s", diff)
	}
}

// Every key of the installed file has a comment directly above it, or above
// the key before it.
func TestInstalledFileExplainsItself(t *testing.T) {
	data, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	var before [2]string
	for i, line := range strings.Split(string(data), "\n") {
		if strings.Contains(line, " = ") && !strings.HasPrefix(line, "#") &&
			!strings.HasPrefix(before[1], "#") && !strings.HasPrefix(before[0], "#") {
			t.Errorf("%s:%d: %q has no comment", installed, i+1, line)
		}
		before = [2]string{before[1], line}
	}
}

func TestEveryValueArrives(t *testing.T) {
	want := &Config{
		Watcher: Watcher{NRISocket: "/a/nri.sock", PluginName: "x+y", PluginIndex: "07", QueueSize: 1,
			ReconnectBackoffMax: Duration{time.Second}, Heartbeat: Duration{time.Hour}, StartBarrier: Duration{0},
			Namespaces: []string{"one", "two"}, LabelSelector: map[string]string{"example.org/app": "web", "x": ""}},
		Pipe:    Pipe{Path: "/a/p", AckPath: "/a/q"},
		Resctrl: Resctrl{Root: "/r", GroupPrefix: "p.", AutoMount: false, CleanupOnStart: false, Simulated: true},
		Cgroup:  Cgroup{Root: "/c"},
		Proc:    Proc{Root: "/pr"},
		State:   State{Path: "/a/s", EventRetention: Duration{time.Minute}, Group: "adm"},
		Events:  Events{Path: "/a/e", Fsync: false, Node: "nœud"},
		Retry:   Retry{SweepRunning: false, VanishedAfter: Duration{time.Second}},
		Log:     Log{Level: "debug", Format: "json"},
	}
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(want); err != nil {
		t.Fatal(err)
	}
	got, err := Parse("x", text.Bytes())
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseFaults(t *testing.T) {
	const queue = "found 0; allowed: a whole number from 1 to 1000000 (records)"
	for _, tc := range []struct{ name, text, want string }{
		{"out of range", "[watcher]\nqueue_size = 0\n", "f:2: watcher.queue_size: " + queue},
		{"dotted key", "\nwatcher.queue_size = 0\n", "f:2: watcher.queue_size: " + queue},
		{"dotted key with blanks", "watcher . \"queue_size\" = 0\n", "f:1: watcher.queue_size: " + queue},
		{"inline table", "# x\nwatcher = {plugin_index = \"10\", queue_size = 0}\n", "f:2: watcher.queue_size: " + queue},
		{"CRLF", "[watcher]\r\n\r\nqueue_size = 0\r\n", "f:3: watcher.queue_size: " + queue},
		{"after a string of lines that looks like a table",
			"[events]\nnode = '''a\n[watcher]\nqueue_size = 1\n'''\n[watcher]\nqueue_size = 0\n",
			"f:2: events.node: found \"a\\n[watcher]\\nqueue_size = 1\\n\"; allowed: a name of at most 253 bytes of UTF-8 without control characters, or \"\" for the host's name\n" +
				"f:7: watcher.queue_size: " + queue},
		{"array over lines", "[watcher]\nnamespaces = [\n\"a\", # x\n\"b*\"\n]\nqueue_size = 0",
			"f:2: watcher.namespaces: found [\"a\", \"b*\"]; allowed: a list of strings, each of them the whole name of a namespace (no patterns)\n" +
				"f:6: watcher.queue_size: " + queue},
		{"the key's name elsewhere before", "[watcher.label_selector]\nqueue_size = \"0\"\n[watcher2]\nqueue_size = 5\n",
			"f:4: watcher2.queue_size: unknown table watcher2; allowed: the tables watcher, pipe, resctrl, cgroup, proc, state, events, retry, log"},
		{"several, by line", "[log]\nlevel = \"loud\"\nformat = 3\n[retry]\nsweep_running = \"yes\"\n",
			"f:2: log.level: found \"loud\"; allowed: \"debug\" or \"info\" or \"warn\" or \"error\"\n" +
				"f:3: log.format: found 3; allowed: \"text\" or \"json\"\n" +
				"f:5: retry.sweep_running: found \"yes\"; allowed: true or false, without quotes"},
		{"unknown key", "[proc]\nroot = \"/proc\"\nRoot = \"/proc\"\n", "f:3: proc.Root: unknown key; allowed: root"},
		{"unknown empty table", "[x]\n", "f:1: x: unknown table; allowed: the tables watcher, pipe, resctrl, cgroup, proc, state, events, retry, log"},
		{"implied table", "\n[a.b.c]\nd = 1\n", "f:2: a.b: unknown table a; allowed: the tables watcher, pipe, resctrl, cgroup, proc, state, events, retry, log"},
		{"key outside", "queue_size = 1\n", "f:1: queue_size: unknown key outside of all tables; allowed: the tables watcher, pipe, resctrl, cgroup, proc, state, events, retry, log"},
		{"empty key", "[proc]\n\"\" = 1\n", "f:2: proc.\"\": unknown key; allowed: root"},
		{"no table", "proc = \"/proc\"\n", "f:1: proc: found \"/proc\"; allowed: a table, [proc]"},
		{"tables of tables", "[[proc]]\nroot = \"/proc\"\n", "f:1: proc: found an array of tables; allowed: a table, [proc]"},
		{"time without unit", "[watcher]\nheartbeat = 10\n", "f:2: watcher.heartbeat: found 10; allowed: a time from \"1s\" to \"1h\", written like \"100ms\", \"30s\", \"2m\" or \"168h\""},
		{"no TOML", "[watcher]\nqueue_size =\n", "f:2: not TOML: expected value but found '\\n' instead"},
		{"string broken by CRLF", "[proc]\r\nroot = \"/proc\r\n\"", "f:2: not TOML: strings cannot contain newlines"},
		{"control characters in the syntax", "a = 0b\x00", "f:1: not TOML: TOML files cannot contain control characters: '0x00'"},
		{"twice", "[proc]\nroot = \"/a\"\nroot = \"/b\"\n", "f:3: not TOML: Key 'proc.root' has already been defined."},
		{"one file twice", "[events]\npath = \"/s\"\n[state]\npath = \"/s\"\n", "f:4: state.path: found \"/s\"; allowed: a path where nothing else of ours is; /s is that of events.path"},
		{"a default's file", "[pipe]\nack_path = \"/run/nri-resctrl/lifecycle.pipe\"\n", "f:2: pipe.ack_path: found \"/run/nri-resctrl/lifecycle.pipe\"; allowed: a path where nothing else of ours is; /run/nri-resctrl/lifecycle.pipe is that of pipe.path"},
		{"a lock", "[events]\npath = \"/run/nri-resctrl/writer.lock\"\n", "f:2: events.path: found \"/run/nri-resctrl/writer.lock\"; allowed: a path where nothing else of ours is; /run/nri-resctrl/writer.lock is that of pipe.path (its lock writer.lock)"},
		{"control characters", "[events]\nnode = \"a\\u001b[2J\"\n", "f:2: events.node: found \"a\\x1b[2J\"; allowed: a name of at most 253 bytes of UTF-8 without control characters, or \"\" for the host's name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("f", []byte(tc.text))
			if err == nil {
				t.Fatalf("got %+v, want an error", c)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var one *Error
			var code interface{ ExitCode() int }
			if !errors.As(err, &one) || !errors.As(err, &code) || code.ExitCode() != 78 {
				t.Errorf("%T is no *Error with exit code 78", err)
			}
		})
	}
}

// The edges of every range: the first value of a pair is allowed, the second is not.
func TestEdges(t *testing.T) {
	long := strings.Repeat("x", 300)
	for key, pairs := range map[string][][2]string{
		"watcher.nri_socket":            {{`"/` + long[:106] + `"`, `"/` + long[:107] + `"`}},
		"watcher.plugin_name":           {{`"a.b_c+d-e"`, `"a/b"`}, {`"a"`, `""`}},
		"watcher.plugin_index":          {{`"00"`, `"0"`}, {`"99"`, `"100"`}, {`"10"`, `10`}},
		"watcher.queue_size":            {{"1", "0"}, {"1_000_000", "1000001"}, {"2", "2.0"}},
		"watcher.reconnect_backoff_max": {{`"1s"`, `"999ms"`}, {`"1h"`, `"61m"`}},
		"watcher.heartbeat":             {{`"1s"`, `"0s"`}, {`"1h"`, `"1h1ns"`}},
		"watcher.start_barrier":         {{`"0s"`, `"-1ns"`}, {`"1s"`, `"1001ms"`}, {`"0"`, `0`}},
		"watcher.namespaces":            {{`["a-b"]`, `["a b"]`}, {`[]`, `[""]`}, {`["x"]`, `[1]`}, {`["x"]`, `"x"`}},
		"watcher.label_selector":        {{`{"a/b" = "c"}`, `{"a/" = "c"}`}, {`{a = ""}`, `{a = "b "}`}, {`{}`, `{a = 1}`}, {`{}`, `[]`}},
		"pipe.path":                     {{`"/a/b"`, `"a/b"`}, {`"/a"`, `"/a/"`}, {`"/a b"`, `"/a\nb"`}},
		"pipe.ack_path":                 {{`"/a"`, `"/"`}, {`"/a"`, `""`}},
		"resctrl.root":                  {{`"/a"`, `"/a/../b"`}},
		"resctrl.group_prefix":          {{`"p"`, `""`}, {`"a.-"`, `".a"`}, {`"_"`, `"-"`}, {`"` + long[:32] + `"`, `"` + long[:33] + `"`}, {`"a"`, `"a/"`}},
		"resctrl.auto_mount":            {{"false", `"false"`}, {"true", "1"}},
		"resctrl.cleanup_on_start":      {{"false", "0"}},
		"resctrl.simulated":             {{"true", `""`}},
		"cgroup.root":                   {{`"/a"`, `"//a"`}},
		"proc.root":                     {{`"/a"`, `"/a/."`}},
		"state.path":                    {{`"/a"`, `"/a\u0000"`}},
		"state.event_retention":         {{`"1m"`, `"59s"`}, {`"87600h"`, `"87601h"`}},
		"state.group":                   {{`"adm"`, `"a:b"`}, {`""`, `" "`}, {`""`, "1"}},
		"events.path":                   {{`"/a"`, `"."`}},
		"events.fsync":                  {{"false", `"no"`}},
		"events.node":                   {{`"` + long[:253] + `"`, `"` + long[:254] + `"`}, {`""`, "false"}, {`"x"`, `"\u202e"`}},
		"retry.sweep_running":           {{"true", "1.0"}},
		"retry.vanished_after":          {{`"1s"`, `"999ms"`}, {`"720h"`, `"721h"`}},
		"log.level":                     {{`"error"`, `"ERROR"`}},
		"log.format":                    {{`"json"`, `"xml"`}},
	} {
		for _, pair := range pairs {
			if _, err := Parse("f", []byte(key+" = "+pair[0])); err != nil {
				t.Errorf("%s = %s: %v", key, pair[0], err)
			}
			var one *Error
			_, err := Parse("f", []byte("\n"+key+" = "+pair[1]))
			if !errors.As(err, &one) || one.Key != key || one.Line != 2 || one.Allowed == "" {
				t.Errorf("%s = %s: got %v, want a fault of this key in line 2", key, pair[1], err)
			}
		}
	}
	if n := len(new(Config).fields()); n != 28 {
		t.Errorf("there are %d keys: add the new ones to this test", n)
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(installed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("watcher.queue_size = 0\npipe = {path = \"/a\", ack_path = \"/a\"}\n[[state]]\n[a.b]\n\"\" = 1"))
	f.Add([]byte("[events]\nnode = '''a\n'''\n[watcher]\nnamespaces = [\n1979-05-27,\n[{}]]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err == nil {
			var text bytes.Buffer
			if err := toml.NewEncoder(&text).Encode(c); err != nil {
				t.Fatal(err)
			}
			if again, err := Parse("f", text.Bytes()); err != nil || !cmp.Equal(c, again) {
				t.Fatalf("accepted %+v, but not again: %v", c, err)
			}
			return
		}
		faults := Errors{}
		if !errors.As(err, &faults) {
			var one *Error
			if !errors.As(err, &one) {
				t.Fatalf("%T is no *Error", err)
			}
			faults = Errors{one}
		}
		lines := 1 + bytes.Count(data, []byte("\n"))
		for _, one := range faults {
			if one.Line < 1 && !strings.Contains(one.Key, `""`) || one.Line > lines {
				t.Errorf("line %d of %d: %v", one.Line, lines, one)
			}
			if strings.ContainsAny(one.Error(), "\n\x1b\x00") {
				t.Errorf("%q is not one printable line", one)
			}
		}
	})
}
