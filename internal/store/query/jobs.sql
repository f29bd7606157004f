-- name: InsertJob :one
INSERT INTO jobs (group_name, name, enabled, kind, tags, calendar, spec, version, created_at, updated_at, fires_per_minute, fires_version)
VALUES (@group_name, @name, @enabled, @kind, @tags, sqlc.narg('calendar'), @spec, 1, @now, @now, @fires_per_minute, 1)
RETURNING id;

-- name: InsertVersion :exec
INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
VALUES (@job_id, @version, @spec, @created_at, @valid_from, @changed_by, @change);

-- name: CloseVersion :exec
UPDATE job_versions SET valid_to = @at WHERE job_id = @job_id AND version = @version;

-- name: InsertDue :exec
INSERT INTO job_due (job_id, version, next_fire_time, next_due_at, chained)
VALUES (@job_id, @version, @next_fire_time, @next_due_at, @chained);

-- name: Job :one
SELECT j.id, j.spec, j.version, j.created_at, j.updated_at, d.next_fire_time, d.next_due_at, d.decided_through,
       COALESCE((SELECT max(l.fire_time) FROM runs_live l WHERE l.job_id = j.id AND l.state <> 'pending' AND l.cause IN ('schedule', 'misfire')), 'epoch')::timestamptz AS live_fire,
       COALESCE((SELECT h.fire_time FROM runs_history h WHERE h.job_id = j.id AND h.cause <> 'backfill' ORDER BY h.id DESC LIMIT 1), 'epoch')::timestamptz AS past_fire,
       COALESCE((SELECT min(l.fire_time) FROM runs_live l WHERE l.job_id = j.id AND l.state = 'pending' AND NOT l.held AND l.cause = 'schedule'), 'epoch')::timestamptz AS planned_fire,
       COALESCE(p.from_at, 'epoch')::timestamptz AS paused_at, COALESCE(p.to_at, 'epoch')::timestamptz AS paused_until,
       COALESCE(p.reason, '')::text AS pause_reason, COALESCE(p.paused_by, '')::text AS paused_by,
       COALESCE(jp.from_at, 'epoch')::timestamptz AS job_paused_at, COALESCE(jp.to_at, 'epoch')::timestamptz AS job_paused_until,
       COALESCE(jp.reason, '')::text AS job_pause_reason, COALESCE(jp.paused_by, '')::text AS job_paused_by
  FROM jobs j JOIN job_due d ON d.job_id = j.id
  LEFT JOIN LATERAL (SELECT * FROM group_pauses o WHERE o.group_name = j.group_name AND (o.to_at IS NULL OR o.to_at > now())
                      ORDER BY o.from_at LIMIT 1) p ON true
  LEFT JOIN LATERAL (SELECT * FROM job_pauses o WHERE o.job_id = j.id AND (o.to_at IS NULL OR o.to_at > now())
                      ORDER BY o.from_at LIMIT 1) jp ON true
 WHERE j.id = @id;

-- name: JobRow :one
SELECT id, spec, version, created_at, updated_at FROM jobs WHERE id = @id;

-- name: JobRowForRun :one
-- The lock prevents the deletion of the job until the new run is visible, so that the deleting transaction can end it.
SELECT id, group_name, spec, version, created_at, updated_at FROM jobs WHERE id = @id FOR KEY SHARE;

-- name: JobsForRetry :many
-- Locks like JobRowForRun, for runs that will be retried.
SELECT id FROM jobs WHERE id = ANY(@ids::bigint[]) ORDER BY id FOR KEY SHARE;

-- name: LockJobRow :exec
SELECT id FROM jobs WHERE id = @id FOR UPDATE;

-- name: UpdateJob :exec
UPDATE jobs SET group_name = @group_name, name = @name, enabled = @enabled, kind = @kind, tags = @tags, calendar = sqlc.narg('calendar'),
       spec = @spec, version = @version, updated_at = @now, fires_per_minute = @fires_per_minute, fires_version = @version WHERE id = @id;

-- name: SetDue :exec
UPDATE job_due SET version = @version, next_fire_time = @next_fire_time, next_due_at = @next_due_at,
       decided_through = @decided_through, chained = @chained, parked = NULL WHERE job_id = @job_id;

-- name: LockPlannedOf :exec
-- Locks the runs that DeletePlannedOf would delete. From then on Fire admits none of them.
SELECT id FROM runs_live
 WHERE job_id = ANY(@job_ids::bigint[]) AND state = 'pending' AND attempt = 1 AND NOT held AND NOT admitted
   AND cause = 'schedule' AND due_at > @now
 ORDER BY id FOR UPDATE;

-- name: DecidedDue :one
-- Returns the latest due instant of the jobs' scheduled runs that Fire has admitted, live and past. For a run that is
-- or was retried, it is the fire time, because the due instant of the next attempt is irrelevant to the edit. A run
-- that ended well before it was due does not count, because it was killed while it was only planned. Ids begin with the
-- fire time: only runs from first_id on can be due from now on, so few rows are read.
SELECT GREATEST(
    (SELECT max(CASE WHEN l.attempt = 1 AND l.state <> 'retrying' THEN l.due_at ELSE l.fire_time END) FROM runs_live l
      WHERE l.job_id = ANY(@job_ids::bigint[]) AND l.id >= @first_id AND l.cause IN ('schedule', 'misfire') AND (l.admitted OR l.state <> 'pending')),
    (SELECT max(CASE WHEN h.attempt = 1 THEN h.due_at ELSE h.fire_time END) FROM runs_history h
      WHERE h.job_id = ANY(@job_ids::bigint[]) AND h.id >= @first_id AND h.cause IN ('schedule', 'misfire')
        AND h.finished_at > h.due_at - interval '250 milliseconds'),
    'epoch')::timestamptz AS due_at;

