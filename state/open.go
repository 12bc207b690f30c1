package state

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// Open opens the database at path, makes it where there is none, and migrates
// it forward. A file that is no sound database is moved aside, which is
// logged, and made anew. Errors: *NewerError; ErrBusy, ErrUnwritable (errors.Is)
// where trying again later may help.
func Open(path string, o Options) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("state.path: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Busy == 0 {
		o.Busy = DefaultBusy
	}
	gid, err := lookupGroup(o.Group)
	if err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Dir(path), gid); err != nil {
		return nil, classifyOS(fmt.Errorf("state directory: %w", err))
	}
	unlock, err := lockOpening(path)
	if err != nil {
		return nil, classifyOS(err)
	}
	defer unlock()
	s, err := openFile(path, gid, o)
	if errors.Is(err, ErrCorrupt) {
		aside, moveErr := moveAside(path, o.Now())
		if moveErr != nil {
			return nil, classifyOS(fmt.Errorf("move damaged database aside: %w (it is damaged: %w)", moveErr, err))
		}
		o.Logger.Error("state database is damaged: moved aside, a new one is filled from the next snapshot",
			"path", path, "moved_to", aside, "error", err)
		s, err = openFile(path, gid, o)
	}
	if err != nil {
		return nil, fmt.Errorf("open state database: %w", err)
	}
	return s, nil
}

func openFile(path string, gid int, o Options) (_ *Store, err error) {
	if err := makeFile(path, gid); err != nil {
		return nil, classifyOS(err)
	}
	s := &Store{path: path, node: o.Node, log: o.Logger, now: o.Now}
	defer func() {
		if err != nil {
			s.Close()
			err = classify(err)
		}
	}()
	s.durable = openPool(path, o.Busy, "immediate", "FULL", durableSetup)
	ctx := context.Background()
	var mode string
	if err := s.durable.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return nil, err
	}
	if mode != "wal" {
		return nil, fmt.Errorf("%s: journal mode is %q, not wal: is it on a network file system?", path, mode)
	}
	known, err := knownMigrations()
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, s.durable, path, known); err != nil {
		return nil, err
	}
	if s.logID, err = ensureLogID(ctx, s.durable); err != nil {
		return nil, err
	}
	// Checkpoints fsync, so they are left to the durable connection's commits.
	s.quick = openPool(path, min(o.Busy, quickBusy), "immediate", "NORMAL", "PRAGMA wal_autocheckpoint = 0")
	s.reader = openPool(path, o.Busy, "deferred", "FULL", "PRAGMA query_only = 1")
	if err := s.check(ctx, !o.SkipCheck); err != nil {
		return nil, err
	}
	if s.files, err = identify(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return s, nil
}

// durableSetup: a checkpoint every 16 MiB of WAL, for the first commit after
// one fsyncs the WAL's new header, be it an Intend; a WAL that a long reader
// made grow is cut to 64 MiB again.
const durableSetup = "PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 67108864"

// inMemory keeps SQLite's temporary files (the statement journal of a big
// change) out of /var/tmp: it may be full, or not ours to write.
const inMemory = "PRAGMA temp_store = MEMORY; "

// connector opens connections without registering a driver globally.
type connector struct {
	driver *sqlite3.SQLiteDriver
	dsn    string
}

func (c *connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c *connector) Driver() driver.Driver                        { return c.driver }

// openPool gives a handle with exactly one lasting connection, on which setup
// was run.
func openPool(path string, busy time.Duration, txlock, synchronous, setup string) *sql.DB {
	q := url.Values{
		"_txlock":          {txlock}, // a deferred one that reads, then writes, fails at once beside another writer
		"_synchronous":     {synchronous},
		"_busy_timeout":    {fmt.Sprint(busy.Milliseconds())},
		"_foreign_keys":    {"on"},
		"_stmt_cache_size": {"64"},
	}
	dsn := (&url.URL{Scheme: "file", Opaque: strings.ReplaceAll(url.PathEscape(path), "%2F", "/"), RawQuery: q.Encode()}).String()
	db := sql.OpenDB(&connector{dsn: dsn, driver: &sqlite3.SQLiteDriver{
		ConnectHook: func(c *sqlite3.SQLiteConn) error {
			_, err := c.Exec(inMemory+setup, nil)
			return err
		},
	}})
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db
}

// ensureLogID reads the event log's id, and makes one in a new database.
func ensureLogID(ctx context.Context, db *sql.DB) (string, error) {
	var id string
	err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'log'").Scan(&id)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	random := make([]byte, 8)
	rand.Read(random) // never fails (crypto/rand)
	id = hex.EncodeToString(random)
	if _, err := db.ExecContext(ctx, "INSERT INTO meta VALUES ('log', ?)", id); err != nil {
		return "", err
	}
	// Schema and id go into the file itself, now: a damaged WAL then loses
	// commits, which is noticed and told, and not silently everything. A reader
	// may keep it from happening; the next checkpoint will do.
	_, _ = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return id, nil
}

// check reads the database for damage: all of it where whole is set, the
// small tables and what is still to be exported in any case.
func (s *Store) check(ctx context.Context, whole bool) error {
	checks := []string{"integrity_check(pods)", "integrity_check(sandboxes)", "integrity_check(containers)", "integrity_check(meta)"}
	if whole {
		checks = append([]string{"quick_check(1)"}, checks...)
	}
	for _, check := range checks {
		var result string
		if err := s.durable.QueryRowContext(ctx, "PRAGMA "+check).Scan(&result); err != nil {
			return err
		}
		if result != "ok" {
			return fmt.Errorf("%w: %s says: %s", ErrCorrupt, check, strings.TrimSpace(result))
		}
	}
	for _, q := range []string{
		"SELECT " + podColumns + " FROM pods LIMIT 0", "SELECT " + containerColumns + " FROM containers LIMIT 0",
		"SELECT * FROM unreconciled LIMIT 0", "SELECT * FROM failed_pods LIMIT 0", "SELECT * FROM node_summary LIMIT 0",
	} {
		if _, err := s.durable.ExecContext(ctx, q); err != nil {
			var se sqlite3.Error
			if errors.As(err, &se) && se.Code == sqlite3.ErrError { // no such table, column
				return fmt.Errorf("%w: its tables are not those of its version: %w", ErrCorrupt, err)
			}
			return err
		}
	}
	rows, err := s.durable.QueryContext(ctx, "PRAGMA foreign_key_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		return fmt.Errorf("%w: a sandbox or container of no pod", ErrCorrupt)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return s.checkLines(ctx)
}

// checkLines reads what is still to be exported, as the export will.
func (s *Store) checkLines(ctx context.Context) error {
	const some = 256
	after, _, _, _, err := s.Position(ctx)
	if err != nil {
		return err
	}
	for {
		lines, err := s.Unexported(ctx, after, some)
		if err != nil || len(lines) == 0 {
			return err
		}
		var last eventLine
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			return err
		}
		after = last.Seq
	}
}

// moveAside renames the files of a damaged database, and says to what.
func moveAside(path string, now time.Time) (string, error) {
	aside := path + ".damaged-" + now.UTC().Format("20060102T150405.000000000Z")
	for _, suffix := range suffixes {
		if err := os.Rename(path+suffix, aside+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return aside, nil
}

// classifyOS marks the system's errors that may pass by themselves.
func classifyOS(err error) error {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EACCES, syscall.EPERM} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrUnwritable, err)
		}
	}
	return err
}
