package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/nri-resctrl/nri-resctrl/state"
)

// verdict is how a check ended.
type verdict string

const (
	good verdict = "ok"
	warn verdict = "warn" // it works, or may; somebody should look
	fail verdict = "fail" // pods get no groups, or nobody sees it
)

// finding is one line of doctor; its JSON is the output of --json.
type finding struct {
	Check  string  `json:"check"`
	Status verdict `json:"status"`
	Found  string  `json:"found"`
	Advice string  `json:"advice"` // what to do; "" where there is nothing
}

// doctor checks the node. Its error has exit code 1 where a check failed.
func (a *app) doctor(ctx context.Context) error {
	s, stateErr := a.gather(ctx)
	findings := []finding{
		a.checkCPU(), a.checkKernel(), a.checkMount(s.Resctrl), a.checkSocket(),
		a.checkUser(), a.checkGroup(), a.checkPipe(), a.checkWatcher(s), a.checkApplier(s), a.checkState(s, stateErr),
		a.checkLog(s), a.checkRMIDs(s.Resctrl),
	}
	findings = append(findings, a.checkGroups(ctx, s.Resctrl)...)
	if a.json {
		if err := printJSON(a.out, findings); err != nil {
			return err
		}
	} else if err := a.printFindings(findings); err != nil {
		return err
	}
	var broken []string
	for _, f := range findings {
		if f.Status == fail {
			broken = append(broken, f.Check)
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("broken: %s", strings.Join(broken, ", "))
	}
	return nil
}

func (a *app) printFindings(findings []finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-4s  %-12s  %s\n", f.Status, f.Check, safe(f.Found))
		if f.Advice != "" {
			fmt.Fprintf(&b, "%-4s  %-12s  -> %s\n", "", "", safe(f.Advice))
		}
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

// checkMount says whether resctrl can be used. The error has its own advice.
func (a *app) checkMount(r ResctrlStatus) finding {
	f := finding{"mount", good, "resctrl is mounted at " + r.Root, ""}
	if r.Reason == "" {
		return f
	}
	f.Status, f.Found = fail, r.Error
	if r.Reason == "not_mounted" && a.cfg.Resctrl.AutoMount && !a.cfg.Resctrl.Simulated {
		f.Advice = "or restart resctrl-applier, which mounts it when it starts (auto_mount)"
	}
	return f
}

// fewRMIDs is the share of the RMIDs below which free ones are few.
const fewRMIDs = 10

func (a *app) checkRMIDs(r ResctrlStatus) finding {
	f := finding{"rmids", good, fmt.Sprintf("%d of %d RMIDs are free", max(r.RMIDs-r.Used, 0), r.RMIDs), ""}
	free := r.RMIDs - r.Used
	switch {
	case r.Reason != "":
		return finding{"rmids", warn, "cannot be counted without resctrl", ""}
	case free <= 0:
		f.Status = warn
		f.Advice = "new pods wait until one leaves. Every group holds one, also those of other tools: look at " + r.Root + "/mon_groups and at the control groups beside it"
	case free*fewRMIDs < r.RMIDs:
		f.Status, f.Advice = warn, "new pods will soon have to wait until one leaves"
	}
	return f
}

func (a *app) checkWatcher(s *Status) finding {
	f := finding{"watcher", good, a.watcherText(s.Watcher), ""}
	beat := s.Watcher.LastHeartbeat
	switch {
	case s.Watcher.State == stopped:
		f.Status, f.Advice = fail, "systemctl start nri-watcher, then journalctl -u nri-watcher"
	case s.Watcher.State == unknown:
		f.Status, f.Advice = warn, "only root can see whether it runs"
	case s.Pods == nil || s.Applier.State == stopped:
	case beat == nil || a.now().Sub(*beat) > a.late():
		f.Status, f.Advice = warn, "it should be heard every "+short(a.cfg.Watcher.Heartbeat.Duration)+": journalctl -u nri-watcher"
	case s.Runtime.State != "connected":
		f.Status = warn
		f.Found += ", runtime " + s.Runtime.State
		f.Advice = "does the runtime run, and is NRI enabled in it? journalctl -u nri-watcher"
	}
	return f
}

func (a *app) checkApplier(s *Status) finding {
	f := finding{"applier", good, a.applierText(s.Applier), ""}
	switch {
	case s.Applier.State == stopped:
		f.Status, f.Advice = fail, "systemctl start resctrl-applier, then journalctl -u resctrl-applier"
	case s.Applier.State == unknown:
		f.Status, f.Advice = warn, "only root can see whether it runs"
	case s.Applier.Resctrl != "" && s.Applier.Resctrl != "ok":
		f.Status, f.Found = fail, f.Found+", cannot use resctrl: "+s.Applier.Resctrl
		f.Advice = s.Applier.ResctrlError
	}
	return f
}

func (a *app) checkState(s *Status, err error) finding {
	if err != nil {
		return finding{"state", fail, err.Error(), ""}
	}
	f := finding{"state", good, fmt.Sprintf("%s: %s; %s", a.cfg.State.Path, a.podsText(s.Pods), a.eventsText(s.Events)), ""}
	switch {
	case s.Snapshot == nil:
		f.Status, f.Advice = warn, "no snapshot of the runtime was applied yet: does nri-watcher run?"
	case s.Events.Lag > maxLag:
		f.Status, f.Advice = warn, "the event log is behind: can "+a.cfg.Events.Path+" be written? journalctl -u resctrl-applier"
	case sum(s.Pods.Failed) > 0:
		f.Status, f.Advice = warn, "resctrlctl pods says why; resctrl-retry tries them again: systemctl status resctrl-retry.timer"
	}
	return f
}

// checkGroups compares the groups with our prefix with those that the state
// names.
func (a *app) checkGroups(ctx context.Context, r ResctrlStatus) []finding {
	if r.Reason != "" {
		return nil
	}
	there, err := a.resctrl().Groups()
	if err != nil {
		return []finding{{"groups", warn, err.Error(), ""}}
	}
	pods, err := a.podRows(ctx)
	if err != nil {
		return []finding{{"groups", warn, fmt.Sprintf("%d with the prefix %s; whose they are is not known without the state", len(there), a.cfg.Resctrl.GroupPrefix), ""}}
	}
	var stray, lost []string
	named, exists := map[string]bool{}, map[string]bool{}
	for _, path := range there {
		exists[path] = true
	}
	for _, p := range pods {
		named[p.GroupPath] = true // a Failed pod's too: it may be made at this moment
		if p.GroupState == "Exists" && !p.Removing && !exists[p.GroupPath] {
			lost = append(lost, p.GroupPath)
		}
	}
	for _, path := range there {
		if !named[path] {
			stray = append(stray, path)
		}
	}
	all := finding{"groups", good, fmt.Sprintf("%d with the prefix %s, each of a pod", len(there), a.cfg.Resctrl.GroupPrefix), ""}
	if len(stray) > 0 {
		all.Status, all.Found = warn, fmt.Sprintf("%d of no pod: %s", len(stray), few(stray))
		all.Advice = "each holds an RMID: restart resctrl-applier, which removes them (cleanup_on_start), or rmdir them"
	}
	if len(lost) == 0 {
		return []finding{all}
	}
	return []finding{all, {"lost groups", warn, fmt.Sprintf("%d of pods that have one: %s", len(lost), few(lost)),
		"somebody removed them; resctrl-retry makes and fills them again: systemctl status resctrl-retry.timer"}}
}

func (a *app) podRows(ctx context.Context) ([]state.PodRow, error) {
	r, err := a.openState()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Pods(ctx)
}

// few is the first of many names.
func few(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
}
