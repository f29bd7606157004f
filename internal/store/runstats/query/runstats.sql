-- name: Mark :one
-- Claims the roll-up for a transaction and returns from where it continues.
SELECT m.through, m.missed_through, m.health_through, clock_timestamp()::timestamptz AS now FROM run_stats_mark m FOR UPDATE SKIP LOCKED;

-- name: AddCounts :exec
-- Adds finished runs, counted by the minute of their end, to the statistics of the minute and of the hour. Bucket -1 stands for runs that did not start.
WITH r AS MATERIALIZED (
    SELECT unnest(@ats::timestamptz[]) AS at, unnest(@group_names::text[]) AS group_name, unnest(@states::text[]) AS state,
           unnest(@reasons::text[]) AS reason, unnest(@buckets::integer[]) AS bucket, unnest(@runs::bigint[]) AS runs,
           unnest(@durations_ms::bigint[]) AS duration_ms
), s AS (
    INSERT INTO run_stats AS t (span, at, group_name, state, reason, runs, duration_ms)
    SELECT p.span, date_bin(make_interval(secs => p.span), r.at, 'epoch'::timestamptz), r.group_name, r.state, r.reason, sum(r.runs), sum(r.duration_ms)
      FROM r CROSS JOIN (VALUES (60), (3600)) p (span)
     GROUP BY 1, 2, 3, 4, 5
    ON CONFLICT (span, at, group_name, state, reason)
    DO UPDATE SET runs = t.runs + excluded.runs, duration_ms = t.duration_ms + excluded.duration_ms
)
INSERT INTO run_lateness AS t (span, at, group_name, bucket, runs)
SELECT p.span, date_bin(make_interval(secs => p.span), r.at, 'epoch'::timestamptz), r.group_name, r.bucket, sum(r.runs)
  FROM r CROSS JOIN (VALUES (60), (3600)) p (span)
 WHERE r.bucket >= 0
 GROUP BY 1, 2, 3, 4
ON CONFLICT (span, at, group_name, bucket) DO UPDATE SET runs = t.runs + excluded.runs;

-- name: RollUpMissed :exec
-- Adds the entries made in the missed ledger in [lo, hi).
INSERT INTO missed_stats AS t (span, at, group_name, fires)
SELECT p.span, date_bin(make_interval(secs => p.span), m.at, 'epoch'::timestamptz), m.group_name, sum(m.count)
  FROM missed m CROSS JOIN (VALUES (60), (3600)) p (span)
 WHERE m.at >= @lo AND m.at < @hi
 GROUP BY 1, 2, 3
ON CONFLICT (span, at, group_name) DO UPDATE SET fires = t.fires + excluded.fires;

-- name: SetMark :exec
UPDATE run_stats_mark SET through = @through, missed_through = @missed_through, health_through = @health_through;

-- name: Through :one
SELECT m.through, m.missed_through, clock_timestamp()::timestamptz AS now FROM run_stats_mark m;

-- name: Stats :many
-- Whole hours in [hour_lo, hour_hi), and minutes in [lo, hour_lo) and [hour_hi, hi), grouped by steps of step_seconds.
SELECT date_bin(make_interval(secs => @step_seconds::float8), s.at, 'epoch'::timestamptz)::timestamptz AS at, s.state, s.reason,
       sum(s.runs)::bigint AS runs, sum(s.duration_ms)::bigint AS duration_ms
  FROM run_stats s
 WHERE (s.span = 3600 AND s.at >= @hour_lo AND s.at < @hour_hi
        OR s.span = 60 AND s.at >= @lo AND s.at < @hour_lo
        OR s.span = 60 AND s.at >= @hour_hi AND s.at < @hi)
   AND (sqlc.narg('only')::text[] IS NULL OR s.group_name = ANY (sqlc.narg('only')::text[]))
 GROUP BY 1, 2, 3;

-- name: Lateness :many
SELECT date_bin(make_interval(secs => @step_seconds::float8), s.at, 'epoch'::timestamptz)::timestamptz AS at, s.bucket, sum(s.runs)::bigint AS runs
  FROM run_lateness s
 WHERE (s.span = 3600 AND s.at >= @hour_lo AND s.at < @hour_hi
        OR s.span = 60 AND s.at >= @lo AND s.at < @hour_lo
        OR s.span = 60 AND s.at >= @hour_hi AND s.at < @hi)
   AND (sqlc.narg('only')::text[] IS NULL OR s.group_name = ANY (sqlc.narg('only')::text[]))
 GROUP BY 1, 2;

