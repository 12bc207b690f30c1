package world

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Event is one line of the event log, as the contract describes it.
type Event struct {
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
	Node       string `json:"node"`
	Source     string `json:"source"`

	Line string `json:"-"` // as it was read, without its newline
}

// String is the event in short: "Exists 2/1" (total, reconciled),
// "Failed capacity 1/0", "Removed".
func (e Event) String() string {
	if e.Type == "Removed" {
		return e.Type
	}
	word := e.GroupState
	if e.Reason != "" {
		word += " " + e.Reason
	}
	return fmt.Sprintf("%s %d/%d", word, e.Total, e.Reconciled)
}

// ReadEvents reads event logs, the oldest first. A line that is no event, or
// has no newline, is an error; a file that is not there has no events.
func ReadEvents(paths ...string) ([]Event, error) {
	var all []Event
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for n := 1; len(text) > 0; n++ {
			line, rest, whole := bytes.Cut(text, []byte("\n"))
			if !whole {
				return nil, fmt.Errorf("%s:%d: torn line %q", path, n, line)
			}
			text = rest
			e := Event{Line: string(line)}
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s:%d: %w in %q", path, n, err, line)
			}
			if e.Type != "AddOrUpdate" && e.Type != "Removed" || e.Log == "" || e.Seq < 1 || e.PodUID == "" {
				return nil, fmt.Errorf("%s:%d: no event: %s", path, n, line)
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// Events is this node's event log.
func (w *World) Events() ([]Event, error) { return ReadEvents(w.EventLog()) }

// History is what was told of a pod so far, each event in short, with commas.
func (w *World) History(uid string) (string, error) {
	all, err := w.Events()
	if err != nil {
		return "", err
	}
	var words []string
	for _, e := range all {
		if e.PodUID == uid {
			words = append(words, e.String())
		}
	}
	return strings.Join(words, ", "), nil
}

// PodOf is a pod as its last event tells it.
type PodOf struct {
	Namespace, Name       string
	GroupState, GroupPath string // GroupPath of Exists only
	Total, Reconciled     int
}

// Rebuild is a reader that knows nothing but the events: it gives the pods that
// are there after them. Another log id is another state, begun anew with the
// pods that its own events tell. What a reader could not make sense of is an
// error: an event out of order, a Removed of what is not there, a group without
// a path, a failure without a reason, counters that cannot be.
func Rebuild(events []Event) (map[string]PodOf, error) { return rebuild(events, true) }

// rebuild is Rebuild; where a state has lost events that the log has, a Removed
// may come again, and once is false.
func rebuild(events []Event, once bool) (map[string]PodOf, error) {
	pods := map[string]PodOf{}
	ended := map[string]bool{} // log ids that another one followed
	for i, e := range events {
		if i > 0 && e.Log != events[i-1].Log {
			ended[events[i-1].Log] = true
			clear(pods)
		}
		if ended[e.Log] {
			return nil, fmt.Errorf("event %d is of log %s, which another one followed", e.Seq, e.Log)
		}
		if i > 0 && e.Log == events[i-1].Log && e.Seq <= events[i-1].Seq {
			return nil, fmt.Errorf("event %d follows event %d", e.Seq, events[i-1].Seq)
		}
		if err := e.sound(); err != nil {
			return nil, fmt.Errorf("event %d: %w: %s", e.Seq, err, e.Line)
		}
		if e.Type == "Removed" {
			if _, ok := pods[e.PodUID]; !ok && once {
				return nil, fmt.Errorf("event %d: pod %s is removed and was not there", e.Seq, e.PodUID)
			}
			delete(pods, e.PodUID)
			continue
		}
		pods[e.PodUID] = PodOf{
			Namespace: e.Namespace, Name: e.Name, GroupState: e.GroupState, GroupPath: e.GroupPath, Total: e.Total, Reconciled: e.Reconciled,
		}
	}
	return pods, nil
}

// sound says what cannot be of a single event.
func (e Event) sound() error {
	_, terr := time.Parse(time.RFC3339Nano, e.Time)
	switch {
	case terr != nil || e.Node == "" || e.Source != "resctrl-applier" && e.Source != "resctrl-retry":
		return errors.New("no time, node or source of ours")
	case e.Type == "Removed":
		return nil
	case e.GroupState == "Exists" && (e.GroupPath == "" || e.Reason != ""),
		e.GroupState == "Failed" && (e.GroupPath != "" || e.Reason == ""),
		e.GroupState != "Exists" && e.GroupState != "Failed":
		return errors.New("group state, path and reason do not fit")
	case e.Total < 0 || e.Reconciled < 0 || e.Reconciled > e.Total:
		return errors.New("counters that cannot be")
	case e.GroupState == "Failed" && e.Reconciled > 0:
		return errors.New("containers are reconciled in a group that is not there")
	}
	return nil
}
