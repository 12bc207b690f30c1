package ctl

import (
	"context"
	"fmt"
	"slices"

	"github.com/nri-resctrl/nri-resctrl/lib/program"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// podJSON is a pod of --json: its row, and the rows of its sandboxes.
type podJSON struct {
	state.PodRow
	Sandboxes []state.SandboxRow `json:"sandboxes"`
}

func (a *app) pods(ctx context.Context) error {
	r, err := a.openState()
	if err != nil {
		return err
	}
	defer r.Close()
	pods, err := r.Pods(ctx)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p state.PodRow) bool {
		return p.Removing && !a.all || a.pod != "" && p.PodUID != a.pod
	})
	if a.pod != "" && len(pods) == 0 {
		return a.noPod()
	}
	if a.json {
		return a.podsJSON(ctx, r, pods)
	}
	rows := [][]string{{"NAMESPACE", "NAME", "POD_UID", "GROUP", "COUNT", "CHANGED", "WHERE OR WHY"}}
	for _, p := range pods {
		group, where := p.GroupState, p.GroupPath
		switch {
		case p.Removing:
			group = "removing"
		case p.Reason != "":
			where = fmt.Sprintf("%s, since %s, %d attempts", p.Reason, a.agePtr(p.FailedSince), p.Attempts)
			if p.LastError != "" {
				where += ": " + p.LastError
			}
		}
		rows = append(rows, []string{p.Namespace, p.Name, p.PodUID, group,
			fmt.Sprintf("%d/%d", p.ReconciledContainers, p.TotalContainers), a.age(p.UpdatedAt), where})
	}
	return table(a.out, rows)
}

func (a *app) podsJSON(ctx context.Context, r *state.Reader, pods []state.PodRow) error {
	sandboxes, err := r.Sandboxes(ctx)
	if err != nil {
		return err
	}
	of := map[string][]state.SandboxRow{}
	for _, s := range sandboxes {
		of[s.PodUID] = append(of[s.PodUID], s)
	}
	docs := []podJSON{}
	for _, p := range pods {
		docs = append(docs, podJSON{p, append([]state.SandboxRow{}, of[p.PodUID]...)})
	}
	return printJSON(a.out, docs)
}

func (a *app) containers(ctx context.Context) error {
	r, err := a.openState()
	if err != nil {
		return err
	}
	defer r.Close()
	rows, err := r.Containers(ctx, a.pod)
	if err != nil {
		return err
	}
	if a.pod != "" && len(rows) == 0 && !a.known(ctx, r) {
		return a.noPod()
	}
	rows = slices.DeleteFunc(rows, func(c state.ContainerRow) bool { return c.PodRemoving && !a.all })
	if a.json {
		return printJSON(a.out, rows)
	}
	out := [][]string{{"NAMESPACE", "POD", "CONTAINER", "CONTAINER_ID", "STATE", "TASKS", "CHANGED", "WHY"}}
	for _, c := range rows {
		why := c.Reason
		if c.LastError != "" {
			why = fmt.Sprintf("%s: %s (%d attempts)", c.Reason, c.LastError, c.Attempts)
		}
		out = append(out, []string{c.PodNamespace, c.PodName, c.Name, shortID(c.ContainerID), c.State,
			fmt.Sprint(c.Tasks), a.age(c.UpdatedAt), why})
	}
	return table(a.out, out)
}

// shortID is how container tools show an id; --json has it whole.
func shortID(id string) string {
	const shown = 13
	if len(id) <= shown {
		return id
	}
	for _, r := range id {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return id
		}
	}
	return id[:shown]
}

// known says whether there is a pod of that UID at all.
func (a *app) known(ctx context.Context, r *state.Reader) bool {
	pods, err := r.Pods(ctx)
	return err != nil || slices.ContainsFunc(pods, func(p state.PodRow) bool { return p.PodUID == a.pod && (!p.Removing || a.all) })
}

func (a *app) noPod() error {
	return program.Fail(program.ExitNotFound, fmt.Errorf("no pod with UID %q is known: resctrlctl pods lists them", a.pod))
}

func (a *app) agePtr(t *string) string {
	if t == nil {
		return "?"
	}
	return a.age(*t)
}
