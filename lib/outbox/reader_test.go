package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
)

// segment is the content of one log file, as a shipper would have read it.
type segment struct {
	name    string
	content string
	// cut: it was copied or compressed before the export could complete a
	// torn line, so its last piece may be one.
	cut bool
}

// told is one event as a consumer reads it.
type told struct {
	Log     string `json:"log"`
	Seq     int64  `json:"seq"`
	Payload int    `json:"payload"`
}

// readSegments reads the log as a consumer does who knows nothing of how it
// was written: line by line, oldest file first.
func readSegments(segments []segment) (events []told, err error) {
	for _, s := range segments {
		lines := strings.Split(s.content, "\n")
		for i, line := range lines {
			last := i == len(lines)-1
			if line == "" || strings.HasPrefix(line, "foreign") || (last && s.cut) {
				continue
			}
			var e told
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				return nil, fmt.Errorf("%s: line %d is broken: %q", s.name, i+1, line)
			}
			if last {
				return nil, fmt.Errorf("%s: last line lacks its newline: %q", s.name, line)
			}
			if want := (row{e.Seq, e.Payload}).line(); line != want {
				return nil, fmt.Errorf("%s: line %d is %q, committed was %q", s.name, i+1, line, want)
			}
			events = append(events, e)
		}
	}
	return events, nil
}

// judge checks what a consumer read against what was committed, up to and
// including upTo: no gap, in order, repeats only of what may be repeated.
func judge(events []told, mayRepeat map[int64]bool, upTo int64) error {
	var highest int64
	seen := map[int64]int{}
	for _, e := range events {
		if p, again := seen[e.Seq]; again {
			if p != e.Payload {
				return fmt.Errorf("seq %d means two events", e.Seq)
			}
			if !mayRepeat[e.Seq] {
				return fmt.Errorf("seq %d is told twice", e.Seq)
			}
			continue
		}
		seen[e.Seq] = e.Payload
		if e.Seq != highest+1 {
			return fmt.Errorf("seq %d follows %d", e.Seq, highest)
		}
		highest = e.Seq
	}
	if highest < upTo {
		return fmt.Errorf("the log ends at seq %d of %d", highest, upTo)
	}
	return nil
}
