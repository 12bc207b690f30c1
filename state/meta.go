package state

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Meta gives one value of the table meta, and whether it is there.
func (s *Store) Meta(ctx context.Context, key string) (string, bool, error) {
	values, err := s.texts(ctx, "SELECT value FROM meta WHERE key = ?", key)
	if err != nil || len(values) == 0 {
		return "", false, err
	}
	return values[0], true, nil
}

// SetMeta saves values that need not survive a power cut. Keys are kept that
// are not named. Errors: ErrBusy (after at most 100 ms), ErrUnwritable, ErrCorrupt.
func (s *Store) SetMeta(ctx context.Context, values map[string]string) error {
	err := s.write(ctx, s.quick, func(tx *sql.Tx) error { return saveMeta(tx, values) })
	if err != nil {
		return fmt.Errorf("save meta in %s: %w", s.path, err)
	}
	return nil
}

// PruneRows bounds what one Prune deletes, so that nobody waits for long.
const PruneRows = 2000

// Prune deletes exported events told before a time, the oldest first and at most
// PruneRows of them, and says how many.
func (s *Store) Prune(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := s.write(ctx, s.quick, func(tx *sql.Tx) error {
		r, err := tx.Exec(`DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE time < ? AND seq <=
			coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'export_seq'), 0) ORDER BY seq LIMIT ?)`,
			formatTime(before), PruneRows)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("prune events of %s: %w", s.path, err)
	}
	return n, nil
}
