-- name: JobKeys :many
-- Walks all jobs by id, starting after the given id, and returns for each whether it matches.
SELECT j.id,
       ((sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('enabled')::boolean IS NULL OR j.enabled = sqlc.narg('enabled'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
  FROM jobs j
 WHERE j.id > @after
 ORDER BY j.id LIMIT @max_rows;

-- name: JobKeysOfGroups :many
-- Walks the jobs of some groups. Each group is walked along its index, so that jobs of other groups cost nothing.
SELECT r.id, r.fits
  FROM unnest(@groups::text[]) AS g (name)
 CROSS JOIN LATERAL (
       SELECT j.id,
       ((sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('enabled')::boolean IS NULL OR j.enabled = sqlc.narg('enabled'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
         FROM jobs j
        WHERE j.group_name = g.name AND j.id > @after
        ORDER BY j.id LIMIT @max_rows) r
 ORDER BY r.id LIMIT @max_rows;

-- name: JobKeysOfGroupsByState :many
-- Walks the enabled or the disabled jobs of some groups. State and id are compared and ordered as a row, so that the
-- planner uses no other index: if few jobs are disabled, a walk by id is expensive although the planner estimates it as
-- cheap. The group is not part of the row, because only the first column of a row comparison can end a scan early.
SELECT r.id, r.fits
  FROM unnest(@groups::text[]) AS g (name)
 CROSS JOIN LATERAL (
       SELECT j.id,
       ((sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
         FROM jobs j
        WHERE j.group_name = g.name AND (j.enabled, j.id) > (@enabled::boolean, @after::bigint) AND j.enabled <= @enabled
        ORDER BY j.enabled, j.id LIMIT @max_rows) r
 ORDER BY r.id LIMIT @max_rows;

-- name: JobKeysDisabled :many
-- Walks all disabled jobs.
SELECT j.id,
       ((sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
  FROM jobs j
 WHERE NOT j.enabled AND j.id > @after
 ORDER BY j.id LIMIT @max_rows;

-- name: JobKeysOfTag :many
-- Walks the jobs with a tag.
SELECT j.id,
       ((sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('enabled')::boolean IS NULL OR j.enabled = sqlc.narg('enabled'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
  FROM (SELECT t.job_id FROM job_tags t WHERE t.tag = @tag AND t.job_id > @after ORDER BY t.job_id LIMIT @max_rows) k
  JOIN jobs j ON j.id = k.job_id
 ORDER BY j.id;

-- name: JobKeysOfTagInGroups :many
-- Walks the jobs of some groups with a tag.
SELECT j.id,
       ((sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('enabled')::boolean IS NULL OR j.enabled = sqlc.narg('enabled'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
  FROM (SELECT r.job_id
          FROM unnest(@groups::text[]) AS g (name)
         CROSS JOIN LATERAL (
               SELECT t.job_id FROM job_tags t
                WHERE t.tag = @tag AND t.group_name = g.name AND t.job_id > @after
                ORDER BY t.job_id LIMIT @max_rows) r
         ORDER BY r.job_id LIMIT @max_rows) k
  JOIN jobs j ON j.id = k.job_id
 ORDER BY j.id;

-- name: JobKeysOfChild :many
-- Walks the jobs that have a job as a child, in all groups or some.
SELECT j.id,
       ((sqlc.narg('groups')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('groups')::text[]))
        AND (sqlc.narg('tag')::text IS NULL OR j.tags @> ARRAY[sqlc.narg('tag')::text])
        AND (sqlc.narg('calendar')::text IS NULL OR j.calendar IS NOT DISTINCT FROM sqlc.narg('calendar'))
        AND (sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('enabled')::boolean IS NULL OR j.enabled = sqlc.narg('enabled'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
  FROM job_children c JOIN jobs j ON j.id = c.parent_id
 WHERE c.child_id = @child_id AND c.parent_id > @after
 ORDER BY c.parent_id LIMIT @max_rows;

-- name: JobKeysOfCalendar :many
-- Walks the jobs whose schedules name a calendar, in all groups or some.
SELECT j.id,
       ((sqlc.narg('groups')::text[] IS NULL OR j.group_name = ANY (sqlc.narg('groups')::text[]))
        AND (sqlc.narg('tag')::text IS NULL OR j.tags @> ARRAY[sqlc.narg('tag')::text])
        AND (sqlc.narg('kind')::text IS NULL OR j.kind = sqlc.narg('kind'))
        AND (sqlc.narg('enabled')::boolean IS NULL OR j.enabled = sqlc.narg('enabled'))
        AND (sqlc.narg('needle')::text IS NULL OR strpos(lower(j.name), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'description', '')), sqlc.narg('needle')) > 0
             OR strpos(lower(coalesce(j.spec->>'handler', '')), sqlc.narg('needle')) > 0))::boolean AS fits
  FROM jobs j
 WHERE j.calendar = @calendar::text AND j.id > @after
 ORDER BY j.id LIMIT @max_rows;

-- name: JobsByID :many
-- Ordered by id. The epoch stands for a missing fire time. Fire times that are planned ahead are no longer in job_due,
-- but have not fired yet.
SELECT j.id, j.group_name, j.name, j.enabled, j.spec, j.version, j.created_at, j.updated_at,
       coalesce(greatest(
           (SELECT max(l.fire_time) FROM runs_live l
             WHERE l.job_id = j.id AND l.state <> 'pending' AND l.cause IN ('schedule', 'misfire')),
           (SELECT h.fire_time FROM runs_history h WHERE h.job_id = j.id AND h.cause <> 'backfill' ORDER BY h.id DESC LIMIT 1)
       ), 'epoch')::timestamptz AS last_fire_time,
       coalesce(
           (SELECT min(l.fire_time) FROM runs_live l
             WHERE l.job_id = j.id AND l.state = 'pending' AND NOT l.held AND l.cause = 'schedule' AND j.enabled),
           CASE WHEN d.next_due_at IS NOT NULL THEN d.next_fire_time END, 'epoch')::timestamptz AS next_fire_time,
       COALESCE(p.from_at, 'epoch')::timestamptz AS paused_at, COALESCE(p.to_at, 'epoch')::timestamptz AS paused_until,
       COALESCE(p.reason, '')::text AS pause_reason, COALESCE(p.paused_by, '')::text AS paused_by,
       COALESCE(jp.from_at, 'epoch')::timestamptz AS job_paused_at, COALESCE(jp.to_at, 'epoch')::timestamptz AS job_paused_until,
       COALESCE(jp.reason, '')::text AS job_pause_reason, COALESCE(jp.paused_by, '')::text AS job_paused_by
  FROM jobs j LEFT JOIN job_due d ON d.job_id = j.id
  LEFT JOIN LATERAL (SELECT * FROM group_pauses o WHERE o.group_name = j.group_name AND (o.to_at IS NULL OR o.to_at > now())
                      ORDER BY o.from_at LIMIT 1) p ON true
  LEFT JOIN LATERAL (SELECT * FROM job_pauses o WHERE o.job_id = j.id AND (o.to_at IS NULL OR o.to_at > now())
                      ORDER BY o.from_at LIMIT 1) jp ON true
 WHERE j.id = ANY (@ids::bigint[])
 ORDER BY j.id;

-- name: MissedOfJob :many
-- Newest first, before the given entry (0: starting with the newest).
SELECT * FROM missed
 WHERE job_id = @job_id AND (@before_id::bigint = 0 OR id < @before_id)
 ORDER BY id DESC LIMIT @max_rows;

-- name: LastRunsOfJobs :many
-- Returns the newest runs of each job, except those that are planned and not yet due: a fixed number for each job, and
-- more for broadcasts.
SELECT r.id, r.job_id, r.group_name, r.cause, r.state, r.reason, r.fire_time, r.started_at, r.finished_at,
       r.shard_index, r.broadcast_id
  FROM unnest(@job_ids::bigint[]) AS j (id)
 CROSS JOIN LATERAL (
       (SELECT l.id, l.job_id, l.group_name, l.cause, l.state, l.reason, l.fire_time, l.started_at, NULL::timestamptz AS finished_at,
               l.shard_index, l.broadcast_id
          FROM runs_live l
         WHERE l.job_id = j.id AND (l.state <> 'pending' OR l.held OR l.due_at <= now())
         ORDER BY l.id DESC LIMIT CASE WHEN j.id = ANY (@broadcast::bigint[]) THEN @shards::integer ELSE @runs::integer END)
       UNION ALL
       (SELECT h.id, h.job_id, h.group_name, h.cause, h.state, h.reason, h.fire_time, h.started_at, h.finished_at,
               h.shard_index, h.broadcast_id
          FROM runs_history h
         WHERE h.job_id = j.id
         ORDER BY h.id DESC LIMIT CASE WHEN j.id = ANY (@broadcast::bigint[]) THEN @shards::integer ELSE @runs::integer END)
       ) r;

-- name: LastMissedOfJobs :many
SELECT m.job_id, m.last_fire_time, m.count, m.why, m.why_note
  FROM unnest(@job_ids::bigint[]) AS j (id)
 CROSS JOIN LATERAL (SELECT o.* FROM missed o WHERE o.job_id = j.id ORDER BY o.id DESC LIMIT @entries::integer) m;

-- name: LatestMissed :many
-- Returns the newest entries of the missed ledger made in [from_at, to_at), with the job's name at that time.
SELECT m.job_id, m.group_name, m.first_fire_time, m.last_fire_time, m.count, m.policy, m.why, m.why_note, m.at,
       coalesce((SELECT v.spec->>'name' FROM job_versions v WHERE v.job_id = m.job_id AND v.valid_from <= m.at
                  ORDER BY v.version DESC LIMIT 1), '')::text AS job_name
  FROM (SELECT * FROM missed o WHERE o.at >= @from_at AND o.at < @to_at ORDER BY o.at DESC, o.id DESC LIMIT @max_rows) m
 ORDER BY m.at DESC, m.id DESC;

-- name: LatestMissedOfGroups :many
-- Walks each group along its index, from to_at backwards. Group and instant are compared and ordered as a row, so that
-- the planner uses no other index: if a group has missed little, a walk over the entries of all groups is expensive
-- although the planner estimates it as cheap. Entries that are too old are filtered afterwards, because they would not
-- end the scan.
SELECT m.job_id, m.group_name, m.first_fire_time, m.last_fire_time, m.count, m.policy, m.why, m.why_note, m.at,
       coalesce((SELECT v.spec->>'name' FROM job_versions v WHERE v.job_id = m.job_id AND v.valid_from <= m.at
                  ORDER BY v.version DESC LIMIT 1), '')::text AS job_name
  FROM (SELECT n.* FROM unnest(@groups::text[]) AS g (name)
         CROSS JOIN LATERAL (
               SELECT * FROM missed o
                WHERE o.group_name >= g.name AND (o.group_name, o.at) < (g.name, @to_at::timestamptz)
                ORDER BY o.group_name DESC, o.at DESC, o.id DESC LIMIT @max_rows) n
         WHERE n.at >= @from_at::timestamptz
         ORDER BY n.at DESC, n.id DESC LIMIT @max_rows) m
 ORDER BY m.at DESC, m.id DESC;
