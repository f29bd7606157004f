-- name: ExtendPresence :execrows
-- After a silence, a new row begins, so that the silence is visible.
UPDATE scheduler_presence SET seen_at = clock_timestamp()
 WHERE id = @id AND seen_at > clock_timestamp() - @silence::interval;

-- name: BeginPresence :one
INSERT INTO scheduler_presence (scheduler) VALUES (@scheduler) RETURNING id;

-- name: ForgetPresence :exec
-- The newest row stays, because a gap is only visible between two rows.
DELETE FROM scheduler_presence WHERE seen_at < clock_timestamp() - @keep::interval
   AND id < (SELECT max(id) FROM scheduler_presence);

-- name: ClaimFireCheck :many
UPDATE fire_audit SET claimed_by = @owner, claimed_until = clock_timestamp() + @lease::interval
 WHERE single AND (claimed_by = @owner OR claimed_until < clock_timestamp())
RETURNING through, COALESCE(upto, 'epoch')::timestamptz AS upto, job_id, COALESCE(due_at, 'epoch')::timestamptz AS due_at,
          round_at, clock_timestamp()::timestamptz AS now;

-- name: SaveFireCheck :execrows
UPDATE fire_audit SET through = @through, upto = NULLIF(@upto::timestamptz, 'epoch'), job_id = @job_id,
       due_at = NULLIF(@due_at::timestamptz, 'epoch'), round_at = @round_at
 WHERE single AND claimed_by = @owner;

-- name: ReleaseFireCheck :exec
UPDATE fire_audit SET claimed_until = clock_timestamp() WHERE single AND claimed_by = @owner;

-- name: OldestUndecided :one
-- Returns the next due instant that planning has to decide about, or the epoch if there is none.
SELECT COALESCE((SELECT next_due_at FROM job_due WHERE next_due_at IS NOT NULL ORDER BY next_due_at LIMIT 1), 'epoch')::timestamptz AS due_at;

-- name: KnownRuns :many
SELECT l.id FROM runs_live l WHERE l.id = ANY(@ids::uuid[])
UNION ALL
SELECT h.id FROM runs_history h WHERE h.id = ANY(@ids::uuid[]) AND h.id BETWEEN @lo::uuid AND @hi::uuid;

-- name: LedgeredFires :many
-- Returns those of the given fire times of a job that its ledger covers.
SELECT f::timestamptz AS fire_time FROM unnest(@fire_times::timestamptz[]) f
 WHERE EXISTS (SELECT 1 FROM missed m
                WHERE m.job_id = @job_id AND m.last_fire_time >= f AND m.first_fire_time <= f);

-- name: LockDisturbances :exec
-- Processes notice the same disturbance at the same time, and only one of them records it.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.disturbances', 0));

-- name: Disturbances :many
SELECT id, from_at, to_at, step_ms FROM disturbances WHERE kind = @kind ORDER BY id DESC LIMIT 100;

-- name: InsertDisturbance :exec
INSERT INTO disturbances (kind, from_at, to_at, step_ms, seen_by) VALUES (@kind, @from_at, @to_at, @step_ms, @seen_by);

-- name: SetDisturbance :exec
UPDATE disturbances SET from_at = @from_at, to_at = @to_at WHERE id = @id;

-- name: ForgetDisturbances :exec
DELETE FROM disturbances WHERE greatest(from_at, to_at, seen_at) < clock_timestamp() - @keep::interval;
