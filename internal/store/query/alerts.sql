-- name: LockAlertState :exec
-- Locks the rows in one order before they are changed, because two settlers may change the same jobs.
SELECT job_id FROM alert_state WHERE job_id = ANY(@job_ids::bigint[]) ORDER BY job_id, kind FOR UPDATE;

-- name: NoteAlerts :many
-- Counts events, once for each job and kind. The alert is sent if no alert of its kind was sent for a while, and
-- otherwise folded.
WITH e AS (
    SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@kinds::text[]) AS kind, unnest(@counts::bigint[]) AS n,
           unnest(@versions::int[]) AS version, unnest(@run_ids::uuid[]) AS run_id
)
INSERT INTO alert_state AS s (job_id, kind, open, opened_at, failures, told_at, told, telling, since, job_version, run_id)
SELECT e.job_id, e.kind, true, @now, e.n, @now, e.n, true, @now, e.version, NULLIF(e.run_id, '00000000-0000-0000-0000-000000000000')
  FROM e
    ON CONFLICT (job_id, kind) DO UPDATE
   SET telling = s.told_at <= @told_before,
       open = s.open OR s.told_at <= @told_before,
       opened_at = CASE WHEN s.open THEN s.opened_at WHEN s.folded > 0 THEN s.since ELSE excluded.since END,
       failures = CASE WHEN s.open THEN s.failures ELSE s.folded END + excluded.told,
       told_at = CASE WHEN s.told_at <= @told_before THEN excluded.told_at ELSE s.told_at END,
       told = CASE WHEN s.told_at <= @told_before THEN s.folded + excluded.told ELSE s.told END,
       folded = CASE WHEN s.told_at <= @told_before THEN 0 ELSE s.folded + excluded.told END,
       since = CASE WHEN s.folded = 0 THEN excluded.since ELSE s.since END,
       job_version = excluded.job_version, run_id = excluded.run_id
RETURNING s.job_id, s.kind, s.telling, s.told, s.told_at, s.folded, s.since;

-- name: OpenAlerts :many
-- Returns jobs with an alert about a failure and no success since.
SELECT job_id FROM alert_state
 WHERE job_id = ANY(@job_ids::bigint[]) AND kind = 'failed' AND open ORDER BY job_id FOR UPDATE;

-- name: CloseAlerts :many
-- The folded failures are reported with the recovery.
UPDATE alert_state SET open = false, folded = 0 WHERE job_id = ANY(@job_ids::bigint[]) AND kind = 'failed' AND open
RETURNING job_id, failures, opened_at;

-- name: AlertStateForUpdate :one
SELECT told_at, folded, since, job_version, run_id FROM alert_state
 WHERE job_id = @job_id AND kind = @kind FOR UPDATE;

-- name: TellFolded :exec
UPDATE alert_state SET telling = true, open = true, opened_at = CASE WHEN open THEN opened_at ELSE since END,
       failures = CASE WHEN open THEN failures ELSE folded END, told_at = @now, told = folded, folded = 0
 WHERE job_id = @job_id AND kind = @kind;

-- name: KnownChannels :many
-- The locks prevent the deletion of channels until the job that uses them is visible.
SELECT name FROM alert_channels WHERE name = ANY(@names::text[]) ORDER BY name FOR KEY SHARE;
