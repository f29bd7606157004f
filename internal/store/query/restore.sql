-- name: NewestPresence :one
-- Returns when a scheduler was last at work, or the epoch.
SELECT COALESCE(max(seen_at), 'epoch')::timestamptz AS seen_at, clock_timestamp()::timestamptz AS now FROM scheduler_presence;

-- name: LockJobsAfter :many
SELECT job_id, version, next_fire_time, next_due_at, decided_through, clock_timestamp()::timestamptz AS now
  FROM job_due WHERE job_id > @after ORDER BY job_id LIMIT @batch FOR UPDATE;

-- name: PlannedBefore :many
-- Returns the planned runs of fire times that no Fire has decided about.
SELECT id, job_id, fire_time FROM runs_live
 WHERE job_id = ANY(@job_ids::bigint[])
   AND NOT held AND due_at <= @due_by
   AND state = 'pending' AND NOT admitted AND attempt = 1 AND cause IN ('schedule', 'misfire')
 ORDER BY id FOR UPDATE;

-- name: SuspectStarted :execrows
-- An attempt that was bound and not known to be accepted may have run since. If it is recorded as running, a dispatcher asks its
-- instance, and never offers the attempt again.
UPDATE runs_live SET state = 'running', started_at = GREATEST(bound_at, LEAST(due_at, @at::timestamptz))
 WHERE id = ANY(ARRAY(SELECT r.id FROM runs_live r WHERE r.state = 'queued' AND r.instance IS NOT NULL ORDER BY r.id FOR UPDATE));

-- name: UnfinishedRuns :many
-- Returns the numbers of unfinished runs that were due by an instant, by group and state.
SELECT group_name, state, held, count(*) AS runs FROM runs_live WHERE due_at <= @due_by GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: UnpausedGroups :many
SELECT g.name FROM groups g
 WHERE NOT EXISTS (SELECT 1 FROM group_pauses p WHERE p.group_name = g.name AND (p.to_at IS NULL OR p.to_at > statement_timestamp()))
 ORDER BY g.name;
