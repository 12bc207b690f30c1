package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// Why a database cannot be read, for errors.Is.
var (
	// ErrNotCreated: the applier has not made the database yet.
	ErrNotCreated = errors.New("the state database does not exist yet")
	// ErrNotAllowed: this user may not read it.
	ErrNotAllowed = errors.New("no permission to read the state database")
	// ErrNoApplier: SQLite needs the files that the applier keeps beside the
	// database, and only root may make them.
	ErrNoApplier = errors.New("the applier does not run, so only root can read the state database")
)

// readBusy is how long a reader waits for a lock. In WAL mode readers wait
// only while somebody recovers or closes the database, which takes moments.
const readBusy = 2 * time.Second

// Reader reads the database and never writes. root always can; others only as
// members of the file's group, and only while the applier has it open. It may
// be used by many goroutines.
type Reader struct {
	db   *sql.DB
	path string
	file os.FileInfo // what was opened, to see that it was replaced
}

// OpenReader opens the database at path for reading. Errors: ErrNotCreated,
// ErrNotAllowed, ErrNoApplier, ErrCorrupt, *NewerError, each with what to do.
func OpenReader(path string) (*Reader, error) {
	info, err := os.Stat(path)
	if err == nil {
		// SQLite says no more than "unable to open" of every failure.
		var f *os.File
		if f, err = os.Open(path); err == nil {
			f.Close()
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, notCreated(path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w %s: %s", ErrNotAllowed, path, whoMay(path))
	case err != nil:
		return nil, fmt.Errorf("read the state database: %w", err)
	}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "mode=ro&_query_only=1&_busy_timeout=" +
		strconv.FormatInt(readBusy.Milliseconds(), 10)}
	db, err := sql.Open("sqlite3", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// One connection: PRAGMA data_version is a connection's own.
	db.SetMaxOpenConns(1)
	r := &Reader{db: db, path: path, file: info}
	if err := r.check(context.Background()); err != nil {
		db.Close()
		return nil, err
	}
	return r, nil
}

func notCreated(path string) error {
	return fmt.Errorf("%w (%s): start the applier (systemctl start resctrl-applier); "+
		"if it runs, look at state.path in the configuration", ErrNotCreated, path)
}

// check reads the schema's version, which is the first real read.
func (r *Reader) check(ctx context.Context) error {
	known, err := knownMigrations()
	if err != nil {
		return err
	}
	version, err := schemaVersion(ctx, r.db, r.path, len(known))
	var se sqlite3.Error
	if errors.As(err, &se) && (se.Code == sqlite3.ErrCantOpen || se.Code == sqlite3.ErrReadonly || se.Code == sqlite3.ErrPerm) && os.Geteuid() != 0 {
		return fmt.Errorf("%w (%s): start it (systemctl start resctrl-applier), or read as root", ErrNoApplier, r.path)
	}
	switch {
	case err != nil:
		return classify(err)
	case version == 0:
		return notCreated(r.path) // the applier is about to fill it
	case version < len(known):
		return fmt.Errorf("%s has schema version %d, this program reads version %d: restart the applier, which upgrades it (systemctl restart resctrl-applier)",
			r.path, version, len(known))
	}
	return nil
}

// whoMay says what a person must do to read the database.
func whoMay(path string) string {
	const root = "read as root, or name a group of yours as state.group in the configuration and restart the applier"
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err != nil {
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Gid == 0 {
			return root
		}
		name := strconv.FormatUint(uint64(st.Gid), 10)
		if g, err := user.LookupGroupId(name); err == nil {
			name = g.Name
		}
		return fmt.Sprintf("read as root, or join the group %s (usermod -aG %s USER, then log in again)", name, name)
	}
	return root
}

// Close closes the database.
func (r *Reader) Close() error { return r.db.Close() }

// Replaced says whether path is another file now than the one that was opened:
// the applier moves a damaged database aside and makes a new one.
func (r *Reader) Replaced() bool {
	now, err := os.Stat(r.path)
	return err != nil || !os.SameFile(now, r.file)
}

// Version changes whenever another connection committed something (PRAGMA
// data_version); two equal ones mean that nothing changed between them.
func (r *Reader) Version(ctx context.Context) (int64, error) {
	var v int64
	err := r.db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v)
	return v, classify(err)
}

// PodRow is a row of pods. Times are RFC 3339, UTC; nil is NULL.
type PodRow struct {
	PodUID               string  `json:"pod_uid"`
	Namespace            string  `json:"namespace"`
	Name                 string  `json:"name"`
	GroupState           string  `json:"group_state"`
	GroupPath            string  `json:"group_path"` // of a Failed pod: where it is to be made
	Reason               string  `json:"reason"`     // of a Failed pod
	LastError            string  `json:"last_error"` // of a Failed pod: what failed, and the kernel's own words
	Removing             bool    `json:"removing"`   // ended; its group is still to be removed
	TotalContainers      int     `json:"total_containers"`
	ReconciledContainers int     `json:"reconciled_containers"`
	FailedSince          *string `json:"failed_since"`
	Attempts             int     `json:"attempts"`
	MissingSince         *int64  `json:"missing_since"` // boot-time clock, nanoseconds
	CreatedAt            string  `json:"created_at"`
	UpdatedAt            string  `json:"updated_at"`
}

// Pods are all pods, also those that are being removed, by namespace and name.
func (r *Reader) Pods(ctx context.Context) ([]PodRow, error) {
	return query(ctx, r.db, func(p *PodRow) []any {
		return []any{&p.PodUID, &p.Namespace, &p.Name, &p.GroupState, &p.GroupPath, &p.Reason, &p.LastError, &p.Removing,
			&p.TotalContainers, &p.ReconciledContainers, &p.FailedSince, &p.Attempts, &p.MissingSince,
			&p.CreatedAt, &p.UpdatedAt}
	}, `SELECT pod_uid, namespace, name, group_state, group_path, reason, last_error, removing, total_containers,
			reconciled_containers, failed_since, attempts, missing_since, created_at, updated_at
		FROM pods ORDER BY namespace, name, created_at, pod_uid`)
}

// ContainerRow is a row of containers, with the names of its pod.
type ContainerRow struct {
	ContainerID string  `json:"container_id"`
	SandboxID   string  `json:"sandbox_id"`
	PodUID      *string `json:"pod_uid"` // nil while NoPod
	Name        string  `json:"name"`
	State       string  `json:"state"`
	Reason      string  `json:"reason"`
	CgroupPath  string  `json:"cgroup_path"` // below the cgroup root
	Tasks       int     `json:"tasks"`       // seen by the last assignment
	Attempts    int     `json:"attempts"`    // assignments without success
	LastError   string  `json:"last_error"`
	CreatedAt   string  `json:"created_at"`
	UpdatedAt   string  `json:"updated_at"`

	PodNamespace string `json:"pod_namespace"`
	PodName      string `json:"pod_name"`
	PodRemoving  bool   `json:"-"`
}

// Containers are the containers of the pod, or with an empty uid of all pods
// and none, by pod and age.
func (r *Reader) Containers(ctx context.Context, uid string) ([]ContainerRow, error) {
	return query(ctx, r.db, func(c *ContainerRow) []any {
		return []any{&c.ContainerID, &c.SandboxID, &c.PodUID, &c.Name, &c.State, &c.Reason, &c.CgroupPath,
			&c.Tasks, &c.Attempts, &c.LastError, &c.CreatedAt, &c.UpdatedAt, &c.PodNamespace, &c.PodName, &c.PodRemoving}
	}, `SELECT c.container_id, c.sandbox_id, c.pod_uid, c.name, c.state, c.reason, c.cgroup_path, c.tasks,
			c.attempts, c.last_error, c.created_at, c.updated_at, coalesce(p.namespace, ''), coalesce(p.name, ''),
			coalesce(p.removing, 0)
		FROM containers c LEFT JOIN pods p USING (pod_uid)
		WHERE ?1 = '' OR c.pod_uid = ?1
		ORDER BY p.namespace, p.name, c.pod_uid, c.created_at, c.container_id`, uid)
}

// SandboxRow is a row of sandboxes.
type SandboxRow struct {
	SandboxID    string `json:"sandbox_id"`
	PodUID       string `json:"pod_uid"`
	State        string `json:"state"` // Ready, Stopped, as events said
	CgroupParent string `json:"cgroup_parent"`
	CreatedAt    string `json:"created_at"`
}

// Sandboxes are all pod sandboxes, by age.
func (r *Reader) Sandboxes(ctx context.Context) ([]SandboxRow, error) {
	return query(ctx, r.db, func(s *SandboxRow) []any {
		return []any{&s.SandboxID, &s.PodUID, &s.State, &s.CgroupParent, &s.CreatedAt}
	}, `SELECT sandbox_id, pod_uid, state, cgroup_parent, created_at FROM sandboxes ORDER BY created_at, sandbox_id`)
}

// EventRow is a row of events.
type EventRow struct {
	Seq                  int64  `json:"seq"`
	Time                 string `json:"time"`
	Type                 string `json:"type"`
	PodUID               string `json:"pod_uid"`
	GroupState           string `json:"group_state"` // "" in Removed
	GroupPath            string `json:"group_path"`
	Reason               string `json:"reason"`
	TotalContainers      int    `json:"total_containers"`
	ReconciledContainers int    `json:"reconciled_containers"`
	Source               string `json:"source"`
	Line                 string `json:"line"` // as it stands in events.jsonl
}

// EventFilter chooses events.
type EventFilter struct {
	After  int64  // only with a higher seq
	Before int64  // only with a lower seq; 0: no bound
	PodUID string // only of this pod; "" is all
	Limit  int    // at most so many, the first ones; 0: no bound
}

// Events are the events that the filter chooses, in order. A caller that
// prints them asks for pages: a read that a pager holds open keeps the WAL
// from being shortened.
func (r *Reader) Events(ctx context.Context, f EventFilter) ([]EventRow, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = -1
	}
	return query(ctx, r.db, func(e *EventRow) []any {
		return []any{&e.Seq, &e.Time, &e.Type, &e.PodUID, &e.GroupState, &e.GroupPath, &e.Reason,
			&e.TotalContainers, &e.ReconciledContainers, &e.Source, &e.Line}
	}, `SELECT seq, time, type, pod_uid, group_state, group_path, reason, total_containers, reconciled_containers, source, line
		FROM events WHERE seq > ?1 AND (?2 = 0 OR seq < ?2) AND (?3 = '' OR pod_uid = ?3)
		ORDER BY seq LIMIT ?4`, f.After, f.Before, f.PodUID, limit)
}

