-- name: ChildRuns :many
-- Returns the runs caused by the end of a run or of its broadcast. Their ids are later than the parent's.
SELECT r.id FROM runs r
 WHERE r.parent_run_id = ANY (@parents::uuid[]) AND r.id >= @lo
 ORDER BY r.id LIMIT @max_rows;
