-- name: Accept :many
-- Returns no row if the address is not the caller's, and otherwise a row for each new send, or one without a log id. It fails if another transaction adds a send of one of
-- the attempts meanwhile: ON CONFLICT would make each row a fifth more expensive.
WITH held AS (
    SELECT a.group_name, a.instance, a.boot_id FROM gateway_addresses a
     WHERE a.group_name = @group_name AND a.instance = @instance AND a.owner = @owner AND a.epoch = @epoch AND a.lease_until > clock_timestamp()
       FOR SHARE
), added AS (
    INSERT INTO gateway_sends (group_name, instance, boot_id, run_id, attempt, bind, wire_id, handler)
    SELECT h.group_name, h.instance, h.boot_id, o.run_id, o.attempt, o.bind, o.wire_id, o.handler
      FROM held h
     CROSS JOIN (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt, unnest(@binds::int[]) AS bind,
                        unnest(@wire_ids::bigint[]) AS wire_id, unnest(@handlers::text[]) AS handler) o
     WHERE NOT EXISTS (SELECT FROM gateway_sends s WHERE s.run_id = o.run_id AND s.attempt = o.attempt AND (NOT s.unstarted OR s.bind >= o.bind OR s.boot_id = h.boot_id AND s.forget_at IS NULL))
    RETURNING run_id, attempt, log_id
)
SELECT COALESCE(d.run_id, '00000000-0000-0000-0000-000000000000')::uuid AS run_id, COALESCE(d.attempt, 0)::int AS attempt, COALESCE(d.log_id, 0)::bigint AS log_id
  FROM held h LEFT JOIN added d ON true;

-- name: Known :many
-- Returns all sends of attempts, by log id.
SELECT s.* FROM gateway_sends s
  JOIN (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt) w ON s.run_id = w.run_id AND s.attempt = w.attempt
 ORDER BY s.log_id;

-- name: RaiseBinds :exec
UPDATE gateway_sends s SET bind = w.bind
  FROM (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt, unnest(@binds::int[]) AS bind) w
 WHERE s.run_id = w.run_id AND s.attempt = w.attempt AND NOT s.unstarted AND s.bind < w.bind;

-- name: Send :many
-- Returns no row of an address that is not the caller's, and otherwise a row for each of its sends that may be sent now, or one without a log id. Addresses are locked in
-- order, like those of Renew.
WITH held AS (
    SELECT a.group_name, a.instance, a.boot_id, a.lease_until
      FROM (SELECT unnest(@group_names::text[]) AS group_name, unnest(@instances::text[]) AS instance, unnest(@epochs::bigint[]) AS epoch) w
      JOIN gateway_addresses a ON a.group_name = w.group_name AND a.instance = w.instance AND a.epoch = w.epoch
     WHERE a.owner = @owner AND a.lease_until > clock_timestamp()
     ORDER BY a.group_name, a.instance
       FOR SHARE OF a
), moved AS (
    UPDATE gateway_sends s SET state = 'sending', sent_at = date_trunc('milliseconds', clock_timestamp())
      FROM held h
     WHERE s.log_id = ANY (@log_ids::bigint[]) AND s.group_name = h.group_name AND s.instance = h.instance AND s.boot_id = h.boot_id AND s.state = 'accepted'
    RETURNING s.log_id, s.group_name, s.instance, s.sent_at
)
SELECT h.group_name, h.instance, COALESCE(m.log_id, 0)::bigint AS log_id, COALESCE(m.sent_at, 'epoch')::timestamptz AS sent_at,
       EXTRACT(EPOCH FROM h.lease_until - clock_timestamp())::float8 AS lease_seconds
  FROM held h LEFT JOIN moved m ON m.group_name = h.group_name AND m.instance = h.instance;

-- name: Answer :many
-- Records what is known of calls. A send that has ended in the meantime stays as it is.
WITH locked AS (
    SELECT s.log_id FROM gateway_sends s WHERE s.log_id = ANY (@log_ids::bigint[]) ORDER BY s.log_id FOR UPDATE
)
UPDATE gateway_sends s
   SET state = w.state, unstarted = w.state = 'unstarted', message = w.message, outcome = CASE w.state WHEN 'unstarted' THEN 'unstarted' ELSE '' END,
       ended_at = CASE w.state WHEN 'unstarted' THEN clock_timestamp() END
  FROM (SELECT unnest(@log_ids::bigint[]) AS log_id, unnest(@states::text[]) AS state, unnest(@messages::text[]) AS message) w, locked
 WHERE s.log_id = w.log_id AND locked.log_id = s.log_id AND (s.state = 'sending' OR s.state = 'unknown' AND w.state <> 'unknown')
