-- Why a pod has no group, in the words of the call that failed and the kernel's own.
ALTER TABLE pods ADD COLUMN last_error TEXT NOT NULL DEFAULT '';

DROP VIEW failed_pods;
CREATE VIEW failed_pods AS
  SELECT pod_uid, namespace, name, reason, last_error, failed_since, attempts, total_containers, group_path, updated_at
  FROM pods WHERE group_state = 'Failed' AND removing = 0
  ORDER BY coalesce(failed_since, created_at), pod_uid;
