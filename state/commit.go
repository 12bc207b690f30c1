package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

// SourcedEvent is an event and the program that tells it.
type SourcedEvent struct {
	rules.Event
	Source string // resctrl-applier, resctrl-retry
}

// Batch is what one Commit changes, applied in the order of its fields: a uid
// that is in Deleted and in Pods was removed and came back.
type Batch struct {
	Deleted           []string          // pod uids, with all their rows
	DroppedContainers []string          // container ids; only NoPod ones are deleted
	Orphans           []rules.Container // NoPod containers, inserted or updated
	Pods              []*rules.PodState // saved whole: what else is stored of these pods goes
	Events            []SourcedEvent    // get their seq and line in this order
	Meta              map[string]string
}

// Intend saves the row of a pod whose group is about to be made, alone, so
// that a kill between mkdir and Commit leaves no group without a row. It does
// not fsync: a reboot empties resctrl anyway. Errors: ErrBusy (after at most
// half a second), ErrUnwritable, ErrCorrupt.
func (s *Store) Intend(ctx context.Context, p rules.Pod) error {
	var err error
	for range intendTries {
		err = s.write(ctx, s.quick, func(tx *sql.Tx) error { return savePod(tx, &p) })
		if !errors.Is(err, ErrBusy) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("save intended group of pod %q in %s: %w", p.UID, s.path, err)
	}
	return nil
}

// Commit makes b durable in one transaction: state and the events that tell
// of it, or nothing. Errors: ErrBusy (after Options.Busy), ErrUnwritable,
// ErrCorrupt.
func (s *Store) Commit(ctx context.Context, b Batch) error {
	err := s.write(ctx, s.durable, func(tx *sql.Tx) error {
		if err := b.remove(tx); err != nil {
			return err
		}
		for i := range b.Orphans {
			if err := saveContainer(tx, &b.Orphans[i]); err != nil {
				return err
			}
		}
		for _, p := range b.Pods {
			if err := savePodState(tx, p); err != nil {
				return err
			}
		}
		if err := s.addEvents(tx, b.Events); err != nil {
			return err
		}
		return saveMeta(tx, b.Meta)
	})
	if err != nil {
		return fmt.Errorf("commit to %s: %w", s.path, err)
	}
	return nil
}

func (b *Batch) remove(tx *sql.Tx) error {
	for _, uid := range b.Deleted {
		if _, err := tx.Exec("DELETE FROM pods WHERE pod_uid = ?", uid); err != nil { // the rest cascades
			return fmt.Errorf("delete pod %q: %w", uid, err)
		}
	}
	for _, id := range b.DroppedContainers {
		if _, err := tx.Exec("DELETE FROM containers WHERE container_id = ? AND pod_uid IS NULL", id); err != nil {
			return fmt.Errorf("delete container %q: %w", id, err)
		}
	}
	return nil
}

func savePodState(tx *sql.Tx, p *rules.PodState) error {
	if err := savePod(tx, &p.Pod); err != nil {
		return err
	}
	for _, q := range []string{"DELETE FROM sandboxes WHERE pod_uid = ?", "DELETE FROM containers WHERE pod_uid = ?"} {
		if _, err := tx.Exec(q, p.Pod.UID); err != nil {
			return fmt.Errorf("save pod %q: %w", p.Pod.UID, err)
		}
	}
	for i := range p.Sandboxes {
		if err := saveSandbox(tx, &p.Sandboxes[i]); err != nil {
			return err
		}
	}
	for i := range p.Containers {
		if err := saveContainer(tx, &p.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

func savePod(tx *sql.Tx, p *rules.Pod) error {
	_, err := tx.Exec(`INSERT INTO pods (pod_uid, namespace, name, group_state, group_path, reason, last_error, removing,
			total_containers, reconciled_containers, failed_since, attempts, missing_since, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (pod_uid) DO UPDATE SET namespace = excluded.namespace, name = excluded.name,
			group_state = excluded.group_state, group_path = excluded.group_path, reason = excluded.reason,
			last_error = excluded.last_error, removing = excluded.removing, total_containers = excluded.total_containers,
			reconciled_containers = excluded.reconciled_containers, failed_since = excluded.failed_since,
			attempts = excluded.attempts, missing_since = excluded.missing_since,
			created_at = excluded.created_at, updated_at = excluded.updated_at`,
		p.UID, p.Namespace, p.Name, string(p.GroupState), p.GroupPath, string(p.Reason), p.LastError, p.Removing,
		p.Total, p.Reconciled, nullTime(p.FailedSince), p.Attempts,
		sql.NullInt64{Int64: int64(p.MissingSince), Valid: p.MissingSince != 0}, formatTime(p.CreatedAt), formatTime(p.UpdatedAt))
	if err != nil {
		return fmt.Errorf("save pod %q: %w", p.UID, err)
	}
	return nil
}

func saveSandbox(tx *sql.Tx, b *rules.Sandbox) error {
	_, err := tx.Exec(`INSERT INTO sandboxes (sandbox_id, pod_uid, state, cgroup_parent, created_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (sandbox_id) DO UPDATE SET pod_uid = excluded.pod_uid, state = excluded.state,
			cgroup_parent = excluded.cgroup_parent, created_at = excluded.created_at`,
		b.ID, b.PodUID, string(b.State), b.CgroupParent, formatTime(b.CreatedAt))
	if err != nil {
		return fmt.Errorf("save sandbox %q of pod %q: %w", b.ID, b.PodUID, err)
	}
	return nil
}

func saveContainer(tx *sql.Tx, c *rules.Container) error {
	_, err := tx.Exec(`INSERT INTO containers (container_id, sandbox_id, pod_uid, name, state, reason, reconciled, cgroup_path,
			tasks, attempts, last_error, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (container_id) DO UPDATE SET sandbox_id = excluded.sandbox_id, pod_uid = excluded.pod_uid,
			name = excluded.name, state = excluded.state, reason = excluded.reason, reconciled = excluded.reconciled,
			cgroup_path = excluded.cgroup_path, tasks = excluded.tasks, attempts = excluded.attempts,
			last_error = excluded.last_error, created_at = excluded.created_at, updated_at = excluded.updated_at`,
		c.ID, c.SandboxID, sql.NullString{String: c.PodUID, Valid: c.PodUID != ""}, c.Name, string(c.State), string(c.Reason),
		c.Counted, c.CgroupPath, c.Tasks, c.Attempts, c.LastError, formatTime(c.CreatedAt), formatTime(c.UpdatedAt))
	if err != nil {
		return fmt.Errorf("save container %q of pod %q: %w", c.ID, c.PodUID, err)
	}
	return nil
}

// saveMeta writes in key order, so that one batch always does the same.
func saveMeta(tx *sql.Tx, meta map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		_, err := tx.Exec("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, meta[key])
		if err != nil {
			return fmt.Errorf("save meta %q: %w", key, err)
		}
	}
	return nil
}

func nullTime(t time.Time) sql.NullString {
	return sql.NullString{String: formatTime(t), Valid: !t.IsZero()}
}