-- name: Tail :many
-- Returns runs settled since the mark that finished in [lo, hi), which are not in the statistics yet. The expression on
-- group_name prevents the use of an index on the group: each day's index has all of the group's runs, almost none of
-- which were settled since the mark.
SELECT date_bin(make_interval(secs => @step_seconds::float8), h.finished_at, 'epoch'::timestamptz)::timestamptz AS at, h.state, h.reason,
       coalesce(CASE WHEN h.lateness_ms >= 1 THEN 1 + floor(4 * ln(h.lateness_ms::float8) / ln(2::float8))::integer WHEN h.lateness_ms IS NOT NULL THEN 0 END, -1)::integer AS bucket,
       count(*) AS runs, coalesce(sum(greatest(extract(epoch FROM h.finished_at - h.started_at) * 1000, 0)), 0)::bigint AS duration_ms
  FROM runs_history h
 WHERE h.settled_at >= @since AND h.finished_at >= @lo AND h.finished_at < @hi
   AND (sqlc.narg('only')::text[] IS NULL OR h.group_name || '' = ANY (sqlc.narg('only')::text[]))
 GROUP BY 1, 2, 3, 4;

-- name: MissedStats :one
SELECT coalesce(sum(s.fires), 0)::bigint AS fires
  FROM missed_stats s
 WHERE (s.span = 3600 AND s.at >= @hour_lo AND s.at < @hour_hi
        OR s.span = 60 AND s.at >= @lo AND s.at < @hour_lo
        OR s.span = 60 AND s.at >= @hour_hi AND s.at < @hi)
   AND (sqlc.narg('only')::text[] IS NULL OR s.group_name = ANY (sqlc.narg('only')::text[]));

-- name: MissedTail :one
-- Sums the entries made in the ledger in [lo, hi); lo is not before the mark.
SELECT coalesce(sum(m.count), 0)::bigint AS fires FROM missed m
 WHERE m.at >= @lo AND m.at < @hi
   AND (sqlc.narg('only')::text[] IS NULL OR m.group_name = ANY (sqlc.narg('only')::text[]));

-- name: LiveRuns :many
SELECT l.state, l.held, count(*) AS runs FROM runs_live l
 WHERE (sqlc.narg('only')::text[] IS NULL OR l.group_name = ANY (sqlc.narg('only')::text[]))
   AND (l.state <> 'pending' OR l.held OR l.due_at <= now())
 GROUP BY 1, 2;

-- name: JobCounts :many
-- Returns all groups that have jobs.
SELECT c.group_name, sum(c.jobs)::bigint AS jobs, sum(c.enabled)::bigint AS enabled
  FROM job_counts c GROUP BY 1 HAVING sum(c.jobs) > 0;

-- name: SumJobCounts :exec
-- If several processes do it at once, each sums up the rows that it has deleted.
WITH old AS (
    DELETE FROM job_counts
     WHERE (SELECT count(*) > 100 + 2 * count(DISTINCT c.group_name) FROM job_counts c)
 RETURNING group_name, jobs, enabled
)
INSERT INTO job_counts (group_name, jobs, enabled)
SELECT o.group_name, sum(o.jobs), sum(o.enabled) FROM old o GROUP BY 1 HAVING sum(o.jobs) <> 0 OR sum(o.enabled) <> 0;

-- name: GroupStates :many
-- Counts the failing and the paused jobs of each group, up to a number.
SELECT g.name::text AS group_name, f.jobs AS failing, p.jobs AS paused
  FROM unnest(@groups::text[]) AS g (name)
 CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM (SELECT FROM job_failures o WHERE o.failing AND o.group_name = g.name LIMIT @most) x) f
 CROSS JOIN LATERAL (SELECT count(*) AS jobs
                       FROM (SELECT FROM job_pauses o
                              WHERE o.group_name = g.name AND o.group_name <> '' AND coalesce(o.to_at, 'infinity'::timestamptz) > now() LIMIT @most) x) p;

-- name: FoldTagCounts :one
-- Replaces changes, max_rows at most, and the earlier sums of the same tags by their sums. If several processes do it at once, each sums up the
-- rows that it has deleted. Returns the number of changes.
WITH changes AS (
    DELETE FROM tag_counts
     WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM tag_counts c WHERE NOT c.folded LIMIT @max_rows FOR UPDATE SKIP LOCKED))
 RETURNING tag, group_name, jobs
), sums AS (
    DELETE FROM tag_counts t USING (SELECT DISTINCT c.tag, c.group_name FROM changes c) k
     WHERE t.tag = k.tag AND t.group_name = k.group_name AND t.folded
 RETURNING t.tag, t.group_name, t.jobs
), added AS (
    INSERT INTO tag_counts (tag, group_name, jobs, folded)
    SELECT a.tag, a.group_name, sum(a.jobs), true FROM (SELECT * FROM changes UNION ALL SELECT * FROM sums) a
     GROUP BY 1, 2 HAVING sum(a.jobs) <> 0
)
SELECT count(*) FROM changes;

-- name: SweepStats :execrows
DELETE FROM run_stats WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM run_stats s WHERE s.span = @span AND s.at < @before LIMIT @max_rows));

-- name: SweepLateness :execrows
DELETE FROM run_lateness WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM run_lateness s WHERE s.span = @span AND s.at < @before LIMIT @max_rows));

-- name: SweepMissed :execrows
DELETE FROM missed_stats WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM missed_stats s WHERE s.span = @span AND s.at < @before LIMIT @max_rows));
