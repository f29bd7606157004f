-- name: TracedRuns :many
-- Returns final runs as their spans show them.
SELECT id, job_id, job_version, group_name, cause, state, reason, attempt, fire_time, due_at, created_at, dispatched_at, started_at,
       finished_at, lateness_ms, COALESCE(instance, '')::text AS instance, shard_index, broadcast_id, parent_run_id, trace
  FROM runs_history WHERE id = ANY(@ids::uuid[]);

-- name: TracedAttempts :many
-- Returns the attempts of these runs, except the last one of each.
SELECT run_id, attempt, COALESCE(instance, '')::text AS instance, dispatched_at, started_at, finished_at, outcome, reason
  FROM run_attempts WHERE run_id = ANY(@ids::uuid[]) ORDER BY run_id, attempt;

-- name: TraceOfRun :one
-- Returns what the trace of a final run is known from.
SELECT trace, broadcast_id FROM runs_history WHERE id = @id;
