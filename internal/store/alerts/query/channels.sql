-- name: Channels :many
SELECT * FROM alert_channels WHERE name > @after ORDER BY name LIMIT @max_rows;

-- name: Channel :one
SELECT * FROM alert_channels WHERE name = @name;

-- name: ChannelSettings :many
SELECT name, settings FROM alert_channels WHERE name = ANY(@names::text[]);

-- name: LockChannel :one
SELECT * FROM alert_channels WHERE name = @name FOR UPDATE;

-- name: InsertChannel :one
INSERT INTO alert_channels (name, kind, settings, secrets) VALUES (@name, @kind, @settings, @secrets) RETURNING *;

-- name: UpdateChannel :one
UPDATE alert_channels SET kind = @kind, settings = @settings, secrets = @secrets, updated_at = clock_timestamp() WHERE name = @name RETURNING *;

-- name: DeleteChannel :exec
DELETE FROM alert_channels WHERE name = @name;

-- name: JobsOfChannel :many
-- Uses the index jobs_alert_channels, whose condition the query repeats. Without MATERIALIZED, the planner would prefer
-- a scan of all jobs in the order of their ids.
WITH users AS MATERIALIZED (
    SELECT id, group_name, name FROM jobs
     WHERE spec -> 'alert' -> 'channels' <> '[]'::jsonb AND spec -> 'alert' -> 'channels' @> to_jsonb(ARRAY[@channel::text])
)
SELECT id, group_name, name FROM users ORDER BY id LIMIT @max_rows;
