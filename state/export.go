package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// unexportedBytes bounds what one call of Unexported gives: a line is as long
// as the names in it.
const unexportedBytes = 1 << 20

// Unexported gives the lines of the events after a seq, in order, without
// newlines: at most limit of them, and no more after the first MiB. A line
// that is not what was committed is ErrCorrupt, for it would break the log.
func (s *Store) Unexported(ctx context.Context, after int64, limit int) ([]string, error) {
	var lines []string
	err := s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT seq, line FROM events WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for size := 0; size < unexportedBytes && rows.Next(); {
			var seq int64
			var line string
			if err := rows.Scan(&seq, &line); err != nil {
				return err
			}
			if !strings.HasPrefix(line, fmt.Sprintf(`{"log":%q,"seq":%d,`, s.logID, seq)) || !json.Valid([]byte(line)) || strings.Contains(line, "\n") {
				return fmt.Errorf("%w: the line of event %d is not what was committed", ErrCorrupt, seq)
			}
			lines = append(lines, line)
			size += len(line)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read events from %s: %w", s.path, err)
	}
	return lines, nil
}

// Renumber gives the events after a seq new ones, above another and above all
// that were given out, in order. It is for a database that lost commits (its
// WAL was damaged, or an old copy put back) while the event log kept their
// lines: a seq must never mean two events. It says how many were renumbered.
func (s *Store) Renumber(ctx context.Context, after, above int64) (renumbered int, err error) {
	err = s.write(ctx, s.durable, func(tx *sql.Tx) error {
		next := above
		var last int64
		if err := tx.QueryRow(lastSeq).Scan(&last); err != nil {
			return err
		}
		next = max(next, last)
		lines, err := unexportedLines(tx, after)
		if err != nil {
			return err
		}
		for _, l := range lines {
			old := l.Seq
			next++
			l.Seq, l.Log = next, s.logID
			line, err := l.render()
			if err != nil {
				return err
			}
			// Not an UPDATE of seq: AUTOINCREMENT would not learn of it.
			_, err = tx.Exec(`INSERT INTO events (seq, time, type, pod_uid, group_state, group_path, reason, total_containers, reconciled_containers, source, line)
				SELECT ?, time, type, pod_uid, group_state, group_path, reason, total_containers, reconciled_containers, source, ? FROM events WHERE seq = ?`,
				next, string(line), old)
			if err != nil {
				return err
			}
		}
		renumbered = len(lines)
		if _, err := tx.Exec("DELETE FROM events WHERE seq > ? AND seq <= ?", after, last); err != nil {
			return err
		}
		return raiseSeq(tx, next)
	})
	if err != nil {
		return 0, fmt.Errorf("renumber events of %s: %w", s.path, err)
	}
	return renumbered, nil
}

func unexportedLines(tx *sql.Tx, after int64) ([]eventLine, error) {
	rows, err := tx.Query("SELECT seq, line FROM events WHERE seq > ? ORDER BY seq", after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []eventLine
	for rows.Next() {
		var l eventLine
		var seq int64
		var text []byte
		if err := rows.Scan(&seq, &text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%w: line of event %d: %w", ErrCorrupt, seq, err)
		}
		l.Seq = seq
		out = append(out, l)
	}
	return out, rows.Err()
}

// raiseSeq lets no event have a seq at or below one.
func raiseSeq(tx *sql.Tx, seq int64) error {
	r, err := tx.Exec("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'events'", seq)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	_, err = tx.Exec("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", seq)
	return err
}

// Line gives the line of one event; false when there is none (any more).
func (s *Store) Line(ctx context.Context, seq int64) (string, bool, error) {
	lines, err := s.texts(ctx, "SELECT line FROM events WHERE seq = ?", seq)
	if err != nil || len(lines) == 0 {
		return "", false, err
	}
	return lines[0], true, nil
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
