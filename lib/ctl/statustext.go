package ctl

import (
	"fmt"
	"strings"
	"time"
)

func trim(text []byte) string { return strings.TrimSpace(string(text)) }

// printStatus is the one screen.
func (a *app) printStatus(s *Status) error {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", what, safe(fmt.Sprintf(format, args...)))
	}
	line("node", "%s, %s", s.Node, s.Time.Format(time.RFC3339))
	line("watcher", "%s", a.watcherText(s.Watcher))
	line("runtime", "%s", a.runtimeText(s.Runtime))
	line("applier", "%s", a.applierText(s.Applier))
	line("resctrl", "%s", resctrlText(s.Resctrl))
	if s.Pods != nil {
		line("pods", "%s", a.podsText(s.Pods))
		line("containers", "%s", containersText(s.Containers))
		line("barrier", "%s", barrierText(s.Watcher))
		line("events", "%s", a.eventsText(s.Events))
		line("snapshot", "%s", a.snapshotText(s.Snapshot))
	}
	if len(s.Problems) > 0 {
		b.WriteString("\nWhat is wrong, and what to do:\n")
		for _, p := range s.Problems {
			b.WriteString("  - " + safe(p) + "\n")
		}
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

func process(state running, pid int) string {
	if state == runs && pid > 0 {
		return fmt.Sprintf("%s (pid %d)", state, pid)
	}
	return string(state)
}

func (a *app) watcherText(w WatcherStatus) string {
	if w.LastHeartbeat == nil {
		return process(w.State, w.PID) + ", no heartbeat yet"
	}
	return process(w.State, w.PID) + ", last heartbeat " + ago(a.now().Sub(*w.LastHeartbeat))
}

func (a *app) runtimeText(r RuntimeStatus) string {
	text := r.State
	if r.Lost != nil {
		text += " since " + ago(a.now().Sub(*r.Lost))
	}
	return strings.TrimSpace(r.Name+" "+r.Version+" "+text) + map[bool]string{true: " (no snapshot yet)"}[r.Name == ""]
}

func (a *app) applierText(s ApplierStatus) string {
	text := process(s.State, s.PID)
	if s.Started != nil {
		text += ", started " + ago(a.now().Sub(*s.Started))
	}
	if s.Version != "" {
		text += ", version " + s.Version
	}
	if s.UnknownEvents > 0 {
		text += fmt.Sprintf(", %d records of unknown events skipped", s.UnknownEvents)
	}
	return text
}

func resctrlText(r ResctrlStatus) string {
	if r.Reason != "" {
		return r.Root + ": " + r.Reason
	}
	return fmt.Sprintf("%s, %d of %d RMIDs used", r.Root, r.Used, r.RMIDs)
}

func (a *app) podsText(p *PodsStatus) string {
	text := fmt.Sprintf("%d Exists, %d Failed", p.Exists, sum(p.Failed))
	if len(p.Failed) > 0 {
		text += " (" + counted(p.Failed) + "; the oldest " + a.age(p.FailedSince) + ")"
	}
	if p.Removing > 0 {
		text += fmt.Sprintf(", and %d ended whose group is still to be removed", p.Removing)
	}
	return text
}

func containersText(c *ContainerStatus) string {
	if len(c.ByState) == 0 {
		return "0"
	}
	text := fmt.Sprintf("%d: %s", sum(c.ByState), counted(c.ByState))
	if len(c.Partial) > 0 {
		text += " (Partial: " + counted(c.Partial) + ")"
	}
	return text
}

func barrierText(w WatcherStatus) string {
	return fmt.Sprintf("container starts: %d hits, %d misses, %d skips; %d records dropped by the queue",
		w.BarrierHits, w.BarrierMisses, w.BarrierSkips, w.QueueDropped)
}

func (a *app) eventsText(e *EventsStatus) string {
	if e.Seq == 0 {
		return "none yet"
	}
	text := fmt.Sprintf("the last is number %d", e.Seq)
	if e.Time != "" {
		text += ", " + a.age(e.Time)
	}
	if e.Lag == 0 {
		return text + "; all are in " + a.cfg.Events.Path
	}
	return text + fmt.Sprintf("; %d are not in %s yet", e.Lag, a.cfg.Events.Path)
}

func (a *app) snapshotText(s *SnapshotStatus) string {
	if s == nil {
		return "none yet"
	}
	text := fmt.Sprintf("%s: %d pods, %d containers", ago(a.now().Sub(s.Time)), s.Pods, s.Containers)
	if !s.ThisBoot {
		text += ", before this boot"
	}
	return text
}

// problems says what is wrong, the cause before its consequences.
func (a *app) problems(s *Status) {
	say := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	if s.Resctrl.Reason != "" {
		say("resctrl cannot be used (%s): %s", s.Resctrl.Reason, s.Resctrl.Error)
	} else if r := s.Applier.Resctrl; r != "" && r != "ok" {
		say("the applier cannot use resctrl (%s): %s", r, s.Applier.ResctrlError)
	}
	if s.Applier.State == stopped {
		say("resctrl-applier does not run: systemctl start resctrl-applier, then journalctl -u resctrl-applier")
	}
	a.watcherProblems(s, say)
	if s.Pods != nil && s.Pods.Failed["capacity"] > 0 {
		say("%s for an RMID; each is served when a pod leaves and resctrl-retry.timer runs (systemctl status resctrl-retry.timer)", waits(s.Pods.Failed["capacity"]))
	}
	for _, reason := range []string{"permission", "io"} {
		if s.Pods != nil && s.Pods.Failed[reason] > 0 {
			say("pods have no group (%s: %d): journalctl -u resctrl-applier says on which path, and what to do", reason, s.Pods.Failed[reason])
		}
	}
	if s.Pods != nil && s.Pods.FailedError != "" {
		say("the oldest of these failures: %s", s.Pods.FailedError)
	}
	if s.Events != nil && s.Events.Lag > 0 && s.Applier.State == stopped {
		say("%d events are not in %s: the applier and the retry job append them", s.Events.Lag, a.cfg.Events.Path)
	} else if s.Events != nil && s.Events.Lag > maxLag {
		say("%d events are not in %s: can it be written? journalctl -u resctrl-applier", s.Events.Lag, a.cfg.Events.Path)
	}
}

func waits(pods int) string {
	if pods == 1 {
		return "1 pod waits"
	}
	return fmt.Sprintf("%d pods wait", pods)
}

// maxLag is how many events may wait for the export while the applier works: it
// exports at the end of every hold, which is 20 ms at most.
const maxLag = 1000

func (a *app) watcherProblems(s *Status, say func(string, ...any)) {
	beat := s.Watcher.LastHeartbeat
	switch {
	case s.Watcher.State == stopped:
		say("nri-watcher does not run, no change of a pod is seen: systemctl start nri-watcher, then journalctl -u nri-watcher")
	case beat != nil && s.Applier.State == runs && a.now().Sub(*beat) > a.late():
		say("nothing of nri-watcher was recorded for longer than %s: either resctrl-applier cannot write %s (no room? journalctl -u resctrl-applier says so; pods get their groups meanwhile), or nri-watcher hangs (journalctl -u nri-watcher)", short(a.late()), a.cfg.State.Path)
	case s.Runtime.State == "disconnected" && s.Watcher.State != stopped:
		say("nri-watcher has no connection to the runtime: does it run, is NRI enabled, is %s its socket?", a.cfg.Watcher.NRISocket)
	case s.Snapshot == nil && s.Pods != nil && s.Applier.State == runs:
		say("no snapshot of the runtime has come yet: journalctl -u nri-watcher")
	}
	if s.Snapshot != nil && !s.Snapshot.ThisBoot {
		say("what is told of pods is from before this boot, until the runtime's next snapshot")
	}
}

// short is a span without needless zeros.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}
