package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/rules"
)

const (
	podColumns = `pod_uid, namespace, name, group_state, group_path, reason, last_error, removing, total_containers,
		reconciled_containers, failed_since, attempts, missing_since, created_at, updated_at`
	containerColumns = `container_id, sandbox_id, pod_uid, name, state, reason, reconciled, cgroup_path,
		tasks, attempts, last_error, created_at, updated_at`
)

// PartialRef names a Partial container.
type PartialRef struct {
	ContainerID string
	PodUID      string
}

// Pod gives what is known of a pod, also of one that is Removing; nil, nil
// when its uid is unknown.
func (s *Store) Pod(ctx context.Context, uid string) (*rules.PodState, error) {
	var p *rules.PodState
	err := s.read(ctx, func(tx *sql.Tx) error {
		pod, err := scanPod(tx.QueryRow("SELECT "+podColumns+" FROM pods WHERE pod_uid = ?", uid))
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		p = &rules.PodState{Pod: pod}
		if p.Sandboxes, err = sandboxesOf(tx, uid); err != nil {
			return err
		}
		p.Containers, err = containersWhere(tx, "pod_uid = ? ORDER BY created_at, container_id", uid)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read pod %q from %s: %w", uid, s.path, err)
	}
	return p, nil
}

// PodOfSandbox gives the uid of a sandbox's pod; "" when the sandbox is unknown.
func (s *Store) PodOfSandbox(ctx context.Context, sandboxID string) (uid string, err error) {
	uids, err := s.texts(ctx, "SELECT pod_uid FROM sandboxes WHERE sandbox_id = ?", sandboxID)
	if err != nil || len(uids) == 0 {
		return "", err
	}
	return uids[0], nil
}

// Container gives a container, also a NoPod one; nil, nil when it is unknown.
func (s *Store) Container(ctx context.Context, id string) (*rules.Container, error) {
	var found []rules.Container
	err := s.read(ctx, func(tx *sql.Tx) (err error) {
		found, err = containersWhere(tx, "container_id = ?", id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read container %q from %s: %w", id, s.path, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// Orphans gives the NoPod containers that wait for a sandbox; "" is all of
// them. Oldest first.
func (s *Store) Orphans(ctx context.Context, sandboxID string) ([]rules.Container, error) {
	var found []rules.Container
	err := s.read(ctx, func(tx *sql.Tx) (err error) {
		if sandboxID == "" {
			found, err = containersWhere(tx, "pod_uid IS NULL ORDER BY created_at, container_id")
		} else {
			found, err = containersWhere(tx, "pod_uid IS NULL AND sandbox_id = ? ORDER BY created_at, container_id", sandboxID)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read containers without a pod from %s: %w", s.path, err)
	}
	return found, nil
}

// PodUIDs gives the uids of all rows, also of pods that are Removing, sorted.
func (s *Store) PodUIDs(ctx context.Context) ([]string, error) {
	return s.texts(ctx, "SELECT pod_uid FROM pods ORDER BY pod_uid")
}

// FailedPods gives the uids of pods without a group, oldest failure first,
// without those that are Removing.
func (s *Store) FailedPods(ctx context.Context) ([]string, error) {
	return s.texts(ctx, `SELECT pod_uid FROM pods WHERE group_state = 'Failed' AND removing = 0
		ORDER BY coalesce(failed_since, created_at), pod_uid`)
}

// PartialContainers gives the Partial containers, oldest first, without those
// of pods that are Removing.
func (s *Store) PartialContainers(ctx context.Context) ([]PartialRef, error) {
	var refs []PartialRef
	err := s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT c.container_id, c.pod_uid FROM containers c JOIN pods p USING (pod_uid)
			WHERE c.state = 'Partial' AND p.removing = 0 ORDER BY c.created_at, c.container_id`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r PartialRef
			if err := rows.Scan(&r.ContainerID, &r.PodUID); err != nil {
				return err
			}
			refs = append(refs, r)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read partial containers from %s: %w", s.path, err)
	}
	return refs, nil
}

// texts runs a query of one text column.
func (s *Store) texts(ctx context.Context, query string, args ...any) ([]string, error) {
	var out []string
	err := s.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var t string
			if err := rows.Scan(&t); err != nil {
				return err
			}
			out = append(out, t)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path, err)
	}
	return out, nil
}

func sandboxesOf(tx *sql.Tx, uid string) ([]rules.Sandbox, error) {
	rows, err := tx.Query(`SELECT sandbox_id, pod_uid, state, cgroup_parent, created_at FROM sandboxes
		WHERE pod_uid = ? ORDER BY created_at, sandbox_id`, uid)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []rules.Sandbox
	for rows.Next() {
		var b rules.Sandbox
		var created string
		if err := rows.Scan(&b.ID, &b.PodUID, &b.State, &b.CgroupParent, &created); err != nil {
			return nil, err
		}
		if b.CreatedAt, err = parseTime(created); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, rows.Err()
}

func containersWhere(tx *sql.Tx, where string, args ...any) ([]rules.Container, error) {
	rows, err := tx.Query("SELECT "+containerColumns+" FROM containers WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []rules.Container
	for rows.Next() {
		var c rules.Container
		var uid sql.NullString
		var created, updated string
		if err := rows.Scan(&c.ID, &c.SandboxID, &uid, &c.Name, &c.State, &c.Reason, &c.Counted, &c.CgroupPath,
			&c.Tasks, &c.Attempts, &c.LastError, &created, &updated); err != nil {
			return nil, err
		}
		c.PodUID = uid.String
		if err := parseTimes(created, &c.CreatedAt, updated, &c.UpdatedAt); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

func scanPod(row interface{ Scan(...any) error }) (rules.Pod, error) {
	var p rules.Pod
	var failed sql.NullString
	var missing sql.NullInt64
	var created, updated string
	err := row.Scan(&p.UID, &p.Namespace, &p.Name, &p.GroupState, &p.GroupPath, &p.Reason, &p.LastError, &p.Removing, &p.Total,
		&p.Reconciled, &failed, &p.Attempts, &missing, &created, &updated)
	if err != nil {
		return p, err
	}
	p.MissingSince = time.Duration(missing.Int64)
	if p.FailedSince, err = parseTime(failed.String); err != nil {
		return p, err
	}
	return p, parseTimes(created, &p.CreatedAt, updated, &p.UpdatedAt)
}

func parseTimes(a string, at *time.Time, b string, bt *time.Time) (err error) {
	if *at, err = parseTime(a); err != nil {
		return err
	}
	*bt, err = parseTime(b)
	return err
}