-- name: DeletePlannedOf :exec
-- An edit takes back runs that are planned and not yet due. Runs that Fire has admitted, and runs that are due, stay.
DELETE FROM runs_live WHERE id = ANY(ARRAY(
    SELECT l.id FROM runs_live l
     WHERE l.job_id = ANY(@job_ids::bigint[]) AND l.state = 'pending' AND l.attempt = 1 AND NOT l.held AND NOT l.admitted
       AND l.cause = 'schedule' AND l.due_at > @now
     ORDER BY l.id FOR UPDATE));

-- name: KeptThrough :one
-- Returns the newest fire time of the job that has a run or a ledger entry. A run that was killed before it was due
-- does not count, because earlier fire times may still be ahead. Ledger entries are not in order, because the audit
-- adds old ones.
SELECT COALESCE(GREATEST(
    (SELECT max(l.fire_time) FROM runs_live l WHERE l.job_id = @job_id AND l.cause IN ('schedule', 'misfire')),
    (SELECT h.fire_time FROM runs_history h WHERE h.job_id = @job_id AND h.cause IN ('schedule', 'misfire') AND h.due_at <= @now
      ORDER BY h.id DESC LIMIT 1),
    (SELECT m.last_fire_time FROM missed m WHERE m.job_id = @job_id ORDER BY m.last_fire_time DESC LIMIT 1)), 'epoch')::timestamptz AS through;

-- name: LiveScheduled :one
SELECT EXISTS (SELECT 1 FROM runs_live WHERE job_id = @job_id AND cause IN ('schedule', 'misfire'));

-- name: LastEnd :one
-- Returns when the newest final scheduled run ended.
SELECT COALESCE((SELECT h.finished_at FROM runs_history h WHERE h.job_id = @job_id AND h.cause IN ('schedule', 'misfire')
                  ORDER BY h.id DESC LIMIT 1), 'epoch')::timestamptz AS ended_at;

-- name: DeleteChildren :exec
DELETE FROM job_children WHERE parent_id = @parent_id;

-- name: InsertChildren :exec
INSERT INTO job_children (parent_id, child_id) SELECT @parent_id, unnest(@child_ids::bigint[]) ON CONFLICT DO NOTHING;

-- name: LockChildren :exec
-- Allows one writer of edges at a time, so that two edits cannot close a cycle together.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.job_children', 0));

-- name: PathTo :many
-- Returns a path of child edges from one job to another, if there is one. A new edge back would close a cycle.
SELECT child_path(@from_id::bigint, @to_id::bigint)::bigint[] AS path;

-- name: ParentsOf :many
SELECT c.parent_id, j.name FROM job_children c JOIN jobs j ON j.id = c.parent_id WHERE c.child_id = @child_id AND c.parent_id <> @child_id LIMIT 10;

-- name: JobNames :many
SELECT id, name FROM jobs WHERE id = ANY(@ids::bigint[]);

-- name: DeleteJobRow :exec
DELETE FROM jobs WHERE id = @id;

-- name: EnsureClusterSlot :exec
INSERT INTO block_slots (job_id) VALUES (@job_id) ON CONFLICT DO NOTHING;

-- name: DeleteSlots :exec
DELETE FROM block_slots WHERE job_id = @job_id AND owner IS NULL;

-- name: DeleteRouteState :exec
WITH u AS (DELETE FROM route_uses r WHERE r.job_id = @job_id)
DELETE FROM route_state s WHERE s.job_id = @job_id;

-- name: UnstartedOf :many
SELECT * FROM runs_live
 WHERE job_id = @job_id AND (state IN ('pending', 'retrying') OR (state = 'queued' AND instance IS NULL)) ORDER BY id;

-- name: InsertRun :execrows
INSERT INTO runs_live (id, job_id, job_version, group_name, cause, fire_time, due_at, pin, param, parent_run_id, event_id, trace)
VALUES (@id, @job_id, @job_version, @group_name, @cause, @fire_time, @due_at, @pin, @param, @parent_run_id, @event_id, @trace)
ON CONFLICT (id) DO NOTHING;

-- name: RunForRetry :one
SELECT id, job_id, cause, state, param, fire_time, shard_index, shard_total, instance FROM runs
 WHERE id = @id ORDER BY finished_at NULLS LAST LIMIT 1;

-- name: JobOfRun :one
SELECT job_id FROM runs WHERE id = @id;

-- name: GroupHadJobs :one
SELECT EXISTS (SELECT 1 FROM job_versions WHERE spec ->> 'group' = @group_name::text);

-- name: GroupExists :one
SELECT EXISTS (SELECT 1 FROM groups WHERE name = @name);

-- name: GroupOpenToXXLJob :one
SELECT EXISTS (SELECT FROM gateway_groups WHERE group_name = @group_name);
