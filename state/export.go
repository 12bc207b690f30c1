package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
)

// Unexported gives the lines of the events after a seq, in order, without
// newlines; at most limit of them.
func (s *Store) Unexported(ctx context.Context, after int64, limit int) ([]string, error) {
	return s.texts(ctx, "SELECT line FROM events WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
}

// Line gives the line of one event; false when there is none (any more).
func (s *Store) Line(ctx context.Context, seq int64) (string, bool, error) {
	lines, err := s.texts(ctx, "SELECT line FROM events WHERE seq = ?", seq)
	if err != nil || len(lines) == 0 {
		return "", false, err
	}
	return lines[0], true, nil
}

// LastSeq gives the highest seq that was given out; 0 for none.
func (s *Store) LastSeq(ctx context.Context) (seq int64, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error { return tx.QueryRow(lastSeq).Scan(&seq) })
	if err != nil {
		return 0, fmt.Errorf("read last event of %s: %w", s.path, err)
	}
	return seq, nil
}

// Position gives how far the events were exported: the seq of the last line,
// and the file (device, inode) and offset at which it ends. A seq of 0:
// nothing was exported.
func (s *Store) Position(ctx context.Context) (seq int64, dev, inode uint64, offset int64, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		for key, to := range map[string]any{"export_seq": &seq, "export_dev": &dev, "export_inode": &inode, "export_offset": &offset} {
			var value string
			err := tx.QueryRow("SELECT value FROM meta WHERE key = ?", key).Scan(&value)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			switch to := to.(type) {
			case *int64:
				*to, err = strconv.ParseInt(value, 10, 64)
			case *uint64:
				*to, err = strconv.ParseUint(value, 10, 64)
			}
			if err != nil {
				return fmt.Errorf("%w: meta %s: %w", ErrCorrupt, key, err)
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read export position from %s: %w", s.path, err)
	}
	return seq, dev, inode, offset, err
}

// SetPosition records how far the events were exported. It does not fsync:
// a kill loses nothing, and after a power cut an older position only makes
// the export read again, and find, the lines that it wrote since then. The
// WAL keeps the order of commits, so rows that rely on a position (those that
// Prune deleted) never outlive it.
func (s *Store) SetPosition(ctx context.Context, seq int64, dev, inode uint64, offset int64) error {
	return s.SetMeta(ctx, map[string]string{
		"export_seq": strconv.FormatInt(seq, 10), "export_dev": strconv.FormatUint(dev, 10),
		"export_inode": strconv.FormatUint(inode, 10), "export_offset": strconv.FormatInt(offset, 10),
	})
}
