package config

import (
	"fmt"
	"strings"
)

// ExitCode is sysexits' EX_CONFIG, the code with which every program ends that
// finds its configuration wrong.
const ExitCode = 78

// Error is one thing that is wrong with the configuration.
type Error struct {
	File    string // as it was named
	Line    int    // 1 is the first; 0 where the fault has no line
	Key     string // "watcher.queue_size"; "" where the fault is not of a key
	Found   string // what is there
	Allowed string // what may be there; "" where the fault says it all
	Err     error  // what the operating system said; nil where it said nothing
}

// Error says where, what was found and what is allowed, in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Found)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Allowed != "" {
		b.WriteString("; allowed: " + e.Allowed)
	}
	return b.String()
}

// Unwrap is what the operating system said.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is 78 (EX_CONFIG).
func (e *Error) ExitCode() int { return ExitCode }

// Errors is everything that is wrong with one file, in the order of its lines.
// It is never empty; errors.As finds its first *Error.
type Errors []*Error

// Error has one line for each fault.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap is the single faults.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// ExitCode is 78 (EX_CONFIG).
func (e Errors) ExitCode() int { return ExitCode }
