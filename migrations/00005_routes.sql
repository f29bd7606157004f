-- +goose Up

-- Memory of the routes least_frequently_used and least_recently_used, shared by all dispatchers: a number for each instance of a job.
-- For least_frequently_used it is the number of runs that the instance got on this day. For least_recently_used it is the
-- job's turn that the instance got last.
CREATE TABLE route_uses (
    job_id  bigint PRIMARY KEY,
    route   text NOT NULL DEFAULT '',
    day     date NOT NULL DEFAULT '-infinity', -- in UTC; counts of another day are discarded
    numbers jsonb NOT NULL DEFAULT '{}',
    found   jsonb NOT NULL DEFAULT '{}' -- the numbers before the last update; stored because an UPDATE cannot return old values
) WITH (fillfactor = 50);

-- uses_found returns the numbers of the known instances; the numbers of others are discarded. For least_frequently_used, a new instance starts
-- with the lowest number of the others. If it started at 0, it would get all runs until its count reached theirs.
-- For least_recently_used, a new instance starts at 0, which means never used.
-- +goose StatementBegin
CREATE FUNCTION uses_found(numbers jsonb, known text[], counts boolean) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(jsonb_object_agg(k, COALESCE((numbers ->> k)::bigint, CASE WHEN counts THEN lowest ELSE 0 END)), '{}')
      FROM unnest(known) k,
           (SELECT COALESCE(min((numbers ->> o)::bigint), 0) AS lowest FROM unnest(known) o) l
$$;
-- +goose StatementEnd

-- uses_taken returns the numbers after n runs. Each run goes to the instance with room that has the smallest number at that point; among
-- equals, to the first by name.
-- +goose StatementBegin
CREATE FUNCTION uses_taken(found jsonb, open text[], n integer, counts boolean) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    WITH o AS (
        SELECT name, number, row_number() OVER (ORDER BY number, name COLLATE "C") - 1 AS place, count(*) OVER () AS total
          FROM (SELECT k AS name, (found ->> k)::bigint AS number FROM unnest(open) k) a
    ), taken AS (
        -- The n smallest of all numbers that the instances can come to: only the n first have a part in them.
        SELECT name, number + count(*) AS number
          FROM (SELECT name, number FROM o, generate_series(0, n - 1) i WHERE counts AND place < n
                 ORDER BY number + i, name COLLATE "C" LIMIT n) t
         GROUP BY name, number
        UNION ALL
        -- They take turns, each its last one in the last round.
        SELECT name, top + 1 + place + (n - 1 - place) / total * total
          FROM o, (SELECT COALESCE(max(v::bigint), 0) AS top FROM jsonb_each_text(found) e (k, v)) m
         WHERE NOT counts AND place < n
    )
    SELECT found || COALESCE((SELECT jsonb_object_agg(name, number) FROM taken), '{}')
$$;
-- +goose StatementEnd

-- Runs whose instances are pinged first (failover, busyover) wait in a queue of their job, because they wait for an answer, or for an
-- instance without a run of their job. Other runs must not wait behind them.
ALTER TABLE runs_waiting ADD COLUMN apart bigint NOT NULL DEFAULT 0; -- the job with a separate queue; 0: the common queue
DROP INDEX runs_waiting_turn;
CREATE INDEX runs_waiting_turn ON runs_waiting (group_name, handler, pin, apart, due_at, run_id);

-- A held run waits for the owner of the slot. The owner can change during the wait, so the view reads it from the slot.
CREATE OR REPLACE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting,
       CASE WHEN held THEN COALESCE((SELECT s.owner FROM block_slots s WHERE s.job_id = l.job_id AND s.instance = l.held_on), held_by)
       END AS held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id
  FROM runs_live l
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id
  FROM runs_history;

-- +goose Down
CREATE OR REPLACE VIEW runs AS
SELECT id, job_id, job_version, group_name, cause, state, reason, message, ''::text AS output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, NULL::timestamptz AS finished_at,
       kill_requested_at, lateness_ms, 0::bigint AS last_line, instance, boot_id, route, waiting, held_by,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id
  FROM runs_live
UNION ALL
SELECT id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt,
       fire_time, due_at, created_at, dispatched_at, started_at, finished_at,
       kill_requested_at, lateness_ms, last_line, instance, boot_id, route, NULL, NULL,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id
  FROM runs_history;
DROP INDEX runs_waiting_turn;
ALTER TABLE runs_waiting DROP COLUMN apart;
CREATE INDEX runs_waiting_turn ON runs_waiting (group_name, handler, pin, due_at, run_id);
DROP FUNCTION uses_taken(jsonb, text[], integer, boolean), uses_found(jsonb, text[], boolean);
DROP TABLE route_uses;