RETURNING s.log_id;

-- name: Withdraw :many
-- Ends sends that were not sent as unstarted.
UPDATE gateway_sends s SET state = 'unstarted', unstarted = true, outcome = 'unstarted', reason = s.kill_reason, ended_at = clock_timestamp()
 WHERE s.log_id = ANY (@log_ids::bigint[]) AND s.state = 'accepted'
RETURNING s.log_id;

-- name: RequestKill :exec
-- The reason of the first kill stays.
UPDATE gateway_sends s SET kill_reason = @reason WHERE s.log_id = ANY (@log_ids::bigint[]) AND s.ended_at IS NULL AND s.kill_reason = '';

-- name: FinishSent :many
-- Finishes sends that were sent and have not ended. No two ends are of one send. @killed means that the executor says that a kill ended the run: if there was a kill, its
-- reason counts. The log ids are sorted, so that two batches with the same sends lock them in the same order.
UPDATE gateway_sends s
   SET state = CASE WHEN w.outcome = 'unstarted' THEN w.outcome ELSE 'ended' END, unstarted = w.outcome = 'unstarted', ended_at = clock_timestamp(),
       outcome = CASE WHEN w.killed AND s.kill_reason IN ('killed', 'covered') THEN 'cancelled' ELSE w.outcome END,
       reason = CASE WHEN w.killed AND s.kill_reason <> '' THEN s.kill_reason ELSE w.reason END,
       message = w.message, output = w.output, permanent = w.permanent
  FROM (SELECT unnest(@log_ids::bigint[]) AS log_id, unnest(@outcomes::text[]) AS outcome, unnest(@reasons::text[]) AS reason,
               unnest(@messages::text[]) AS message, unnest(@outputs::text[]) AS output, unnest(@killed::boolean[]) AS killed, unnest(@permanents::boolean[]) AS permanent) w
 WHERE s.log_id = w.log_id AND s.group_name = ANY (@groups::text[]) AND s.state IN ('sending', 'taken', 'unknown')
RETURNING s.log_id;

-- name: Finish :many
-- Of several ends of a send, the first one counts. @killed means that the executor says that a kill ended the run: if there was a kill, its reason
-- counts. previous_state is the state before, or '' if the groups have no such send.
WITH given AS (
    SELECT DISTINCT ON (g.log_id) g.*
      FROM (SELECT generate_series(1, @n::int) AS place, unnest(@log_ids::bigint[]) AS log_id, unnest(@outcomes::text[]) AS outcome, unnest(@reasons::text[]) AS reason,
                   unnest(@messages::text[]) AS message, unnest(@outputs::text[]) AS output, unnest(@killed::boolean[]) AS killed, unnest(@permanents::boolean[]) AS permanent) g
     ORDER BY g.log_id, g.place
), locked AS (
    SELECT s.log_id, s.state FROM gateway_sends s WHERE s.log_id = ANY (@log_ids::bigint[]) AND s.group_name = ANY (@groups::text[]) ORDER BY s.log_id FOR UPDATE
), done AS (
    UPDATE gateway_sends s
       SET state = CASE WHEN w.outcome IN ('unstarted', 'lost') THEN w.outcome ELSE 'ended' END, unstarted = w.outcome = 'unstarted', ended_at = clock_timestamp(), forget_at = NULL,
           outcome = CASE WHEN w.killed AND s.kill_reason IN ('killed', 'covered') THEN 'cancelled' WHEN w.outcome = 'lost' THEN 'failed' ELSE w.outcome END,
           reason = CASE WHEN w.killed AND s.kill_reason <> '' THEN s.kill_reason ELSE w.reason END,
           message = w.message, output = w.output, permanent = w.permanent
      FROM given w JOIN locked l ON l.log_id = w.log_id
     WHERE s.log_id = w.log_id AND l.state = ANY (@from_states::text[])
    RETURNING s.log_id
)
SELECT w.log_id::bigint AS log_id, COALESCE(l.state, '')::text AS previous_state, (d.log_id IS NOT NULL)::boolean AS finished
  FROM given w LEFT JOIN locked l ON l.log_id = w.log_id LEFT JOIN done d ON d.log_id = w.log_id
 ORDER BY w.place;

