-- name: PausesForPlanning :many
-- Returns the pauses of all groups, and of the given jobs, that are not over or that ended since an instant. The caller has locked the
-- job_due rows of the jobs.
SELECT 0::bigint AS job_id, p.group_name::text AS group_name, p.from_at::timestamptz AS from_at, p.to_at, p.reason::text AS reason,
       p.paused_by::text AS paused_by, p.resumed_by::text AS resumed_by
  FROM pauses_for_planning(@since::timestamptz) p
UNION ALL
SELECT o.job_id, '', o.from_at, o.to_at, o.reason, o.paused_by, o.resumed_by FROM job_pauses o
 WHERE o.job_id = ANY(@job_ids::bigint[]) AND (o.to_at IS NULL OR o.to_at >= @since::timestamptz);

-- name: LockPauses :exec
-- Waits for the transactions that are planning, so that none plans by the previous pauses any more.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.group_pauses', 0));

-- name: ActivePause :many
SELECT id, from_at, to_at, reason, paused_by FROM group_pauses
 WHERE group_name = @group_name AND (to_at IS NULL OR to_at > @now::timestamptz)
 ORDER BY from_at LIMIT 1;

-- name: InsertPause :exec
INSERT INTO group_pauses (group_name, from_at, to_at, reason, paused_by)
VALUES (@group_name, @from_at, @to_at, @reason, @paused_by);

-- name: ChangePause :exec
UPDATE group_pauses SET to_at = @to_at, reason = @reason, paused_by = @paused_by, taken_back = false WHERE id = @id;

-- name: EndPause :exec
UPDATE group_pauses SET to_at = @at, resumed_by = @resumed_by WHERE id = @id;

-- name: ActiveJobPause :many
-- The caller holds the job's lock, here and in the queries below that change a pause of a job.
SELECT id, from_at, to_at, reason, paused_by FROM job_pauses
 WHERE job_id = @job_id AND (to_at IS NULL OR to_at > @now::timestamptz)
 ORDER BY from_at LIMIT 1;

-- name: InsertJobPause :exec
INSERT INTO job_pauses (job_id, group_name, from_at, to_at, reason, paused_by) VALUES (@job_id, @group_name, @from_at, @to_at, @reason, @paused_by);

-- name: ChangeJobPause :exec
UPDATE job_pauses SET to_at = @to_at, reason = @reason, paused_by = @paused_by WHERE id = @id;

-- name: EndJobPause :exec
UPDATE job_pauses SET to_at = @at, resumed_by = @resumed_by WHERE id = @id;

-- name: ParkJob :exec
UPDATE job_due SET paused_until = COALESCE(sqlc.narg('to_at')::timestamptz, 'infinity'),
       parked = CASE WHEN next_due_at IS NOT NULL THEN '' ELSE parked END,
       next_due_at = CASE WHEN next_due_at IS NOT NULL THEN @look_at::timestamptz END
 WHERE job_id = @job_id;

-- name: UnparkJob :exec
UPDATE job_due SET paused_until = @now::timestamptz, parked = NULL,
       next_due_at = CASE WHEN next_due_at IS NOT NULL THEN LEAST(next_due_at, @now::timestamptz) END
 WHERE job_id = @job_id;

-- name: OpenPauses :many
-- Returns pauses with work left: runs planned ahead have to be taken back, or the pause is over and its jobs have to be
-- planned again.
SELECT id, group_name, from_at, to_at, taken_back, (to_at IS NOT NULL AND to_at <= statement_timestamp())::bool AS over
  FROM group_pauses
 WHERE NOT released AND (NOT taken_back OR to_at <= statement_timestamp())
 ORDER BY id LIMIT 100;

-- name: PlannedInPause :many
-- Returns jobs with planned runs that are due in a pause and that no Fire has decided about. Runs of an earlier
-- version, which were already due when the job was changed, are not taken back, because planning does not make them again.
SELECT DISTINCT r.job_id FROM runs_live r JOIN job_due d ON d.job_id = r.job_id AND (d.version = r.job_version) IS TRUE
 WHERE r.due_at >= @from_at AND r.due_at < @to_at AND NOT r.held AND r.group_name = @group_name
   AND r.state = 'pending' AND NOT r.admitted AND r.attempt = 1 AND r.cause = 'schedule'
 LIMIT @batch;

-- name: TakeBackPaused :many
-- The caller holds the jobs' locks.
DELETE FROM runs_live WHERE id = ANY(ARRAY(
    SELECT r.id FROM runs_live r JOIN job_due d ON d.job_id = r.job_id AND (d.version = r.job_version) IS TRUE
     WHERE r.job_id = ANY(@job_ids::bigint[]) AND r.due_at >= @from_at AND r.due_at < @to_at AND NOT r.held AND r.group_name = @group_name
       AND r.state = 'pending' AND NOT r.admitted AND r.attempt = 1 AND r.cause = 'schedule'
     ORDER BY r.id FOR UPDATE OF r))
RETURNING job_id, job_version, fire_time;

-- name: RewindDue :exec
-- Makes the first of the fire times that were taken back the next one to decide about.
UPDATE job_due d
   SET next_fire_time = w.fire, decided_through = w.fire - interval '1 millisecond', next_due_at = @next_due::timestamptz
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@versions::int[]) AS version, unnest(@fires::timestamptz[]) AS fire) w
 WHERE d.job_id = w.job_id AND d.version = w.version
   AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = d.job_id AND j.enabled);

-- name: MarkTakenBack :exec
-- Does nothing if the pause got another end meanwhile.
UPDATE group_pauses SET taken_back = true WHERE id = @id AND to_at IS NOT DISTINCT FROM sqlc.narg('to_at')::timestamptz;

-- name: ParkDue :exec
-- The group is empty if a pause of the job itself keeps it from being planned.
UPDATE job_due d SET parked = w.group_name
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@groups::text[]) AS group_name) w
 WHERE d.job_id = w.job_id;

-- name: ReleaseParked :execrows
-- A job that was changed during the pause is planned once too often, which changes nothing.
UPDATE job_due SET parked = NULL, next_due_at = CASE WHEN next_due_at IS NOT NULL THEN LEAST(next_due_at, statement_timestamp()) END
 WHERE job_id = ANY(ARRAY(
    SELECT d.job_id FROM job_due d WHERE d.parked = @group_name::text ORDER BY d.job_id LIMIT @batch FOR UPDATE SKIP LOCKED));

-- name: StillParked :one
SELECT EXISTS (SELECT 1 FROM job_due WHERE parked = @group_name::text);

-- name: PausedNow :one
SELECT EXISTS (SELECT 1 FROM group_pauses WHERE group_name = @group_name AND from_at <= statement_timestamp()
                  AND (to_at IS NULL OR to_at > statement_timestamp()));

-- name: MarkReleased :exec
UPDATE group_pauses SET taken_back = true, released = true WHERE id = @id;
