-- name: JobVersion :one
SELECT spec FROM job_versions WHERE job_id = @job_id AND version = @version;

-- name: Run :one
SELECT id, cause, state, reason, message, COALESCE(message_notes, '')::text AS message_notes, attempt, fire_time, lateness_ms, last_line, COALESCE(instance, '')::text AS instance,
       broadcast_id, COALESCE(shard_total, 0)::int AS shard_total, COALESCE(trace, '')::text AS trace
  FROM runs_history WHERE id = @id;

-- name: Shards :one
-- Returns for a broadcast how many shards did not succeed and which of them failed first. Ids of shards have the time
-- of the first shard's id.
SELECT count(*) FILTER (WHERE state <> 'succeeded') AS bad,
       COALESCE((array_agg(id ORDER BY (state <> 'failed'), finished_at) FILTER (WHERE state <> 'succeeded'))[1], '00000000-0000-0000-0000-000000000000')::uuid AS worst
  FROM runs_history WHERE broadcast_id = @broadcast_id AND id BETWEEN @lo::uuid AND @hi::uuid;

-- name: LastChunks :many
SELECT last_line, lines FROM run_logs WHERE run_id = @run_id AND attempt = @attempt ORDER BY first_line DESC LIMIT 3;

-- name: InsertAlert :one
INSERT INTO alerts (kind, job_id, job_name, group_name, run_id, content, at)
VALUES (@kind, @job_id, @job_name, @group_name, sqlc.narg('run_id')::uuid, @content, @at) RETURNING id;

-- name: InsertDeliveries :exec
INSERT INTO alert_deliveries (alert_id, channel) SELECT @alert_id, unnest(@channels::text[]);

-- name: Delivery :one
SELECT d.state, a.content FROM alert_deliveries d JOIN alerts a ON a.id = d.alert_id WHERE d.alert_id = @alert_id AND d.channel = @channel;

-- name: SetDelivery :exec
-- A finished delivery does not change.
UPDATE alert_deliveries SET state = @state, tries = GREATEST(tries, @tries), error = @error, updated_at = clock_timestamp()
 WHERE alert_id = @alert_id AND channel = @channel AND state = 'pending';

-- name: Alerts :many
SELECT a.id, a.content FROM alerts a
 WHERE a.id < @before
   AND (sqlc.narg('only')::text[] IS NULL OR a.group_name = ANY (sqlc.narg('only')::text[]))
   AND (sqlc.narg('group_name')::text IS NULL OR a.group_name = sqlc.narg('group_name')::text)
   AND (sqlc.narg('job_id')::bigint IS NULL OR a.job_id = sqlc.narg('job_id')::bigint)
   AND (sqlc.narg('kind')::text IS NULL OR a.kind = sqlc.narg('kind')::text)
   AND (sqlc.narg('state')::text IS NULL OR EXISTS (SELECT 1 FROM alert_deliveries d WHERE d.alert_id = a.id AND d.state = sqlc.narg('state')::text))
 ORDER BY a.id DESC LIMIT @max_rows;

-- name: Deliveries :many
SELECT alert_id, channel, state, tries, error, updated_at FROM alert_deliveries
 WHERE alert_id = ANY(@ids::bigint[]) ORDER BY alert_id, channel;

-- name: DropAlerts :execrows
-- Deletes in portions, so that no statement takes long.
DELETE FROM alerts WHERE id IN (SELECT a.id FROM alerts a WHERE a.at < @before ORDER BY a.at LIMIT 5000);

-- name: DropStates :exec
-- Deletes the states of deleted jobs, and those without a change for a long time.
DELETE FROM alert_state s WHERE s.told_at < @before AND NOT s.open AND s.folded = 0
    OR NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = s.job_id);

-- name: GiveUpDeliveries :execrows
-- Fails deliveries whose worker died in its last try or was removed.
UPDATE alert_deliveries SET state = 'failed', error = COALESCE(NULLIF(error, ''), 'whether it was delivered is not known'), updated_at = clock_timestamp()
 WHERE state = 'pending' AND updated_at < @before;