-- name: Outstanding :many
-- Returns the sends of an address whose results are not settled, by log id.
SELECT s.* FROM gateway_sends s
 WHERE s.group_name = @group_name AND s.instance = @instance AND s.boot_id = @boot_id AND s.forget_at IS NULL AND s.log_id > @after
 ORDER BY s.log_id LIMIT @max_rows;

-- name: Unsettled :many
-- Returns the sends of addresses that have results which are not settled, by log id.
SELECT s.* FROM gateway_sends s
  JOIN (SELECT unnest(@group_names::text[]) AS group_name, unnest(@instances::text[]) AS instance) w ON s.group_name = w.group_name AND s.instance = w.instance
 WHERE s.forget_at IS NULL AND s.ended_at IS NOT NULL
 ORDER BY s.log_id LIMIT @max_rows;

-- name: Retried :many
-- Returns those of the runs whose jobs allow another attempt after one of which it is unknown whether it still runs.
SELECT r.id FROM runs_live r JOIN jobs j ON j.id = r.job_id
 WHERE r.id = ANY (@run_ids::uuid[]) AND (j.spec->>'retry_unknown')::boolean IS TRUE;

-- name: Script :one
SELECT language, code, created_at FROM scripts WHERE job_id = @job_id AND version = @version;

-- name: Results :many
SELECT s.* FROM gateway_sends s WHERE s.log_id = ANY (@log_ids::bigint[]) AND s.ended_at IS NOT NULL ORDER BY s.log_id;

-- name: Settle :many
-- The send of a lost attempt stays longer, because its callback may still come.
UPDATE gateway_sends s SET forget_at = clock_timestamp() + make_interval(secs => CASE s.state WHEN 'lost' THEN @lost_kept_seconds::float8 ELSE @kept_seconds::float8 END)
  FROM (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt, unnest(@boot_ids::text[]) AS boot_id) w
 WHERE s.run_id = w.run_id AND s.attempt = w.attempt AND (w.boot_id = '' OR s.boot_id = w.boot_id) AND s.ended_at IS NOT NULL AND s.forget_at IS NULL
RETURNING s.log_id;

-- name: Settled :many
-- Returns the settled sends of attempts.
SELECT s.log_id
  FROM (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@attempts::int[]) AS attempt, unnest(@boot_ids::text[]) AS boot_id) w
  JOIN gateway_sends s ON s.run_id = w.run_id AND s.attempt = w.attempt AND (w.boot_id = '' OR s.boot_id = w.boot_id)
 WHERE s.forget_at IS NOT NULL;

-- name: Sweep :one
-- Looks at sends in the order of their log ids, which is almost that of their acceptance: no index has the instants at which they may be deleted. next is 0 if all later sends
-- are too young. Sends of an address that was deleted with its group can never be settled.
WITH looked AS MATERIALIZED (
    SELECT s.log_id, s.accepted_at,
           s.forget_at < clock_timestamp()
           OR s.forget_at IS NULL
              AND NOT EXISTS (SELECT FROM gateway_addresses a WHERE a.group_name = s.group_name AND a.instance = s.instance AND a.boot_id = s.boot_id) AS over
      FROM gateway_sends s WHERE s.log_id > @after ORDER BY s.log_id LIMIT @max_rows
), gone AS (
    DELETE FROM gateway_sends d WHERE d.log_id = ANY (ARRAY(SELECT l.log_id FROM looked l WHERE l.over)) RETURNING d.log_id
)
SELECT (CASE WHEN count(*) = @max_rows AND max(l.accepted_at) < clock_timestamp() - make_interval(secs => @kept_seconds::float8) THEN max(l.log_id) ELSE 0 END)::bigint AS next,
       (SELECT count(*) FROM gone)::bigint AS deleted
  FROM looked l;
