package state

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID ("nrir") in the file's header tells our database from others.
const applicationID = 0x6e726972

// insaneVersion: no program of ours will ever number its schema like this; a
// header that says so is damaged.
const insaneVersion = 10000

type migration struct {
	version int
	name    string
	sql     string
}

// knownMigrations reads the embedded files, which are named NNNN_what.sql, in order.
func knownMigrations() ([]migration, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var out []migration
	for i, name := range names {
		base := strings.TrimPrefix(name, "migrations/")
		n, err := strconv.Atoi(base[:4])
		if err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s: want number %04d", base, i+1)
		}
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, migration{version: n, name: base, sql: string(text)})
	}
	return out, nil
}

// migrate brings the schema to the newest version, in one transaction.
func migrate(ctx context.Context, db *sql.DB, path string, known []migration) error {
	newest := len(known)
	found, err := schemaVersion(ctx, db, path, newest)
	if err != nil || found == newest {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, m := range known[found:] {
		if _, err := tx.ExecContext(ctx, m.sql); err != nil {
			return fmt.Errorf("migrate %s to version %d (%s): %w", path, m.version, m.name, err)
		}
	}
	for _, q := range []string{
		fmt.Sprintf("PRAGMA user_version = %d", newest),
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("INSERT INTO meta VALUES ('schema', '%d') ON CONFLICT (key) DO UPDATE SET value = excluded.value", newest),
	} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("migrate %s: %w", path, err)
		}
	}
	return tx.Commit()
}

// schemaVersion reads the schema's version; 0 for an empty file. The version
// is kept twice, in the header and in meta: only when both say so is a
// database newer, else it is damaged.
func schemaVersion(ctx context.Context, db *sql.DB, path string, newest int) (int, error) {
	var version, app, tables, ours int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, err
	}
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app); err != nil {
		return 0, err
	}
	err := db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE name IN ('pods', 'sandboxes', 'containers', 'events', 'meta'))
		FROM sqlite_master WHERE type = 'table'`).Scan(&tables, &ours)
	if err != nil {
		return 0, err
	}
	switch {
	case tables == 0 && version == 0 && app == 0:
		return 0, nil
	case tables > 0 && ours == 0 && app != applicationID:
		return 0, fmt.Errorf("%s is the database of another program: change state.path, or move the file away", path)
	case ours < 5 || app != applicationID || version < 1 || version > insaneVersion:
		return 0, fmt.Errorf("%w: its header (version %d, application %#x) and its tables do not match", ErrCorrupt, version, app)
	}
	var told string
	err = db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'schema'").Scan(&told)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if told != strconv.Itoa(version) {
		return 0, fmt.Errorf("%w: schema version %d in its header, %q in meta", ErrCorrupt, version, told)
	}
	if version > newest {
		return 0, &NewerError{Path: path, Found: version, Known: newest}
	}
	return version, nil
}
