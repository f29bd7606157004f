-- name: FireCheckJobs :many
-- Returns jobs by id, including those that were deleted after the given instant. @last bounds the ids, so that one job
-- can be selected.
SELECT a.id, a.group_name::text AS group_name, a.name::text AS name,
       coalesce(CASE WHEN d.next_due_at IS NOT NULL THEN d.next_fire_time END, 'epoch')::timestamptz AS next_fire_time
  FROM ((SELECT j.id, j.group_name, j.name FROM jobs j
          WHERE j.id > @after AND j.id <= @last
            AND (sqlc.narg('only')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('only')::text[]))
          ORDER BY j.id LIMIT @max_rows)
        UNION ALL
        (SELECT v.job_id, v.spec->>'group', v.spec->>'name' FROM job_versions v
          WHERE v.change = 'deleted' AND v.job_id > @after AND v.job_id <= @last AND v.valid_from > @since
            AND (sqlc.narg('only')::text[] IS NULL OR v.spec->>'group' = ANY (sqlc.narg('only')::text[]))
          ORDER BY v.job_id LIMIT @max_rows)) a
  LEFT JOIN job_due d ON d.job_id = a.id
 ORDER BY a.id LIMIT @max_rows;

-- name: FireCheckJobCount :one
SELECT count(*) FROM jobs j
 WHERE j.id > @after AND j.id <= @last
   AND (sqlc.narg('only')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('only')::text[]));

-- name: FireCheckVersions :many
-- Returns the versions that were in force after the given instant.
SELECT v.job_id, v.version, v.created_at, v.valid_from, v.valid_to, v.changed_by, v.change, (v.spec->'schedule')::jsonb AS schedule,
       (coalesce(v.spec->>'enabled', 'true') = 'true')::boolean AS enabled, coalesce(v.spec->>'misfire', '')::text AS misfire,
       coalesce(v.spec->>'retention', '')::text AS retention, coalesce(v.spec->>'group', '')::text AS group_name
  FROM job_versions v
 WHERE v.job_id = ANY (@job_ids::bigint[]) AND (v.valid_to IS NULL OR v.valid_to >= @since)
 ORDER BY v.job_id, v.version LIMIT @max_rows;

-- name: FireCheckSubject :one
-- Returns a job's current group and name, or its last ones if it is deleted.
SELECT v.job_id, (v.spec->>'group')::text AS group_name, (v.spec->>'name')::text AS name FROM job_versions v
 WHERE v.job_id = @job_id ORDER BY v.version DESC LIMIT 1;

-- name: FireCheckRuns :many
-- lo and hi bound the ids, so that only the partitions of their days are read.
SELECT r.id, r.job_id, r.job_version, r.cause, r.state, r.reason, left(r.message, 300)::text AS message, coalesce(r.waiting, '')::text AS waiting,
       coalesce(r.waiting_note, '')::text AS waiting_note,
       coalesce(r.instance, '')::text AS instance, r.attempt, r.fire_time, r.due_at, r.dispatched_at, r.started_at,
       r.finished_at, r.lateness_ms, r.held_by, coalesce(r.shard_total, 0)::integer AS shards
  FROM runs r
 WHERE r.id = ANY (@ids::uuid[]) AND r.id BETWEEN @lo::uuid AND @hi::uuid;

-- name: FireCheckChain :many
-- Returns runs of a job's schedule between two ids, from old to new.
SELECT r.id, r.job_id, r.job_version, r.cause, r.state, r.reason, left(r.message, 300)::text AS message, coalesce(r.waiting, '')::text AS waiting,
       coalesce(r.waiting_note, '')::text AS waiting_note,
       coalesce(r.instance, '')::text AS instance, r.attempt, r.fire_time, r.due_at, r.dispatched_at, r.started_at,
       r.finished_at, r.lateness_ms, r.held_by, coalesce(r.shard_total, 0)::integer AS shards
  FROM runs r
 WHERE r.job_id = @job_id AND r.id >= @lo AND r.id < @hi AND r.cause IN ('schedule', 'misfire')
   AND coalesce(r.shard_index, 0) = 0
 ORDER BY r.id LIMIT @max_rows;

-- name: FireCheckBefore :many
SELECT r.id, r.job_version, r.cause, r.state, r.fire_time, r.finished_at FROM runs r
 WHERE r.job_id = @job_id AND r.id < @hi AND r.id >= @lo AND r.cause IN ('schedule', 'misfire') AND coalesce(r.shard_index, 0) = 0
 ORDER BY r.id DESC LIMIT 1;

-- name: LaterFire :one
-- Returns the newest fire time after the given id with a run of an earlier version than the given one, or the epoch.
SELECT coalesce(max(r.fire_time), 'epoch')::timestamptz AS fire_time FROM runs r
 WHERE r.job_id = @job_id AND r.id > @lo AND r.id < @hi AND r.job_version < @version AND r.cause IN ('schedule', 'misfire');

-- name: KnownRunIDs :many
SELECT l.id FROM runs_live l WHERE l.id = ANY (@ids::uuid[])
UNION ALL
SELECT h.id FROM runs_history h WHERE h.id = ANY (@ids::uuid[]) AND h.id BETWEEN @lo::uuid AND @hi::uuid;

-- name: FireCheckMissed :many
SELECT m.id, m.job_id, m.first_fire_time, m.last_fire_time, m.count, m.policy, m.why, m.why_note, m.at FROM missed m
 WHERE m.job_id = ANY (@job_ids::bigint[]) AND m.last_fire_time >= @lo AND m.first_fire_time <= @hi
 ORDER BY m.job_id, m.first_fire_time;

-- name: Presence :many
-- Returns the presence of schedulers since an instant, and the last sign of life before it.
SELECT p.from_at, p.seen_at, clock_timestamp()::timestamptz AS now FROM scheduler_presence p
 WHERE p.seen_at >= coalesce((SELECT max(o.seen_at) FROM scheduler_presence o WHERE o.seen_at < @since), @since::timestamptz)
 ORDER BY p.from_at LIMIT 100000;

-- name: ClockNow :one
SELECT clock_timestamp()::timestamptz AS now;

-- name: HistoryDays :many
-- Returns those of the given days, such as 20261120, whose history exists and is complete: see package retention.
SELECT d::text AS day FROM unnest(@days::text[]) d
 WHERE to_regclass('runs_history_' || d) IS NOT NULL
   AND coalesce(obj_description(to_regclass('runs_history_' || d), 'pg_class'), '') NOT LIKE 'belfry: kept%';

-- name: PausesSince :many
-- Returns the pauses of groups and of jobs that are not over or that ended after the given instant.
SELECT 0::bigint AS job_id, g.group_name, g.from_at, g.to_at, g.reason, g.paused_by, g.resumed_by FROM group_pauses g
 WHERE g.group_name = ANY (@groups::text[]) AND (g.to_at IS NULL OR g.to_at > @since::timestamptz)
UNION ALL
SELECT j.job_id, '', j.from_at, j.to_at, j.reason, j.paused_by, j.resumed_by FROM job_pauses j
 WHERE j.job_id = ANY (@job_ids::bigint[]) AND (j.to_at IS NULL OR j.to_at > @since::timestamptz)
 ORDER BY from_at LIMIT 30000;

-- name: DisturbancesSince :many
SELECT kind, from_at, to_at, step_ms FROM disturbances WHERE greatest(from_at, to_at) >= @since::timestamptz ORDER BY from_at LIMIT 10000;
