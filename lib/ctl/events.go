package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nri-resctrl/nri-resctrl/state"
)

// page is how many events are read at once: a read that a pager holds open
// would keep the applier from shortening the WAL.
const page = 500

// event is a line of events.jsonl.
type event struct {
	Log        string `json:"log"`
	Seq        int64  `json:"seq"`
	Time       string `json:"time"`
	Type       string `json:"type"`
	PodUID     string `json:"pod_uid"`
	GroupState string `json:"group_state"`
	GroupPath  string `json:"group_path"`
	Reason     string `json:"reason"`
	Total      int    `json:"total_containers"`
	Reconciled int    `json:"reconciled_containers"`
	Namespace  string `json:"pod_namespace"`
	Name       string `json:"pod_name"`
}

func (a *app) events(ctx context.Context) error {
	if a.follow {
		return a.followEvents(ctx)
	}
	r, err := a.openState()
	if err != nil {
		return err
	}
	defer r.Close()
	after, err := a.after(ctx, r)
	if err != nil {
		return err
	}
	p := a.printer()
	if err := pages(ctx, r, state.EventFilter{After: after, PodUID: a.pod}, func(e state.EventRow) error {
		return p.line(e.Line)
	}); err != nil {
		return err
	}
	return p.out.Flush()
}

// after is the seq after which the events begin that --since and --last ask for.
func (a *app) after(ctx context.Context, r *state.Reader) (int64, error) {
	if a.last == 0 {
		return a.since, nil
	}
	before, err := r.BeforeLast(ctx, a.pod, a.last)
	return max(before, a.since), err
}

// pages gives all events of a filter to f, in order.
func pages(ctx context.Context, r *state.Reader, filter state.EventFilter, f func(state.EventRow) error) error {
	filter.Limit = page
	for {
		rows, err := r.Events(ctx, filter)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := f(row); err != nil {
				return err
			}
			filter.After = row.Seq
		}
		if len(rows) < page {
			return nil
		}
	}
}

// printer prints the lines of events.
type printer struct {
	out  *bufio.Writer
	json bool
	pod  string
	head bool // was printed
}

func (a *app) printer() *printer {
	return &printer{out: bufio.NewWriter(a.out), json: a.json, pod: a.pod}
}

// line prints a line of events.jsonl, if it is of the pod.
func (p *printer) line(text string) error {
	var e event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return fmt.Errorf("event %q: %w", text, err)
	}
	return p.print(e, text)
}

func (p *printer) print(e event, text string) error {
	if p.pod != "" && e.PodUID != p.pod {
		return nil
	}
	if p.json {
		_, err := p.out.WriteString(escapeJSON(text) + "\n")
		return err
	}
	if !p.head {
		p.head = true
		fmt.Fprintf(p.out, eventFormat, "SEQ", "TIME", "TYPE", "GROUP", "COUNT", "POD", "POD_UID", "WHERE OR WHY")
	}
	count := "-"
	if e.Type != "Removed" {
		count = fmt.Sprintf("%d/%d", e.Reconciled, e.Total)
	}
	_, err := fmt.Fprintf(p.out, eventFormat, fmt.Sprint(e.Seq), cut(e.Time), or(e.Type), or(e.GroupState), count,
		or(e.Namespace+"/"+e.Name), or(e.PodUID), or(e.GroupPath+e.Reason))
	return err
}

// eventFormat has fixed widths, as the lines to come are not known.
const eventFormat = "%7s  %-23s  %-11s  %-6s  %5s  %-30s  %-36s  %s\n"

func or(s string) string {
	if s == "" {
		return "-"
	}
	return safe(s)
}

// cut is an RFC 3339 time in UTC without what is finer than a millisecond.
func cut(t string) string {
	const shown = len("2006-01-02T15:04:05.000")
	if len(t) > shown && strings.HasSuffix(t, "Z") {
		return safe(t[:shown])
	}
	return or(t)
}