// BeforeLast is the seq after which the last n events of the pod come ("" is
// all pods); 0 where there are no more than n.
func (r *Reader) BeforeLast(ctx context.Context, uid string, n int) (int64, error) {
	var seq int64
	err := r.db.QueryRowContext(ctx, `SELECT seq FROM events WHERE ?1 = '' OR pod_uid = ?1
		ORDER BY seq DESC LIMIT 1 OFFSET ?2`, uid, n).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return seq, classify(err)
}

// LogID is the random id of this database's log of events ("log" of an event).
func (r *Reader) LogID(ctx context.Context) (string, error) {
	var id string
	err := r.db.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = 'log'`).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, classify(err)
}

// Summary is the whole state at one moment, counted. Rows of pods that are
// being removed are in PodsRemoving alone.
type Summary struct {
	PodsExists, PodsRemoving int
	PodsFailed               map[string]int // by reason
	OldestFailure            string         // time; "" where no pod is Failed
	OldestError              string         // why that one failed, with the kernel's own words
	Containers               map[string]int // by state
	Unreconciled             map[string]int // Partial ones by reason
	LastEvent                int64          // seq of the last event ever; 0: none yet
	LastEventTime            string         // "" where the table is empty
	Meta                     map[string]string
}

// Summary counts everything in one transaction.
func (r *Reader) Summary(ctx context.Context) (*Summary, error) {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, classify(err)
	}
	defer tx.Rollback()
	s := &Summary{PodsFailed: map[string]int{}, Containers: map[string]int{}, Unreconciled: map[string]int{}, Meta: map[string]string{}}
	err = tx.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE group_state = 'Exists' AND removing = 0),
			count(*) FILTER (WHERE removing = 1),
			coalesce(min(failed_since) FILTER (WHERE group_state = 'Failed' AND removing = 0), '') FROM pods`).
		Scan(&s.PodsExists, &s.PodsRemoving, &s.OldestFailure)
	if err != nil {
		return nil, classify(err)
	}
	err = tx.QueryRowContext(ctx, `SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),
			coalesce((SELECT time FROM events ORDER BY seq DESC LIMIT 1), ''),
			coalesce((SELECT last_error FROM failed_pods LIMIT 1), '')`).Scan(&s.LastEvent, &s.LastEventTime, &s.OldestError)
	if err != nil {
		return nil, classify(err)
	}
	const ofPods = ` FROM containers c LEFT JOIN pods p USING (pod_uid) WHERE coalesce(p.removing, 0) = 0 `
	for into, q := range map[*map[string]int]string{
		&s.PodsFailed:   `SELECT reason, count(*) FROM pods WHERE group_state = 'Failed' AND removing = 0 GROUP BY reason`,
		&s.Containers:   `SELECT c.state, count(*)` + ofPods + `GROUP BY c.state`,
		&s.Unreconciled: `SELECT c.reason, count(*)` + ofPods + `AND c.state = 'Partial' GROUP BY c.reason`,
	} {
		rows, err := query(ctx, tx, func(p *pair[int]) []any { return []any{&p.key, &p.value} }, q)
		if err != nil {
			return nil, err
		}
		for _, p := range rows {
			(*into)[p.key] = p.value
		}
	}
	rows, err := query(ctx, tx, func(p *pair[string]) []any { return []any{&p.key, &p.value} }, `SELECT key, value FROM meta`)
	for _, p := range rows {
		s.Meta[p.key] = p.value
	}
	return s, err
}

type pair[V any] struct {
	key   string
	value V
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query reads all rows; fields are where the columns of one go.
func query[T any](ctx context.Context, db queryer, fields func(*T) []any, q string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, classify(err)
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return nil, fmt.Errorf("read a row of the state: %w", err)
		}
		all = append(all, row)
	}
	return all, classify(rows.Err())
}
