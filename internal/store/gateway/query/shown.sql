-- name: OpenAmong :many
SELECT group_name FROM gateway_groups WHERE group_name = ANY (@names::text[]);

-- name: Shown :one
-- Says of an attempt of a run whether its group is open, and whether the executor has not answered.
SELECT EXISTS (SELECT FROM gateway_groups g WHERE g.group_name = @group_name) AS open,
       EXISTS (SELECT FROM gateway_sends s WHERE s.run_id = @run_id AND s.attempt = @attempt AND NOT s.unstarted AND s.state = 'unknown') AS unanswered;
