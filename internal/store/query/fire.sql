-- name: AdmitRuns :many
-- Fire: moves runs from pending (or retrying) to queued, and binds them if an instance was chosen. The query compares
-- everything that a ring entry contains, and leaves a scheduled fire that is later than the tolerance to the misfire
-- policy. The ids are sorted, so that runs are locked by id.
-- Here and in every query that joins a batch with live runs, (…) IS TRUE hides all comparisons except that of the id
-- from the planner. Otherwise it could choose another index, or, while the table is small, a plan that reads the whole
-- table for each member of the batch. The condition on the array of ids has a similar reason: because of
-- generate_series, the planner estimates each batch at a thousand rows, and could read ten thousand live runs for one.
-- An empty array stands for nulls. If many runs share the same values, way is an index into the shared instances and
-- boots, and how is an index into the shared routes; otherwise each run has its own values. The way is 0 if the run has
-- to wait. The query returns each run's index in the arrays, and the columns that the caller does not know.
-- Reconcilers measure the silence of an offer from bound_at, so bound_at does not include the time spent waiting for a
-- lock. dispatched_at is only displayed.
UPDATE runs_live r
   SET state = 'queued', admitted = true, waiting = NULLIF(w.waiting, ''), waiting_note = COALESCE(NULLIF(w.waiting_note, ''), r.waiting_note),
       route = COALESCE(w.route, (@shared_routes::text[])[w.how]), route_note = NULLIF(COALESCE(w.route_note, (@shared_route_notes::text[])[w.how]), ''),
       instance = CASE WHEN w.way > 0 THEN COALESCE(w.instance, (@shared_instances::text[])[w.way]) END,
       boot_id = CASE WHEN w.way > 0 THEN COALESCE(w.boot, (@shared_boots::text[])[w.way]) END,
       bind = r.bind + (w.way > 0)::int,
       bound_at = CASE WHEN w.way > 0 THEN clock_timestamp() END,
       dispatched_at = CASE WHEN w.way > 0 THEN statement_timestamp() END,
       give_up_at = CASE WHEN w.way > 0 THEN NULLIF(w.give_up, 'epoch') END
  FROM (SELECT generate_series(1, @n::int) AS place, unnest(@ids::uuid[]) AS id, unnest(@due_ats::timestamptz[]) AS due_at,
               unnest(@versions::int[]) AS version, unnest(@attempts::int[]) AS attempt,
               unnest(@ways::int[]) AS way, unnest(@instances::text[]) AS instance, unnest(@boots::text[]) AS boot,
               unnest(@hows::int[]) AS how, unnest(@routes::text[]) AS route, unnest(@route_notes::text[]) AS route_note,
               unnest(@waitings::text[]) AS waiting, unnest(@waiting_notes::text[]) AS waiting_note,
               unnest(@give_ups::timestamptz[]) AS give_up) w
 WHERE r.id = ANY(@ids::uuid[]) AND r.id = w.id
   AND (r.due_at = w.due_at AND r.job_version = w.version AND r.attempt = w.attempt
        AND r.state IN ('pending', 'retrying') AND r.replanned AND NOT r.held AND r.kill_requested_at IS NULL
        AND (r.cause <> 'schedule' OR r.admitted OR r.attempt > 1 OR r.due_at >= statement_timestamp() - @tolerance::interval)) IS TRUE
RETURNING w.place::int AS place, r.cause, r.bind, r.fire_time, r.bound_at, r.param, r.shard_index, r.shard_total, r.broadcast_id, r.parent_run_id, r.trace;

-- name: Fireable :many
-- Returns and locks, by id, those of the given ring entries that AdmitRuns would admit.
SELECT r.id, r.admitted
  FROM runs_live r
  JOIN (SELECT unnest(@ids::uuid[]) AS id, unnest(@due_ats::timestamptz[]) AS due_at,
               unnest(@versions::int[]) AS version, unnest(@attempts::int[]) AS attempt) w
    ON r.id = w.id
 WHERE (r.due_at = w.due_at AND r.job_version = w.version AND r.attempt = w.attempt
        AND r.state IN ('pending', 'retrying') AND r.replanned AND NOT r.held AND r.kill_requested_at IS NULL
        AND (r.cause <> 'schedule' OR r.admitted OR r.attempt > 1 OR r.due_at >= statement_timestamp() - @tolerance::interval)) IS TRUE
 ORDER BY r.id FOR UPDATE OF r;

