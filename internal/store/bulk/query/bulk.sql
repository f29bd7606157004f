-- name: LockCreator :exec
-- Allows one transaction at a time to count and create the actions of a user.
SELECT pg_advisory_xact_lock(hashtextextended('belfry.bulk ' || @user_id::bigint, 0));

-- name: CountUnfinished :one
SELECT count(*) FROM bulk_actions WHERE user_id = @user_id AND finished_at IS NULL;

-- name: InsertAction :one
INSERT INTO bulk_actions (action, filter, user_id, token_id, created_by, remote, groups, created_at, matched, at_least, jobs)
VALUES (@action, @filter, @user_id, @token_id, @created_by, @remote, @groups::text[], @created_at, @matched, @at_least, @jobs)
RETURNING *;

-- name: Clock :one
SELECT clock_timestamp()::timestamptz;

-- name: Action :one
-- A null array of groups stands for all groups.
SELECT * FROM bulk_actions WHERE id = @id AND (sqlc.narg('only')::text[] IS NULL OR groups <@ sqlc.narg('only')::text[]);

-- name: Actions :many
SELECT * FROM bulk_actions
 WHERE id < @before AND (sqlc.narg('only')::text[] IS NULL OR groups <@ sqlc.narg('only')::text[])
 ORDER BY id DESC LIMIT @max_rows;

-- name: LockUnfinished :one
-- The lock makes batches of the same action follow each other. The caller compares the cursor.
SELECT * FROM bulk_actions WHERE id = @id AND finished_at IS NULL FOR UPDATE;

-- name: Advance :exec
UPDATE bulk_actions
   SET state = 'running', started_at = COALESCE(started_at, clock_timestamp()), cursor = @cursor,
       done = done + @done, skipped = skipped + @skipped, failed = failed + @failed, errors = @errors, note = @note
 WHERE id = @id;

-- name: Finish :one
-- Returns no row if the action has ended already.
UPDATE bulk_actions SET state = @state, note = @note, finished_at = clock_timestamp(), started_at = COALESCE(started_at, clock_timestamp())
 WHERE id = @id AND finished_at IS NULL
RETURNING *;

-- name: AddRuns :exec
INSERT INTO bulk_runs (bulk_id, run_id) SELECT @bulk_id, unnest(@run_ids::uuid[]) ON CONFLICT DO NOTHING;

-- name: NewRuns :many
-- Returns the new runs of a retry, newest first.
SELECT run_id FROM bulk_runs WHERE bulk_id = @bulk_id AND run_id < @before ORDER BY run_id DESC LIMIT @max_rows;

-- name: Audit :exec
INSERT INTO audit_log (actor, remote, action, object, before, after) VALUES (@actor, @remote, @action, @object, NULL, @after);
