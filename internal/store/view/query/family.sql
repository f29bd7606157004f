-- name: ChildRuns :many
-- The runs that a run's end, or that of its broadcast, has caused; their ids are later than the parent's.
SELECT r.id FROM runs r
 WHERE r.parent_run_id = ANY (@parents::uuid[]) AND r.id >= @lo
 ORDER BY r.id LIMIT @max_rows;