-- name: EnsureSlots :exec
INSERT INTO block_slots (job_id, instance)
SELECT w.job_id, w.instance
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance) w
 ORDER BY w.job_id, w.instance
    ON CONFLICT DO NOTHING;

-- name: LockSlots :many
-- A separate statement checks afterwards whether the owners are live, because this statement's snapshot may be older
-- than an owner.
SELECT s.job_id, s.instance, s.owner
  FROM block_slots s
  JOIN (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance) w
    ON s.job_id = w.job_id AND s.instance = w.instance
 ORDER BY s.job_id, s.instance
   FOR UPDATE OF s;

-- name: LiveOwners :many
SELECT o.id::uuid AS id
  FROM (SELECT unnest(@owners::uuid[]) AS id) o
 WHERE EXISTS (SELECT 1 FROM runs_live l WHERE l.id = o.id)
    OR EXISTS (SELECT 1 FROM broadcasts b WHERE b.id = o.id);

-- name: BoundOwners :many
-- Returns those of the given slots of scope instance whose owner has a run bound to the instance.
SELECT w.job_id::bigint AS job_id, w.instance::text AS instance
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance,
               unnest(@owners::uuid[]) AS owner) w
 WHERE EXISTS (SELECT 1 FROM runs_live r
                WHERE r.job_id = w.job_id AND r.instance = w.instance AND COALESCE(r.broadcast_id, r.id) = w.owner);

-- name: EarliestPending :many
-- Returns each job's earliest due run that no Fire has decided about.
SELECT DISTINCT ON (r.job_id) r.job_id, r.id, r.due_at
  FROM runs_live r
 WHERE r.job_id = ANY(@job_ids::bigint[]) AND r.due_at < @before
   AND r.state = 'pending' AND NOT r.held AND NOT r.admitted AND r.kill_requested_at IS NULL
 ORDER BY r.job_id, r.due_at, r.id;

-- name: SetSlotOwners :exec
UPDATE block_slots s SET owner = NULLIF(w.owner, '00000000-0000-0000-0000-000000000000')
  FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance,
               unnest(@owners::uuid[]) AS owner) w
 WHERE s.job_id = w.job_id AND s.instance = w.instance;

-- name: HoldRuns :many
-- A run that is due while its job's slot is taken waits for its turn. The caller holds the slot's lock, so that the
-- owner cannot end in between.
UPDATE runs_live r
   SET state = CASE WHEN r.state = 'queued' THEN 'pending' ELSE r.state END,
       held = true, admitted = true, held_by = w.owner, held_on = w.instance, waiting = w.waiting,
       waiting_note = NULLIF(w.waiting_note, '')
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@due_ats::timestamptz[]) AS due_at,
               unnest(@attempts::int[]) AS attempt, unnest(@owners::uuid[]) AS owner,
               unnest(@instances::text[]) AS instance, unnest(@waitings::text[]) AS waiting,
               unnest(@waiting_notes::text[]) AS waiting_note) w
 WHERE r.id = w.id
   AND (r.due_at = w.due_at AND r.attempt = w.attempt
        AND (r.state IN ('pending', 'retrying') OR (r.state = 'queued' AND r.instance IS NULL))
        AND NOT r.held AND r.kill_requested_at IS NULL) IS TRUE
RETURNING r.id, r.job_id;

-- name: HeldCounts :many
SELECT job_id, count(*) AS held FROM runs_live WHERE held AND job_id = ANY(@job_ids::bigint[]) GROUP BY job_id;

-- name: InsertWaiting :exec
INSERT INTO runs_waiting (run_id, job_id, group_name, handler, pin, apart, due_at, deadline_at)
SELECT unnest(@run_ids::uuid[]), unnest(@job_ids::bigint[]), unnest(@groups::text[]), unnest(@handlers::text[]),
       unnest(@pins::text[]), unnest(@aparts::bigint[]), unnest(@due_ats::timestamptz[]), unnest(@deadlines::timestamptz[])
    ON CONFLICT (run_id) DO NOTHING;

