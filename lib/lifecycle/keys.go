package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// A record of ours has two levels, and no object of it has more than twenty
// names; beyond these bounds a line is nobody's.
const (
	maxDepth = 32
	maxNames = 64
)

var (
	errTwice = errors.New("line is ambiguous: a name is there twice in one object")
	errDeep  = fmt.Errorf("line is nested deeper than %d levels", maxDepth)
	errNames = fmt.Errorf("line has an object with more than %d names", maxNames)
)

// checkKeys refuses a line in which an object has a name twice. encoding/json
// takes names without regard to case and lets the last one win (and merges
// objects), so such a line means different things to different readers. The
// line must be valid JSON already.
func checkKeys(line []byte) error {
	var open [][][]byte // the names of each object, and of each array none
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			if len(open) == maxDepth {
				return errDeep
			}
			open = append(open, nil)
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			text := quoted(line[i:])
			i += len(text) - 1
			// Only a name has a colon after it.
			if after := bytes.TrimLeft(line[i+1:], " \t\r\n"); len(after) == 0 || after[0] != ':' {
				continue
			}
			names, err := addName(open[len(open)-1], text)
			if err != nil {
				return err
			}
			open[len(open)-1] = names
		}
	}
	return nil
}

// quoted returns the string that s begins with, its quotes included.
func quoted(s []byte) []byte {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i+1]
		}
	}
	return s
}

// addName adds a name to those of its object. It compares as encoding/json
// does, under Unicode's simple folding.
func addName(names [][]byte, text []byte) ([][]byte, error) {
	name := text[1 : len(text)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, plain(err)
		}
		name = []byte(s)
	}
	for _, n := range names {
		if bytes.EqualFold(n, name) {
			return nil, errTwice
		}
	}
	if len(names) == maxNames {
		return nil, errNames
	}
	return append(names, name), nil
}
