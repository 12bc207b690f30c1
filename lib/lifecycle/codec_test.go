package lifecycle

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	podJSON  = `{"id":"s1","uid":"u1","name":"web","namespace":"shop","cgroup_parent":"/kubepods/u1","runtime_handler":"runc","pid":7}`
	ctrJSON  = `{"id":"c1","pod_sandbox_id":"s1","name":"app","state":"CREATED","pid":8,"cgroups_path":"/kubepods/u1/c1"}`
	headJSON = `"v":1,"epoch":"e","seq":5,"time":"2026-01-02T03:04:05.000000006Z"`
)

func line(rest string) string { return "{" + headJSON + "," + rest + "}" }

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":0`, i)
	}
	return b.String()
}

func count(n int) *int { return &n }

func TestDecode(t *testing.T) {
	t.Parallel()
	head := Record{V: 1, Epoch: "e", Seq: 5, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	pod := &Pod{ID: "s1", UID: "u1", Name: "web", Namespace: "shop", CgroupParent: "/kubepods/u1", RuntimeHandler: "runc", PID: 7}
	ctr := &Container{ID: "c1", PodSandboxID: "s1", Name: "app", State: ContainerCreated, PID: 8, CgroupsPath: "/kubepods/u1/c1"}
	with := func(set func(*Record)) *Record { r := head; set(&r); return &r }

	tests := []struct {
		name  string
		input string
		want  *Record
	}{
		{"begin", line(`"event":"SYNCHRONIZE","phase":"begin","hello":"h","runtime":"containerd","runtime_version":"v2","node":"n"`), with(func(r *Record) {
			r.Event, r.Phase, r.Hello, r.Runtime, r.RuntimeVersion, r.Node = Synchronize, PhaseBegin, "h", "containerd", "v2", "n"
		})},
		{"snapshot pod", line(`"event":"SYNCHRONIZE","pod":` + podJSON), with(func(r *Record) { r.Event, r.Pod = Synchronize, pod })},
		{"snapshot container", line(`"event":"SYNCHRONIZE","container":` + ctrJSON), with(func(r *Record) { r.Event, r.Container = Synchronize, ctr })},
		{"end", line(`"event":"SYNCHRONIZE","phase":"end","pods":0,"containers":3`), with(func(r *Record) {
			r.Event, r.Phase, r.Pods, r.Containers = Synchronize, PhaseEnd, count(0), count(3)
		})},
		{"container event", line(`"event":"START_CONTAINER","pod":` + podJSON + `,"container":` + ctrJSON), with(func(r *Record) { r.Event, r.Pod, r.Container = StartContainer, pod, ctr })},
		{"container event without its pod", line(`"event":"START_CONTAINER","container":` + ctrJSON), with(func(r *Record) { r.Event, r.Container = StartContainer, ctr })},
		{"newline and blanks", " " + line(`"event":"RUN_POD_SANDBOX","pod":`+podJSON) + " \r\n", with(func(r *Record) { r.Event, r.Pod = RunPodSandbox, pod })},
		{"unknown fields", line(`"event":"RUN_POD_SANDBOX","x":{"y":[1,{"z":null}]},"pod":` + podJSON), with(func(r *Record) { r.Event, r.Pod = RunPodSandbox, pod })},
		{"the same names in different objects", line(`"event":"RUN_POD_SANDBOX","x":[{"v":1},{"v":{"v":"\"v\":"}}],"y":"v","pod":` + podJSON), with(func(r *Record) { r.Event, r.Pod = RunPodSandbox, pod })},
		{"unknown event", line(`"event":"RESIZE_POD"`), with(func(r *Record) { r.Event = "RESIZE_POD" })},
		{"uid from id", line(`"event":"RUN_POD_SANDBOX","pod":{"id":"s1"}`), with(func(r *Record) { r.Event, r.Pod = RunPodSandbox, &Pod{ID: "s1", UID: "s1"} })},
		{"sandbox from pod", line(`"event":"STOP_CONTAINER","pod":{"id":"s1","uid":"u"},"container":{"id":"c"}`), with(func(r *Record) {
			r.Event, r.Pod, r.Container = StopContainer, &Pod{ID: "s1", UID: "u"}, &Container{ID: "c", PodSandboxID: "s1"}
		})},
		{"heartbeat without epoch", `{"v":1,"event":"HEARTBEAT","runtime_state":"connected"}`, &Record{V: 1, Event: Heartbeat, RuntimeState: "connected"}},
		{"runtime lost", `{"v":1,"epoch":"e","seq":0,"event":"RUNTIME_LOST"}`, &Record{V: 1, Epoch: "e", Event: RuntimeLost}},
		{"unknown event outside the sequence", `{"v":1,"event":"WATCHER_MOOD"}`, &Record{V: 1, Event: "WATCHER_MOOD"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Decode([]byte(tt.input))
			if err != nil {
				t.Fatalf("Decode: %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
		})
	}
}

// refusal is a line that Decode must not take, and what its error says.
type refusal struct{ name, input, want string }

func TestDecodeRefusesLines(t *testing.T) {
	t.Parallel()
	run := `"event":"RUN_POD_SANDBOX","pod":`
	testRefused(t, []refusal{
		{"empty", "", "not one JSON object"},
		{"blank", " \n", "not one JSON object"},
		{"null", "null", "not one JSON object"},
		{"array", "[]", "not one JSON object"},
		{"text", `"RUN_POD_SANDBOX"`, "not one JSON object"},
		{"half a line", line(run + podJSON)[:60], "bad JSON"},
		{"two objects", line(run+podJSON) + line(run+podJSON), "bad JSON"},
		{"trailing data", line(run+podJSON) + " x", "bad JSON"},
		{"not UTF-8", line(run + `{"id":"` + "\xff" + `"}`), "not UTF-8"},
		{"name twice", line(run + podJSON + `,"seq":6`), "ambiguous"},
		{"name twice in other case", line(run + podJSON + `,"SEQ":6`), "ambiguous"},
		{"name twice under Unicode folding", line(run + podJSON + `,"ſeq":6`), "ambiguous"},
		{"pod twice", line(run + podJSON + `,"pod":{"id":"s2"}`), "ambiguous"},
		{"name twice in the pod", line(run + `{"id":"s1","id":"s2"}`), "ambiguous"},
		{"name twice, once escaped", line(run + podJSON + `,"\u0073eq":6`), "ambiguous"},
		{"name twice in an unknown object", line(run + podJSON + `,"x":[{"a":"b\"","a" :1}]`), "ambiguous"},
		{"too many names", line(run + podJSON + manyNames(maxNames)), "more than 64 names"},
		{"nested too deep", line(run + podJSON + `,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)), "nested deeper"},
		{"nested beyond the parser", line(`"x":` + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000)), "bad JSON"},
		{"too long", line(`"x":"` + strings.Repeat("x", MaxLine) + `"`), "longer than"},
	})
}

func TestDecodeRefusesRecords(t *testing.T) {
	t.Parallel()
	run := `"event":"RUN_POD_SANDBOX","pod":`
	testRefused(t, []refusal{
		{"no version", `{"epoch":"e","seq":1,"event":"RUN_POD_SANDBOX","pod":{"id":"s"}}`, "version 0"},
		{"newer version", `{"v":2,"epoch":"e","seq":1,"event":"RUN_POD_SANDBOX","pod":{"id":"s"}}`, "version 2"},
		{"no event", `{"v":1,"epoch":"e","seq":1}`, "no event"},
		{"empty event", `{"v":1,"epoch":"e","seq":1,"event":""}`, "no event"},
		{"event of a wrong type", `{"v":1,"epoch":"e","seq":1,"event":5}`, `field "event" cannot hold a number`},
		{"no seq", `{"v":1,"epoch":"e","event":"RUN_POD_SANDBOX","pod":{"id":"s"}}`, "no seq"},
		{"negative seq", `{"v":1,"epoch":"e","seq":-1,"event":"X"}`, `field "seq"`},
		{"fraction of a seq", `{"v":1,"epoch":"e","seq":1.5,"event":"X"}`, `field "seq"`},
		{"seq out of range", `{"v":1,"epoch":"e","seq":18446744073709551616,"event":"X"}`, `field "seq"`},
		{"no epoch", `{"v":1,"seq":1,"event":"RUN_POD_SANDBOX","pod":{"id":"s"}}`, "no epoch"},
		{"unknown event with seq without epoch", `{"v":1,"seq":1,"event":"X"}`, "no epoch"},
		{"heartbeat in the sequence", line(`"event":"HEARTBEAT"`), "want 0"},
		{"runtime lost in the sequence", line(`"event":"RUNTIME_LOST"`), "want 0"},
		{"a time that is none", `{"v":1,"epoch":"e","seq":1,"time":"yesterday","event":"X"}`, "bad value"},
		{"sandbox event without pod", line(`"event":"STOP_POD_SANDBOX","container":` + ctrJSON), "no pod"},
		{"container event without container", line(`"event":"POST_START_CONTAINER","pod":` + podJSON), "no container"},
		{"null pod", line(run + "null"), "no pod"},
		{"pod without id", line(run + `{"uid":"u"}`), "pod has no id"},
		{"container without id", line(`"event":"START_CONTAINER","container":{"name":"x"}`), "container has no id"},
		{"negative pod pid", line(run + `{"id":"s","pid":-1}`), "the pid -1"},
		{"negative container pid", line(`"event":"START_CONTAINER","container":{"id":"c","pid":-2}`), "the pid -2"},
		{"NUL in pod id", line(run + `{"id":"a\u0000b"}`), "NUL"},
		{"NUL in uid", line(run + `{"id":"a","uid":"\u0000"}`), "NUL"},
		{"NUL in container id", line(`"event":"START_CONTAINER","container":{"id":"\u0000"}`), "NUL"},
		{"NUL in sandbox id", line(`"event":"START_CONTAINER","container":{"id":"c","pod_sandbox_id":"\u0000"}`), "NUL"},
		{"synchronize of nothing", line(`"event":"SYNCHRONIZE"`), "0 of phase"},
		{"synchronize of two things", line(`"event":"SYNCHRONIZE","pod":` + podJSON + `,"container":` + ctrJSON), "2 of phase"},
		{"begin with a pod", line(`"event":"SYNCHRONIZE","phase":"begin","pod":` + podJSON), "2 of phase"},
		{"unknown phase", line(`"event":"SYNCHRONIZE","phase":"middle"`), "unknown phase"},
		{"end without counts", line(`"event":"SYNCHRONIZE","phase":"end","pods":1`), "how many"},
		{"end with a negative count", line(`"event":"SYNCHRONIZE","phase":"end","pods":1,"containers":-1`), "how many"},
	})
}

func testRefused(t *testing.T, tests []refusal) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Decode([]byte(tt.input))
			if err == nil {
				t.Fatalf("Decode = %+v, want an error with %q", got, tt.want)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Decode: %v, want an error with %q", err, tt.want)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error is %d bytes long: it quotes its input", len(err.Error()))
			}
		})
	}
}

func TestDecodeReply(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, input string
		hello       Hello
		ack         Ack
		wantErr     bool
	}{
		{name: "hello", input: `{"hello":"abc"}` + "\n", hello: Hello{Hello: "abc"}},
		{name: "ack", input: `{"epoch":"e","seq":5}` + "\n", ack: Ack{Epoch: "e", Seq: 5}},
		{name: "unknown field", input: `{"epoch":"e","seq":5,"x":1}`, ack: Ack{Epoch: "e", Seq: 5}},
		{name: "both", input: `{"hello":"abc","epoch":"e","seq":5}`, wantErr: true},
		{name: "neither", input: `{}`, wantErr: true},
		{name: "empty hello", input: `{"hello":""}`, wantErr: true},
		{name: "long hello", input: `{"hello":"` + strings.Repeat("x", MaxHelloID+1) + `"}`, wantErr: true},
		{name: "ack without seq", input: `{"epoch":"e"}`, wantErr: true},
		{name: "ack of nothing", input: `{"epoch":"e","seq":0}`, wantErr: true},
		{name: "ack without epoch", input: `{"seq":1}`, wantErr: true},
		{name: "ack of an empty epoch", input: `{"epoch":"","seq":1}`, wantErr: true},
		{name: "half", input: `{"epoch":"e","se`, wantErr: true},
		{name: "null", input: `null`, wantErr: true},
		{name: "two in one", input: `{"hello":"a"}{"hello":"b"}`, wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hello, ack, err := DecodeReply([]byte(tt.input))
			if (err != nil) != tt.wantErr {
				t.Fatalf("DecodeReply error: %v, want one: %v", err, tt.wantErr)
			}
			if hello != tt.hello || ack != tt.ack {
				t.Errorf("DecodeReply = %+v, %+v, want %+v, %+v", hello, ack, tt.hello, tt.ack)
			}
		})
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	got, err := Encode(Record{V: 1, Epoch: "e", Seq: 1, Event: RunPodSandbox, Pod: &Pod{ID: "s", UID: "u", Name: "a<b>&c"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"epoch":"e","seq":1,"time":"0001-01-01T00:00:00Z","event":"RUN_POD_SANDBOX",` +
		`"pod":{"id":"s","uid":"u","name":"a<b>&c","namespace":"","cgroup_parent":"","runtime_handler":"","pid":0}}` + "\n"
	if string(got) != want {
		t.Errorf("Encode = %s, want %s", got, want)
	}
	// {"hello":"…"} and its newline are 13 bytes around the id.
	if line, err := Encode(Hello{Hello: strings.Repeat("x", MaxLine-13)}); err != nil || len(line) != MaxLine {
		t.Errorf("Encode of the longest line = %d bytes, %v", len(line), err)
	}
	if _, err := Encode(Hello{Hello: strings.Repeat("x", MaxLine-12)}); !errors.Is(err, ErrTooLong) {
		t.Errorf("Encode of a line one byte too long: %v, want ErrTooLong", err)
	}
}
