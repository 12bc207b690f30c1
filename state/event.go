package state

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// eventLine is one line of events.jsonl; the fields' order is the line's.
type eventLine struct {
	Log        string           `json:"log"`
	Seq        int64            `json:"seq"`
	Time       string           `json:"time"`
	Type       rules.EventType  `json:"type"`
	PodUID     string           `json:"pod_uid"`
	GroupState rules.GroupState `json:"group_state,omitempty"`
	GroupPath  string           `json:"group_path,omitempty"`
	Reason     rules.Reason     `json:"reason,omitempty"`
	Total      *int             `json:"total_containers,omitempty"` // absent in Removed, present when 0 elsewhere
	Reconciled *int             `json:"reconciled_containers,omitempty"`
	Namespace  string           `json:"pod_namespace"`
	Name       string           `json:"pod_name"`
	Node       string           `json:"node"`
	Source     string           `json:"source"`
}

// tidy leaves in an event only what its kind tells.
func (e SourcedEvent) tidy() SourcedEvent {
	switch {
	case e.Type == rules.Removed:
		e.GroupState, e.GroupPath, e.Reason, e.Total, e.Reconciled = "", "", "", 0, 0
	case e.GroupState == rules.GroupFailed:
		e.GroupPath = ""
	default:
		e.Reason = ""
	}
	return e
}

// lineOf renders a tidy event, without the newline.
func lineOf(e SourcedEvent, logID string, seq int64, node string) ([]byte, error) {
	l := eventLine{Log: logID, Seq: seq, Time: formatTime(e.Time), Type: e.Type, PodUID: e.PodUID,
		GroupState: e.GroupState, GroupPath: e.GroupPath, Reason: e.Reason,
		Namespace: e.Namespace, Name: e.Name, Node: node, Source: e.Source}
	if e.Type != rules.Removed {
		l.Total, l.Reconciled = &e.Total, &e.Reconciled
	}
	return l.render()
}

func (l *eventLine) render() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a path or name is told as it is
	if err := enc.Encode(l); err != nil {
		return nil, fmt.Errorf("event line: %w", err)
	}
	return escapeControls(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// escapeControls escapes DEL and the C1 controls, which JSON allows raw but a
// terminal obeys: a pod's author chooses names, and people `tail` the log.
func escapeControls(line []byte) []byte {
	isControl := func(r rune) bool { return r >= 0x7f && r <= 0x9f }
	if !bytes.ContainsFunc(line, isControl) {
		return line
	}
	var out []byte
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		if isControl(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, line[:n]...)
		}
		line = line[n:]
	}
	return out
}

// lastSeq is the highest seq that was ever given out. Besides AUTOINCREMENT's
// own memory it asks the rows and the export's record, so that somebody's
// repair of one table cannot make a seq be used twice.
const lastSeq = `SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),
	coalesce((SELECT max(seq) FROM events), 0),
	coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'export_seq'), 0))`

// addEvents gives events their seq and line, in order. The transaction is
// IMMEDIATE, so nobody else takes a seq meanwhile.
func (s *Store) addEvents(tx *sql.Tx, events []SourcedEvent) error {
	if len(events) == 0 {
		return nil
	}
	var seq int64
	if err := tx.QueryRow(lastSeq).Scan(&seq); err != nil {
		return fmt.Errorf("next event: %w", err)
	}
	for _, e := range events {
		seq++
		e = e.tidy()
		if e.Time.IsZero() {
			e.Time = s.now()
		}
		line, err := lineOf(e, s.logID, seq, s.node)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO events (seq, time, type, pod_uid, group_state, group_path, reason,
				total_containers, reconciled_containers, source, line) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			seq, formatTime(e.Time), string(e.Type), e.PodUID, string(e.GroupState), e.GroupPath, string(e.Reason),
			e.Total, e.Reconciled, e.Source, string(line))
		if err != nil {
			return fmt.Errorf("save event %d of pod %q: %w", seq, e.PodUID, err)
		}
	}
	return nil
}
