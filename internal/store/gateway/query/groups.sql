-- name: OpenGroup :exec
INSERT INTO gateway_groups (group_name, app_name, token, networks, capacity)
VALUES (@group_name, @app_name, @token, @networks::cidr[], @capacity)
ON CONFLICT (group_name) DO UPDATE SET app_name = excluded.app_name, token = excluded.token, networks = excluded.networks, capacity = excluded.capacity, updated_at = now();

-- name: Groups :many
SELECT group_name, app_name, token, networks, capacity FROM gateway_groups WHERE group_name > @after ORDER BY group_name LIMIT @max_rows;

-- name: Group :one
SELECT group_name, app_name, token, networks, capacity FROM gateway_groups WHERE group_name = @group_name;

-- name: Opened :one
SELECT count(*) FROM gateway_groups WHERE group_name = @group_name;

-- name: WireIDs :many
SELECT job_id, wire_id FROM gateway_wire_ids WHERE group_name = @group_name AND job_id = ANY (@job_ids::bigint[]);