-- name: WaitingKeys :many
-- Returns the keys of waiting runs, without their number, and the due instant of the first run of each key, by a loose
-- scan of the index.
WITH RECURSIVE k AS (
    (SELECT group_name, handler, pin, apart, due_at FROM runs_waiting ORDER BY group_name, handler, pin, apart, due_at LIMIT 1)
    UNION ALL
    SELECT n.group_name, n.handler, n.pin, n.apart, n.due_at FROM k, LATERAL (
        SELECT w.group_name, w.handler, w.pin, w.apart, w.due_at FROM runs_waiting w
         WHERE (w.group_name, w.handler, w.pin, w.apart) > (k.group_name, k.handler, k.pin, k.apart)
         ORDER BY w.group_name, w.handler, w.pin, w.apart, w.due_at LIMIT 1) n
)
SELECT group_name::text, handler::text, pin::text, apart::bigint AS apart, due_at::timestamptz AS due_at FROM k LIMIT 10000;

-- name: ClaimWaiting :many
SELECT run_id FROM runs_waiting
 WHERE group_name = @group_name AND handler = @handler AND pin = @pin AND apart = @apart
 ORDER BY due_at, run_id LIMIT @batch FOR UPDATE SKIP LOCKED;

-- name: LiveRuns :many
SELECT * FROM runs_live WHERE id = ANY(@ids::uuid[]);

-- name: BindWaiting :many
-- The note stays: it says why the run waited.
UPDATE runs_live r
   SET instance = w.instance, boot_id = w.boot, bind = r.bind + 1, bound_at = clock_timestamp(),
       dispatched_at = clock_timestamp(), route = w.route, route_note = NULLIF(w.route_note, ''), waiting = NULL,
       waited_ms = GREATEST((extract(epoch FROM clock_timestamp() - r.due_at) * 1000)::bigint, 0), give_up_at = NULLIF(w.give_up, 'epoch')
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt,
               unnest(@instances::text[]) AS instance, unnest(@boots::text[]) AS boot,
               unnest(@routes::text[]) AS route, unnest(@route_notes::text[]) AS route_note,
               unnest(@give_ups::timestamptz[]) AS give_up) w
 WHERE r.id = w.id
   AND (r.attempt = w.attempt AND r.state = 'queued' AND r.instance IS NULL AND r.kill_requested_at IS NULL) IS TRUE
RETURNING r.*;

-- name: DeleteWaiting :exec
DELETE FROM runs_waiting WHERE run_id = ANY(@ids::uuid[]);

-- name: Unbind :many
-- Takes attempts from instances that certainly will not start them. Each change applies only to the given offer round.
UPDATE runs_live r
   SET instance = NULL, boot_id = NULL, bound_at = NULL, give_up_at = NULL, waiting = w.waiting, waiting_note = NULLIF(w.waiting_note, ''),
       avoid = COALESCE(NULLIF(w.avoid, ''), r.avoid)
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@binds::int[]) AS bind,
               unnest(@waitings::text[]) AS waiting, unnest(@waiting_notes::text[]) AS waiting_note,
               unnest(@avoids::text[]) AS avoid) w
 WHERE r.id = w.id
   AND (r.attempt = w.attempt AND r.bind = w.bind AND r.state = 'queued' AND r.instance IS NOT NULL) IS TRUE
RETURNING r.*;

-- name: RaiseBinds :many
-- Offers the same attempts to the same boots again.
UPDATE runs_live r SET bind = r.bind + 1, bound_at = clock_timestamp()
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@binds::int[]) AS bind) w
 WHERE r.id = w.id
   AND (r.attempt = w.attempt AND r.bind = w.bind AND r.state = 'queued' AND r.instance IS NOT NULL) IS TRUE
RETURNING r.*;

