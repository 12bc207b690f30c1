package ctl

import (
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// What is told of the runtime is what was heard last, and nothing where nobody
// was heard for long.
func TestRuntimeIsWhatWasHeardLast(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(secondsAgo int) string {
		return `"time":"` + now.Add(-time.Duration(secondsAgo)*time.Second).Format(time.RFC3339Nano) + `"`
	}
	beat := func(ago int, runtime string) string {
		return `{"v":1,"seq":0,` + at(ago) + `,"event":"HEARTBEAT","runtime_state":"` + runtime + `"}`
	}
	lost := func(ago int) string { return `{"v":1,"seq":0,` + at(ago) + `,"event":"RUNTIME_LOST"}` }
	snap := func(ago int) string { return `{` + at(ago) + `,"runtime":"containerd"}` }
	for _, tc := range []struct {
		name             string
		beat, lost, snap string
		watcher          running
		want             string
		sinceLost        bool
	}{
		{"nothing", "", "", "", runs, "unknown", false},
		{"damaged", "{", "{", "[]", runs, "unknown", false},
		{"heartbeat", beat(5, "connected"), "", snap(900), runs, "connected", false},
		{"heartbeat of a watcher without runtime", beat(5, "disconnected"), "", "", runs, "disconnected", false},
		{"lost after the heartbeat", beat(5, "connected"), lost(2), snap(900), runs, "disconnected", true},
		{"lost, and said again", beat(5, "disconnected"), lost(100), snap(900), runs, "disconnected", true},
		{"lost before the snapshot", beat(50, "disconnected"), lost(40), snap(3), runs, "connected", false},
		{"lost before the heartbeat", beat(5, "connected"), lost(40), snap(900), runs, "connected", false},
		{"silent", beat(31, "connected"), "", snap(900), runs, "unknown", false},
		{"the watcher ended", beat(5, "connected"), "", snap(900), stopped, "unknown", false},
		{"nobody may look", beat(5, "connected"), "", snap(900), unknown, "connected", false},
	} {
		a := &app{cfg: config.Default(), now: func() time.Time { return now }}
		meta := map[string]string{}
		for key, text := range map[string]string{metaHeartbeat: tc.beat, metaRuntimeLost: tc.lost, metaSnapshot: tc.snap} {
			if text != "" {
				meta[key] = text
			}
		}
		s := &Status{Runtime: RuntimeStatus{State: "unknown"}, Watcher: WatcherStatus{State: tc.watcher}}
		a.fromState(s, &state.Summary{Meta: meta})
		if s.Runtime.State != tc.want || (s.Runtime.Lost != nil) != tc.sinceLost {
			t.Errorf("%s: %s (lost %v), want %s", tc.name, s.Runtime.State, s.Runtime.Lost, tc.want)
		}
	}
}

// The applier's own word counts only if it is that of the one that runs.
func TestTheWordOfAnEarlierApplierIsNotTold(t *testing.T) {
	t.Parallel()
	meta := map[string]string{metaApplier: `{"pid":7,"version":"v1","started":"2026-01-01T12:00:00Z","resctrl":"not_mounted","resctrl_error":"mount it","unknown_events":3}`}
	for _, tc := range []struct {
		state running
		pid   int
		told  bool
	}{{runs, 7, true}, {runs, 8, false}, {runs, 0, true}, {unknown, 0, true}, {stopped, 0, false}} {
		s := ApplierStatus{State: tc.state, PID: tc.pid}
		(&app{}).applierFrom(&s, meta)
		if told := s.Version == "v1" && s.Resctrl == "not_mounted" && s.UnknownEvents == 3; told != tc.told {
			t.Errorf("%s as %d: %+v, want it told: %t", tc.state, tc.pid, s, tc.told)
		}
	}
}

// Every trouble is said, and says what to do; without trouble nothing is said.
func TestProblems(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	heard := func(ago time.Duration) *time.Time { at := now.Add(-ago); return &at }
	well := func() *Status {
		return &Status{
			Watcher: WatcherStatus{State: runs, LastHeartbeat: heard(time.Second)},
			Runtime: RuntimeStatus{State: "connected"}, Applier: ApplierStatus{State: runs, Resctrl: "ok"},
			Pods: &PodsStatus{}, Events: &EventsStatus{}, Snapshot: &SnapshotStatus{ThisBoot: true},
		}
	}
	for _, tc := range []struct {
		change func(*Status)
		want   []string // one for each problem
	}{
		{func(s *Status) {}, nil},
		{func(s *Status) { s.Resctrl.Reason, s.Resctrl.Error = "not_mounted", "mount it" }, []string{"not_mounted): mount it"}},
		{func(s *Status) { s.Applier.Resctrl, s.Applier.ResctrlError = "permission", "be root" }, []string{"applier cannot use resctrl (permission): be root"}},
		{func(s *Status) { s.Applier.State = stopped }, []string{"systemctl start resctrl-applier"}},
		{func(s *Status) { s.Watcher.State = stopped }, []string{"systemctl start nri-watcher"}},
		{func(s *Status) { s.Watcher.LastHeartbeat = heard(31 * time.Second) }, []string{"longer than 30s: either resctrl-applier cannot write /var/lib/nri-resctrl/state.db"}},
		{func(s *Status) { s.Runtime.State = "disconnected" }, []string{"is NRI enabled, is /var/run/nri/nri.sock its socket?"}},
		{func(s *Status) { s.Snapshot = nil }, []string{"no snapshot of the runtime has come yet: journalctl"}},
		{func(s *Status) { s.Snapshot.ThisBoot = false }, []string{"before this boot"}},
		{func(s *Status) { s.Pods.Failed = map[string]int{"capacity": 2} }, []string{"2 pods wait for an RMID"}},
		{func(s *Status) { s.Events.Lag = 1 }, nil},
		{func(s *Status) { s.Events.Lag = maxLag + 1 }, []string{"1001 events are not in"}},
		{func(s *Status) { s.Events.Lag, s.Applier.State = 1, stopped }, []string{"start resctrl-applier", "the applier and the retry job append them"}},
		{func(s *Status) { s.Pods, s.Events, s.Snapshot = nil, nil, nil }, nil},
	} {
		s := well()
		tc.change(s)
		(&app{cfg: config.Default(), now: func() time.Time { return now }}).problems(s)
		if len(s.Problems) != len(tc.want) {
			t.Errorf("problems are %q, want %q", s.Problems, tc.want)
			continue
		}
		for i, want := range tc.want {
			if !strings.Contains(s.Problems[i], want) {
				t.Errorf("problem %q lacks %q", s.Problems[i], want)
			}
		}
	}
}
