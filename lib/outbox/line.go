package outbox

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// linePrefix is how every line of a log begins, up to its seq.
func linePrefix(logID string) string {
	id, err := json.Marshal(logID)
	if err != nil {
		panic(err) // a string always marshals
	}
	return `{"log":` + string(id) + `,"seq":`
}

// seqOf gives the seq of a whole line of this log (without its newline);
// false for anything else.
func (l *Log) seqOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(l.prefix))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest, []byte(","))
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || seq < 1 || !json.Valid(line) {
		return 0, false
	}
	return seq, true
}
