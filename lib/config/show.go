package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxShown is how much of a wrong value is repeated, in bytes.
const maxShown = 120

// show is a wrong value as a person knows it again, in one short line.
func show(value any) string {
	s := literal(value)
	switch value.(type) {
	case bool:
		s += " (a boolean)"
	case float64:
		s += " (a float)"
	case time.Time:
		s += " (a date or time)"
	}
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}

// literal is a value about as it stands in the file. Strings are quoted, so
// that no control character of a file reaches a terminal.
func literal(value any) string {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = literal(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, quoteKey(k)+" = "+literal(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []map[string]any:
		return "an array of tables"
	default:
		return fmt.Sprint(v)
	}
}

// oneLine escapes what would end the line or move a terminal's cursor.
func oneLine(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}
