-- Times are RFC 3339 in UTC with nine digits, so that text order is time order.
CREATE TABLE pods (
  pod_uid               TEXT NOT NULL PRIMARY KEY,
  namespace             TEXT NOT NULL,
  name                  TEXT NOT NULL,
  group_state           TEXT NOT NULL CHECK (group_state IN ('Exists', 'Failed')),
  group_path            TEXT NOT NULL,            -- of a Failed pod: where it is to be made
  reason                TEXT NOT NULL DEFAULT '', -- of a Failed pod
  removing              INTEGER NOT NULL DEFAULT 0 CHECK (removing IN (0, 1)), -- ended; its group is still to be removed
  total_containers      INTEGER NOT NULL DEFAULT 0 CHECK (total_containers >= 0),
  reconciled_containers INTEGER NOT NULL DEFAULT 0 CHECK (reconciled_containers BETWEEN 0 AND total_containers),
  failed_since          TEXT,
  attempts              INTEGER NOT NULL DEFAULT 0, -- group creations tried since failed_since
  missing_since         INTEGER,                    -- boot-time clock, nanoseconds
  created_at            TEXT NOT NULL,
  updated_at            TEXT NOT NULL
);
CREATE INDEX pods_failed ON pods (failed_since) WHERE group_state = 'Failed';

CREATE TABLE sandboxes (
  sandbox_id    TEXT NOT NULL PRIMARY KEY,
  pod_uid       TEXT NOT NULL REFERENCES pods ON DELETE CASCADE,
  state         TEXT NOT NULL CHECK (state IN ('Ready', 'Stopped')), -- as events said
  cgroup_parent TEXT NOT NULL DEFAULT '',
  created_at    TEXT NOT NULL
);
CREATE INDEX sandboxes_pod ON sandboxes (pod_uid);

CREATE TABLE containers (
  container_id TEXT NOT NULL PRIMARY KEY,
  sandbox_id   TEXT NOT NULL,
  pod_uid      TEXT REFERENCES pods ON DELETE CASCADE, -- NULL while NoPod
  name         TEXT NOT NULL,
  state        TEXT NOT NULL CHECK (state IN ('NoPod', 'Created', 'Partial', 'Reconciled', 'Exited')),
  reason       TEXT NOT NULL DEFAULT '',
  reconciled   INTEGER NOT NULL DEFAULT 0 CHECK (reconciled IN (0, 1)), -- counts in reconciled_containers
  cgroup_path  TEXT NOT NULL DEFAULT '', -- below the cgroup root
  tasks        INTEGER NOT NULL DEFAULT 0, -- seen by the last assignment
  attempts     INTEGER NOT NULL DEFAULT 0, -- assignments without success
  last_error   TEXT NOT NULL DEFAULT '',
  created_at   TEXT NOT NULL,
  updated_at   TEXT NOT NULL,
  CHECK ((state = 'NoPod') = (pod_uid IS NULL))
);
CREATE INDEX containers_pod ON containers (pod_uid);
CREATE INDEX containers_orphan ON containers (sandbox_id) WHERE pod_uid IS NULL;
CREATE INDEX containers_partial ON containers (created_at) WHERE state = 'Partial';

-- What was told to consumers: line is the exact line of events.jsonl.
-- AUTOINCREMENT, so that a seq is never used twice, not even when all rows were pruned.
CREATE TABLE events (
  seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
  time                  TEXT NOT NULL,
  type                  TEXT NOT NULL CHECK (type IN ('AddOrUpdate', 'Removed')),
  pod_uid               TEXT NOT NULL,
  group_state           TEXT NOT NULL DEFAULT '' CHECK (group_state IN ('', 'Exists', 'Failed')), -- '' in Removed
  group_path            TEXT NOT NULL DEFAULT '', -- of Exists
  reason                TEXT NOT NULL DEFAULT '', -- of Failed
  total_containers      INTEGER NOT NULL DEFAULT 0,
  reconciled_containers INTEGER NOT NULL DEFAULT 0,
  source                TEXT NOT NULL,
  line                  TEXT NOT NULL
);
CREATE INDEX events_pod ON events (pod_uid);
CREATE INDEX events_time ON events (time);

CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
);

-- A pod that is being removed is no pod: no view shows it.
CREATE VIEW unreconciled AS
  SELECT c.container_id, c.name, c.state, c.reason, c.last_error, c.attempts, c.tasks, c.cgroup_path, c.sandbox_id,
         c.pod_uid, p.namespace AS pod_namespace, p.name AS pod_name, p.group_state, c.created_at, c.updated_at
  FROM containers c LEFT JOIN pods p USING (pod_uid)
  WHERE c.state NOT IN ('Reconciled', 'Exited') AND coalesce(p.removing, 0) = 0
  ORDER BY c.created_at, c.container_id;

CREATE VIEW failed_pods AS
  SELECT pod_uid, namespace, name, reason, failed_since, attempts, total_containers, group_path, updated_at
  FROM pods WHERE group_state = 'Failed' AND removing = 0
  ORDER BY coalesce(failed_since, created_at), pod_uid;

CREATE VIEW node_summary AS
  WITH p AS (SELECT * FROM pods WHERE removing = 0),
       c AS (SELECT c.state FROM containers c LEFT JOIN pods q USING (pod_uid) WHERE coalesce(q.removing, 0) = 0)
  SELECT (SELECT count(*) FROM p)                                AS pods,
         (SELECT count(*) FROM p WHERE group_state = 'Exists')   AS pods_exists,
         (SELECT count(*) FROM p WHERE group_state = 'Failed')   AS pods_failed,
         (SELECT min(failed_since) FROM p WHERE group_state = 'Failed') AS oldest_failure,
         (SELECT count(*) FROM c)                                AS containers,
         (SELECT count(*) FROM c WHERE state = 'Reconciled')     AS containers_reconciled,
         (SELECT count(*) FROM c WHERE state = 'Partial')        AS containers_partial,
         (SELECT count(*) FROM c WHERE state = 'Created')        AS containers_created,
         (SELECT count(*) FROM c WHERE state = 'Exited')         AS containers_exited,
         (SELECT count(*) FROM c WHERE state = 'NoPod')          AS containers_nopod,
         (SELECT max(seq) FROM events)                           AS last_event,
         (SELECT max(time) FROM events)                          AS last_event_time,
         (SELECT count(*) FROM events WHERE seq > coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'export_seq'), 0)) AS events_unexported;
