// Package state is the durable memory of applier and retry job: pods, their
// sandboxes and containers, and the events told, in one SQLite file that a
// person can read with `sqlite3` (see README.md).
//
// Its callers hold writer.lock around reading, deciding and writing; the
// database's own locks only keep people and readers from breaking it.
package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// DefaultBusy is how long a Commit waits for a person's transaction to end.
const DefaultBusy = 5 * time.Second

// quickBusy bounds one wait of the commits that need not be durable: a
// container's start may wait behind them.
const quickBusy = 100 * time.Millisecond

// intendTries is how often Intend waits as long: giving up means going on
// without state, which is worse than a late start.
const intendTries = 5

// Options of Open.
type Options struct {
	Group  string           // who may read the files beside us, by name or number; "" is nobody
	Node   string           // the node's name in event lines
	Logger *slog.Logger     // nil discards
	Now    func() time.Time // nil is time.Now
	Busy   time.Duration    // how long Commit waits for a lock; 0 is DefaultBusy
	// SkipCheck leaves out the reading of the whole file at Open: for the
	// job, which runs beside an applier that has checked it.
	SkipCheck bool
}

// Store is one open database. It is safe for concurrent use.
type Store struct {
	path  string
	node  string
	logID string
	log   *slog.Logger
	now   func() time.Time

	// One connection each, because durability, patience and snapshots are a
	// connection's: durable fsyncs the WAL at commit, quick does not (it
	// survives a kill, not a power cut), reader sees one state of all tables.
	durable, quick, reader *sql.DB

	files identity
}

// LogID is the random id of this database's event log; a database that was
// made anew has another one.
func (s *Store) LogID() string { return s.logID }

// Path is the database's file.
func (s *Store) Path() string { return s.path }

// Close closes the database. The last program to close it moves the WAL's
// content into it.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.reader, s.quick, s.durable} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return classify(errors.Join(errs...))
}

// write runs f in one IMMEDIATE transaction of db. Transactions are short, so
// one that has begun is not cut off by ctx.
func (s *Store) write(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.files.unmoved(s.path); err != nil {
		return err
	}
	err := s.tryWrite(ctx, db, f)
	if isFull(err) && s.shrink() {
		err = s.tryWrite(ctx, db, f)
	}
	return classify(err)
}

func (s *Store) tryWrite(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	// Not ctx: the driver starts a goroutine per statement for one that can end.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// shrink moves the WAL's content into the database and gives its room back to
// a full disk, and says whether that was possible.
func (s *Store) shrink() bool {
	var busy, pages, moved int
	err := s.durable.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
	return err == nil && busy == 0
}

// read runs f on one unchanging view of the database.
func (s *Store) read(ctx context.Context, f func(*sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tx, err := s.reader.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return classify(err)
	}
	defer tx.Rollback()
	return classify(f(tx))
}

// timeFormat has a fixed width: text order is time order.
const timeFormat = "2006-01-02T15:04:05.000000000Z"

// formatTime writes t for a column or a line; "" for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeFormat)
}

// parseTime reads what formatTime wrote.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(timeFormat, s)
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return t, nil
}
