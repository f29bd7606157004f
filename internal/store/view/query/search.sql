-- name: GroupNames :many
SELECT g.name FROM groups g
 WHERE sqlc.narg('only')::text[] IS NULL OR g.name = ANY (sqlc.narg('only')::text[])
 ORDER BY g.name LIMIT @max_rows;

-- name: CountWords :many
-- Counts the names with a word between two bounds, up to a number, for each pair of bounds.
SELECT u.number::integer AS number, c.names
  FROM (SELECT unnest(@los::text[]) AS lo, unnest(@his::text[]) AS hi, generate_series(0, cardinality(@los::text[]) - 1) AS number) u
 CROSS JOIN LATERAL (SELECT count(*) AS names FROM (SELECT FROM job_words w WHERE w.word >= u.lo AND w.word < u.hi LIMIT @most) x) c
 ORDER BY u.number;

-- name: JobsByWord :many
-- Walks the names with a word below a bound, by word and job, after a place. The place is the only lower bound, because an index scan with two of
-- them could begin at the lesser one. The index has the names, so that jobs are not read.
SELECT w.word, w.job_id AS id, w.group_name, w.name FROM job_words w
 WHERE (w.word, w.job_id) > (@after_word::text, @after_job::bigint) AND w.word < @hi
 ORDER BY w.word, w.job_id LIMIT @max_rows;

-- name: JobsByWordInGroups :many
-- The same in some groups. Each group is walked along its index, so that jobs of other groups cost nothing.
SELECT o.word, o.job_id AS id, o.group_name, o.name
  FROM unnest(@groups::text[]) AS g (name)
 CROSS JOIN LATERAL (
       SELECT w.word, w.job_id, w.group_name, w.name FROM job_words w
        WHERE w.group_name = g.name AND (w.word, w.job_id) > (@after_word::text, @after_job::bigint) AND w.word < @hi
        ORDER BY w.word, w.job_id LIMIT @max_rows) o
 ORDER BY o.word, o.job_id LIMIT @max_rows;

-- name: FirstJobsOfGroup :many
SELECT j.id, j.name FROM jobs j WHERE j.group_name = @group_name ORDER BY j.name LIMIT @max_rows;

-- name: Tags :many
-- Sums up the largest numbers of jobs by tag.
SELECT c.tag, sum(c.jobs)::bigint AS jobs
  FROM (SELECT t.tag, t.jobs FROM tag_counts t ORDER BY t.jobs DESC LIMIT @max_scan) c
 GROUP BY c.tag HAVING sum(c.jobs) > 0 ORDER BY 2 DESC, 1 LIMIT @max_rows;

-- name: TagsOfGroups :many
SELECT c.tag, sum(c.jobs)::bigint AS jobs
  FROM unnest(@groups::text[]) AS g (name)
 CROSS JOIN LATERAL (SELECT t.tag, t.jobs FROM tag_counts t WHERE t.group_name = g.name ORDER BY t.jobs DESC LIMIT @max_scan) c
 GROUP BY c.tag HAVING sum(c.jobs) > 0 ORDER BY 2 DESC, 1 LIMIT @max_rows;

-- name: TagsBetween :many
-- Sums up the tags between two bounds, the first ones by name if there are many.
SELECT c.tag, sum(c.jobs)::bigint AS jobs
  FROM (SELECT t.tag, t.jobs FROM tag_counts t WHERE t.tag >= @lo AND t.tag < @hi ORDER BY t.tag LIMIT @max_scan) c
 GROUP BY c.tag HAVING sum(c.jobs) > 0 ORDER BY 2 DESC, 1 LIMIT @max_rows;

-- name: TagsBetweenOfGroups :many
SELECT c.tag, sum(c.jobs)::bigint AS jobs
  FROM unnest(@groups::text[]) AS g (name)
 CROSS JOIN LATERAL (SELECT t.tag, t.jobs FROM tag_counts t WHERE t.group_name = g.name AND t.tag >= @lo AND t.tag < @hi ORDER BY t.tag LIMIT @max_scan) c
 GROUP BY c.tag HAVING sum(c.jobs) > 0 ORDER BY 2 DESC, 1 LIMIT @max_rows;
