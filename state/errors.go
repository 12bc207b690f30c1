package state

import (
	"errors"
	"fmt"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// What kept the database from doing its work, for errors.Is.
var (
	// ErrBusy: another program, mostly a person's open `sqlite3` transaction,
	// held the write lock for longer than Options.Busy. Nothing was written.
	ErrBusy = errors.New("the state database is locked by another program (an open transaction of sqlite3?)")
	// ErrUnwritable: no room, read-only, or an I/O error. Nothing was written.
	ErrUnwritable = errors.New("the state database cannot be written (is the disk full, read-only or failing?)")
	// ErrCorrupt: the file is no sound database any more, or no longer the
	// file that was opened. Close and Open again: Open moves it aside.
	ErrCorrupt = errors.New("the state database is damaged")
)

// GroupError says that state.group names no group of this system.
type GroupError struct{ err error }

func (e *GroupError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *GroupError) Unwrap() error { return e.err }

// ExitCode is that of a wrong configuration.
func (e *GroupError) ExitCode() int { return 78 }

// NewerError says that the database was made by a newer program.
type NewerError struct {
	Path         string
	Found, Known int // schema versions
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has schema version %d, this program knows versions up to %d: install the newer nri-resctrl again, "+
		"or stop its programs and move the file away (it is then rebuilt from the runtime's snapshot)", e.Path, e.Found, e.Known)
}

// classify wraps what SQLite said in one of the errors above.
func classify(err error) error {
	var se sqlite3.Error
	if err == nil || !errors.As(err, &se) {
		return err
	}
	switch se.Code {
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB, sqlite3.ErrFormat:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case sqlite3.ErrIoErr:
		if se.ExtendedCode == sqlite3.ErrIoErrShortRead {
			return fmt.Errorf("%w: the file was cut off: %w", ErrCorrupt, err)
		}
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	case sqlite3.ErrFull, sqlite3.ErrReadonly, sqlite3.ErrCantOpen, sqlite3.ErrPerm, sqlite3.ErrNomem:
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	return err
}

// isFull says whether there was no room: SQLite tells an ENOSPC as "full", but
// where it only wanted to make the -shm file longer.
func isFull(err error) bool {
	var se sqlite3.Error
	return errors.As(err, &se) && (se.Code == sqlite3.ErrFull || se.ExtendedCode == sqlite3.ErrIoErrSHMSize)
}