-- name: MarkRunning :many
-- The ids are sorted.
UPDATE runs_live r
   SET state = 'running', started_at = w.started_at, waiting = NULL,
       lateness_ms = COALESCE(r.lateness_ms, (extract(epoch FROM w.started_at - r.due_at) * 1000)::bigint)
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt,
               unnest(@instances::text[]) AS instance, unnest(@boots::text[]) AS boot, unnest(@binds::int[]) AS bind,
               unnest(@started_ats::timestamptz[]) AS started_at) w
 WHERE r.id = w.id
   AND (r.attempt = w.attempt AND r.instance = w.instance AND r.boot_id = w.boot AND r.bind = w.bind AND r.state = 'queued') IS TRUE
RETURNING r.*;

-- name: ExpandFirst :many
-- Turns a broadcast into its shard 0.
UPDATE runs_live r
   SET state = 'queued', admitted = true, replanned = true, shard_index = 0, shard_total = @total, broadcast_id = r.id,
       pin = NULLIF(@pin::text, ''), route = @route, route_note = NULLIF(@route_note::text, ''), waiting = NULLIF(@waiting::text, ''),
       waiting_note = NULLIF(@waiting_note::text, ''),
       instance = NULLIF(@instance::text, ''), boot_id = NULLIF(@boot::text, ''),
       bind = r.bind + (@instance::text <> '')::int,
       bound_at = CASE WHEN @instance::text <> '' THEN clock_timestamp() END,
       dispatched_at = CASE WHEN @instance::text <> '' THEN clock_timestamp() END,
       give_up_at = CASE WHEN @instance::text <> '' THEN NULLIF(@give_up::timestamptz, 'epoch') END
 WHERE r.id = @id AND r.due_at = @due_at AND r.job_version = @version AND r.attempt = @attempt AND NOT r.held AND r.kill_requested_at IS NULL
   AND r.broadcast_id IS NULL
   AND (r.state = 'pending' OR (r.state = 'queued' AND r.instance IS NULL))
   AND (r.cause <> 'schedule' OR r.admitted OR r.due_at >= statement_timestamp() - @tolerance::interval)
RETURNING r.*;

-- name: InsertShards :many
INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, admitted, bind, fire_time, due_at, created_at,
       rung_at, bound_at, dispatched_at, give_up_at, instance, boot_id, pin, waiting, waiting_note, route, route_note, param,
       shard_index, shard_total, broadcast_id, parent_run_id, event_id, trace)
SELECT w.id, f.job_id, f.job_version, f.group_name, f.cause, 'queued', true, (w.instance <> '')::int, f.fire_time,
       f.due_at, f.created_at, f.rung_at, CASE WHEN w.instance <> '' THEN clock_timestamp() END,
       CASE WHEN w.instance <> '' THEN clock_timestamp() END, CASE WHEN w.instance <> '' THEN NULLIF(@give_up::timestamptz, 'epoch') END,
       NULLIF(w.instance, ''), NULLIF(w.boot, ''), NULLIF(w.pin, ''), NULLIF(w.waiting, ''), NULLIF(w.waiting_note, ''), w.route,
       NULLIF(w.route_note, ''), f.param,
       w.shard, f.shard_total, f.id, f.parent_run_id, f.event_id, f.trace
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@shards::int[]) AS shard, unnest(@instances::text[]) AS instance,
               unnest(@boots::text[]) AS boot, unnest(@pins::text[]) AS pin, unnest(@routes::text[]) AS route,
               unnest(@route_notes::text[]) AS route_note, unnest(@waitings::text[]) AS waiting, unnest(@waiting_notes::text[]) AS waiting_note) w
  JOIN runs_live f ON f.id = @first_id
RETURNING *;

-- name: InsertBroadcast :exec
INSERT INTO broadcasts (id, job_id, total, remaining) VALUES (@id, @job_id, @total, @total);

-- name: CountRoutes :many
-- Raises the shared counters of round_robin jobs by the number of runs about to be routed.
INSERT INTO route_state AS s (job_id, counter)
SELECT w.job_id, w.n FROM (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@ns::bigint[]) AS n) w ORDER BY w.job_id
    ON CONFLICT (job_id) DO UPDATE SET counter = s.counter + excluded.counter
