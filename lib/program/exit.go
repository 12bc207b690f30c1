package program

import (
	"context"
	"errors"
)

// Exit codes of all programs (after sysexits.h).
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 64 // the command line was wrong
	ExitData        = 65 // the input was bad
	ExitNotFound    = 66 // no such pod or container
	ExitUnavailable = 69 // a needed service or lock is not to be had
	ExitCapacity    = 75 // out of RMIDs; try again later
	ExitConfig      = 78 // the configuration was wrong
)

// Error is an error that knows its exit code.
type Error struct {
	Code int
	Err  error
}

// Error is the text of the error inside.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the error inside.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is the code that the process ends with.
func (e *Error) ExitCode() int { return e.Code }

// Fail gives err an exit code. A nil err stays nil.
func Fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// ExitCode is the code for err: 0 for nil and for an end by signal, that of
// the first error in the chain that has a method ExitCode() int, else 1.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	if errors.Is(err, context.Canceled) {
		return ExitOK
	}
	return ExitFailure
}
