package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// safe is a text as data: whoever names a pod must not move the terminal's
// cursor, end a line or turn the direction of writing. Such characters are
// escaped as Go and JSON write them, and the backslash with them.
func safe(s string) string {
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, s[i]) // not UTF-8
		case unsafe(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unsafe(r rune) bool {
	return !unicode.IsPrint(r) || r == '\\' || r == unicode.ReplacementChar
}

// table prints rows in aligned columns, the first one as the head. Cells are
// made safe here. An empty cell is "-", as awk and cut would not see it.
func table(w io.Writer, rows [][]string) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = safe(cell); cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// printJSON prints one indented document.
func printJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeJSON(b.String()))
	return err
}

// escapeJSON escapes what JSON allows raw in strings, but a terminal obeys.
// Outside of strings no such character can be.
func escapeJSON(s string) string {
	obeyed := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if !strings.ContainsFunc(s, obeyed) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// ago is a span in the one or two units that matter to a person.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in the future (did the clock go back?)"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min ago", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d ago", d/(24*time.Hour))
}

// age is ago of a time of the state; "" for none.
func (a *app) age(t string) string {
	at, err := time.Parse(time.RFC3339Nano, t)
	if err != nil {
		return t
	}
	return ago(a.now().Sub(at))
}

// counted is "2 capacity, 1 io", the most first; "" of nothing. A key that is
// empty is told as "no reason".
func counted(m map[string]int) string {
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, b string) int { return m[b] - m[a] })
	parts := make([]string, 0, len(keys))
	for _, k := range keys {
		what := k
		if k == "" {
			what = "no reason"
		}
		parts = append(parts, fmt.Sprintf("%d %s", m[k], what))
	}
	return strings.Join(parts, ", ")
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}