RETURNING s.job_id, s.counter;

-- name: ParentOutputs :many
-- Returns the parents' outputs that the handlers of child runs may read. For a broadcast, it is a JSON array by shard
-- index.
SELECT p.id,
       (CASE WHEN p.broadcast_id IS NULL THEN p.output
             ELSE (SELECT json_agg(s.output ORDER BY s.shard_index)::text FROM runs_history s
                    WHERE s.broadcast_id = p.broadcast_id) END)::text AS output
  FROM runs_history p WHERE p.id = ANY(@ids::uuid[]);

-- name: TakeTurns :many
-- Reads and raises the numbers of least_frequently_used and least_recently_used jobs, for runs that are about to be
-- routed. The known instances and those with free slots are passed as names separated by spaces. The rows are locked by
-- job.
WITH w AS (
    SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@routes::text[]) AS route, unnest(@counts::boolean[]) AS counts,
           unnest(@ns::int[]) AS n, string_to_array(unnest(@knowns::text[]), ' ') AS known,
           string_to_array(unnest(@opens::text[]), ' ') AS open, (statement_timestamp() AT TIME ZONE 'UTC')::date AS day
), l AS MATERIALIZED (
    SELECT u.job_id FROM route_uses u WHERE u.job_id = ANY(@job_ids::bigint[]) ORDER BY u.job_id FOR UPDATE
)
UPDATE route_uses u
   SET route = w.route, day = w.day,
       found = uses_found(CASE WHEN u.route = w.route AND (NOT w.counts OR u.day = w.day) THEN u.numbers ELSE '{}' END, w.known, w.counts),
       numbers = uses_taken(uses_found(CASE WHEN u.route = w.route AND (NOT w.counts OR u.day = w.day) THEN u.numbers ELSE '{}' END, w.known, w.counts),
                            w.open, w.n, w.counts)
  FROM l JOIN w ON w.job_id = l.job_id
 WHERE u.job_id = l.job_id
RETURNING u.job_id, u.found;

-- name: EnsureUses :exec
INSERT INTO route_uses (job_id) SELECT DISTINCT j FROM unnest(@job_ids::bigint[]) j ORDER BY j ON CONFLICT DO NOTHING;

-- name: SayWhy :exec
UPDATE runs_live r SET waiting = w.waiting, waiting_note = NULLIF(w.waiting_note, '')
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@waitings::text[]) AS waiting, unnest(@waiting_notes::text[]) AS waiting_note) w
 WHERE r.id = w.id AND r.state = 'queued' AND r.instance IS NULL AND r.waiting IS DISTINCT FROM w.waiting;

-- name: OwnerRuns :many
-- Returns the live runs of the owners of slots, locked by id. For the slot of an instance, it returns only the runs on it.
SELECT r.* FROM runs_live r
  JOIN (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance, unnest(@owners::uuid[]) AS owner) w
    ON r.job_id = w.job_id
 WHERE (COALESCE(r.broadcast_id, r.id) = w.owner AND (w.instance = '' OR r.instance = w.instance)) IS TRUE
 ORDER BY r.id FOR UPDATE OF r;

-- name: HeldAt :many
SELECT r.* FROM runs_live r
  JOIN (SELECT unnest(@job_ids::bigint[]) AS job_id, unnest(@instances::text[]) AS instance) w
    ON r.job_id = w.job_id AND r.held AND (r.held_on = w.instance) IS TRUE
 ORDER BY r.id;

-- name: LockCovered :exec
-- Locks the waiting entries of the runs that own the slots of jobs. A run that covers such an owner ends it under this
-- lock, which comes before the slot's lock.
SELECT w.run_id FROM runs_waiting w
 WHERE w.run_id = ANY(ARRAY(
    SELECT r.id FROM block_slots s JOIN runs_live r ON r.job_id = s.job_id
     WHERE s.job_id = ANY(@job_ids::bigint[])
       AND (s.instance = '' AND COALESCE(r.broadcast_id, r.id) = s.owner AND r.state = 'queued' AND r.instance IS NULL) IS TRUE))
 ORDER BY w.run_id FOR UPDATE OF w;
