-- name: WireIDs :many
SELECT w.wire_id, w.job_id, w.source, w.imported, NOT EXISTS (SELECT FROM jobs j WHERE j.id = w.job_id) AS job_deleted
  FROM gateway_wire_ids w
 WHERE w.group_name = @group_name AND w.wire_id > @after
 ORDER BY w.wire_id LIMIT @max_rows;

-- name: WireIDHolder :one
SELECT w.job_id, w.source FROM gateway_wire_ids w WHERE w.group_name = @group_name AND w.wire_id = @wire_id;

-- name: SetWireID :execrows
-- Changes no row if the id belongs to another job that still exists.
INSERT INTO gateway_wire_ids (group_name, wire_id, job_id, source, imported)
VALUES (@group_name, @wire_id, @job_id, @source, @imported)
ON CONFLICT (group_name, wire_id) DO UPDATE SET job_id = excluded.job_id, source = excluded.source, imported = excluded.imported, updated_at = now()
 WHERE gateway_wire_ids.job_id = excluded.job_id OR NOT EXISTS (SELECT FROM jobs j WHERE j.id = gateway_wire_ids.job_id);

-- name: WireID :one
SELECT w.wire_id FROM gateway_wire_ids w WHERE w.group_name = @group_name AND w.job_id = @job_id;

-- name: AssignWireID :exec
INSERT INTO gateway_wire_ids (group_name, wire_id, job_id) VALUES (@group_name, nextval('gateway_wire_id_seq'), @job_id)
ON CONFLICT DO NOTHING;
