-- name: Register :one
-- A new address belongs to the caller. Returns no row if the group is not open, or has @most addresses and this is not one of them. An executor that comes
-- back after it has left is not drained.
INSERT INTO gateway_addresses AS a (group_name, instance, url, boot_id, owner, epoch, lease_until, created_at, registered_at, source, kind, agent)
SELECT g.group_name, @instance, @url, @boot_id, @owner, 1, n.at + make_interval(secs => @lease_seconds::float8), n.at, n.at, @source, @kind, @agent
  FROM gateway_groups g CROSS JOIN (SELECT clock_timestamp() AS at) n
 WHERE g.group_name = @group_name
   AND (EXISTS (SELECT FROM gateway_addresses k WHERE k.group_name = @group_name AND k.instance = @instance)
        OR (SELECT count(*) FROM gateway_addresses c WHERE c.group_name = @group_name) < @most::int)
ON CONFLICT (group_name, instance) DO UPDATE
   SET registered_at = excluded.registered_at, registrations = a.registrations + 1, source = excluded.source, kind = excluded.kind, agent = excluded.agent, leaving_at = NULL,
       drained_at = CASE WHEN a.leaving_at IS NULL THEN a.drained_at END,
       source_changed_at = CASE WHEN a.source = excluded.source THEN a.source_changed_at ELSE excluded.registered_at END
RETURNING a.*;

-- name: Leave :execrows
UPDATE gateway_addresses SET leaving_at = clock_timestamp() WHERE group_name = @group_name AND instance = @instance AND leaving_at IS NULL;

-- name: Drain :execrows
UPDATE gateway_addresses a SET drained_at = COALESCE(a.drained_at, clock_timestamp())
 WHERE a.group_name = @group_name AND a.instance = @instance AND a.owner = @owner AND a.epoch = @epoch AND a.lease_until > clock_timestamp();

-- name: Renew :many
-- Returns the addresses that are still the caller's. They are locked in order, like those of Send.
WITH held AS (
    SELECT a.group_name, a.instance
      FROM (SELECT unnest(@group_names::text[]) AS group_name, unnest(@instances::text[]) AS instance, unnest(@epochs::bigint[]) AS epoch) w
      JOIN gateway_addresses a ON a.group_name = w.group_name AND a.instance = w.instance AND a.epoch = w.epoch
     WHERE a.owner = @owner
     ORDER BY a.group_name, a.instance
       FOR NO KEY UPDATE OF a
)
UPDATE gateway_addresses a SET lease_until = clock_timestamp() + make_interval(secs => @lease_seconds::float8)
  FROM held h
 WHERE a.group_name = h.group_name AND a.instance = h.instance
RETURNING a.*;

-- name: Release :exec
-- Addresses are locked in order, like those of Send.
WITH held AS (
    SELECT a.group_name, a.instance
      FROM (SELECT unnest(@group_names::text[]) AS group_name, unnest(@instances::text[]) AS instance, unnest(@epochs::bigint[]) AS epoch) w
      JOIN gateway_addresses a ON a.group_name = w.group_name AND a.instance = w.instance AND a.epoch = w.epoch
     WHERE a.owner = @owner
     ORDER BY a.group_name, a.instance
       FOR NO KEY UPDATE OF a
)
UPDATE gateway_addresses a SET lease_until = clock_timestamp()
  FROM held h
 WHERE a.group_name = h.group_name AND a.instance = h.instance;

-- name: TakeOver :many
UPDATE gateway_addresses a SET owner = @owner, epoch = a.epoch + 1, lease_until = clock_timestamp() + make_interval(secs => @lease_seconds::float8)
  FROM (SELECT f.group_name, f.instance FROM gateway_addresses f WHERE f.lease_until < clock_timestamp()
         ORDER BY f.lease_until LIMIT @max_rows FOR UPDATE SKIP LOCKED) free
 WHERE a.group_name = free.group_name AND a.instance = free.instance
RETURNING a.*;

-- name: EndHalfSent :exec
-- Ends the sends of addresses that were taken over. An attempt that was not sent is routed again. An attempt that was being sent may have arrived.
UPDATE gateway_sends s
   SET state = CASE s.state WHEN 'sending' THEN 'unknown' ELSE 'unstarted' END, unstarted = s.state = 'accepted',
       outcome = CASE s.state WHEN 'accepted' THEN 'unstarted' ELSE '' END, ended_at = CASE s.state WHEN 'accepted' THEN clock_timestamp() END
  FROM (SELECT unnest(@group_names::text[]) AS group_name, unnest(@instances::text[]) AS instance) w
 WHERE s.group_name = w.group_name AND s.instance = w.instance AND s.forget_at IS NULL AND s.state IN ('accepted', 'sending');

-- name: Remove :execrows
-- Changes no row while the address has results that are not settled.
DELETE FROM gateway_addresses a
 WHERE a.group_name = @group_name AND a.instance = @instance AND a.owner = @owner AND a.epoch = @epoch
   AND NOT EXISTS (SELECT FROM gateway_sends s WHERE s.group_name = a.group_name AND s.instance = a.instance AND s.boot_id = a.boot_id AND s.forget_at IS NULL);
