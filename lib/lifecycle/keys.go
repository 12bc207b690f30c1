package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
)

// maxDepth bounds how deep the objects and arrays of a line may be nested; a
// record of ours has two levels.
const maxDepth = 32

var (
	errTwice = errors.New("line is ambiguous: a name is there twice in one object")
	errDeep  = errors.New("line is nested too deep")
)

// checkKeys refuses a line of valid JSON in which an object has a name twice.
// encoding/json takes names without regard to case and lets the last one win
// (and merges objects), so such a line means different things to different
// readers.
func checkKeys(line []byte) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	var open []map[string]bool // a nil map is an array
	atName := false            // the next string is a name
	for {
		tok, err := dec.Token()
		if err != nil {
			return nil // the end; the line was checked before
		}
		switch t := tok.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			if len(open) > maxDepth {
				return errDeep
			}
		case string:
			if atName {
				name := fold(t)
				if open[len(open)-1][name] {
					return errTwice
				}
				open[len(open)-1][name] = true
				atName = false
				continue
			}
		}
		atName = len(open) > 0 && open[len(open)-1] != nil
	}
}

// fold gives names that encoding/json takes for the same one the same form:
// it compares under Unicode's simple folding.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		return low
	}, name)
}
