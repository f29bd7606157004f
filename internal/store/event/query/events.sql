-- name: TakeKeys :many
-- Inserts in the order of the keys, so that two transactions that take the same keys cannot deadlock.
INSERT INTO event_keys (digest, event_id, body, at)
SELECT w.digest, w.event_id, w.body, @at::timestamptz
  FROM (SELECT unnest(@digests::bytea[]) AS digest, unnest(@event_ids::uuid[]) AS event_id, unnest(@bodies::bytea[]) AS body) w
 ORDER BY w.digest
    ON CONFLICT (digest) DO NOTHING
RETURNING digest;

-- name: Keys :many
SELECT digest, event_id, body FROM event_keys WHERE digest = ANY(@digests::bytea[]);

-- name: InsertEvents :exec
INSERT INTO events (id, name, source, type, subject, key, at, received_at, via, sent_by, data_bytes, data, groups, deliveries)
SELECT w.id, w.name, w.source, w.type, w.subject, w.key, w.at, w.received_at, w.via, w.sent_by, w.data_bytes, w.data,
       ARRAY(SELECT jsonb_array_elements_text(w.groups)), w.deliveries
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@names::text[]) AS name, unnest(@sources::text[]) AS source,
               unnest(@types::text[]) AS type, unnest(@subjects::text[]) AS subject, unnest(@keys::text[]) AS key,
               unnest(@ats::timestamptz[]) AS at, unnest(@received_ats::timestamptz[]) AS received_at,
               unnest(@vias::text[]) AS via, unnest(@sent_bys::text[]) AS sent_by,
               unnest(@data_bytes::int[]) AS data_bytes, NULLIF(unnest(@datas::text[]), '') AS data,
               unnest(@groups::jsonb[]) AS groups, unnest(@deliveries::jsonb[]) AS deliveries) w;

-- name: Event :one
SELECT * FROM events WHERE id = @id;

-- name: Events :many
-- Newest first, within a range of ids. Data longer than data_max is left out, which bounds the
-- size of a page.
SELECT id, name, source, type, subject, key, at, received_at, via, sent_by, data_bytes,
       COALESCE(CASE WHEN length(data) <= @data_max::int THEN data END, '')::text AS data, groups, deliveries
  FROM events
 WHERE id < @before AND id >= @first AND (@name::text = '' OR name = @name)
   AND (@pattern::text = '' OR name ~ @pattern)
   AND (sqlc.narg('only')::text[] IS NULL OR groups && sqlc.narg('only')::text[] OR sent_by = @sent_by)
 ORDER BY id DESC LIMIT @max_rows;

-- name: DeleteOldKeys :execrows
DELETE FROM event_keys WHERE digest IN (SELECT k.digest FROM event_keys k WHERE k.at < @before LIMIT @max_rows);
