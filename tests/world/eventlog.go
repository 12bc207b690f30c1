package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
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
	GroupState, GroupPath string // GroupPath of Exists only
	Total, Reconciled     int
}

// Rebuild gives the pods that are there after the events. Events out of order,
// or a Removed of what is not there, are errors.
func Rebuild(events []Event) (map[string]PodOf, error) {
	pods := map[string]PodOf{}
	for i, e := range events {
		if i > 0 && e.Log == events[i-1].Log && e.Seq <= events[i-1].Seq {
			return nil, fmt.Errorf("event %d follows event %d", e.Seq, events[i-1].Seq)
		}
		if e.Type == "Removed" {
			if _, ok := pods[e.PodUID]; !ok {
				return nil, fmt.Errorf("event %d: pod %s is removed and was not there", e.Seq, e.PodUID)
			}
			delete(pods, e.PodUID)
			continue
		}
		if e.Reconciled > e.Total {
			return nil, fmt.Errorf("event %d: %d of %d containers reconciled", e.Seq, e.Reconciled, e.Total)
		}
		pods[e.PodUID] = PodOf{GroupState: e.GroupState, GroupPath: e.GroupPath, Total: e.Total, Reconciled: e.Reconciled}
	}
	return pods, nil
}
