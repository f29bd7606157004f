-- name: Late :one
-- Counts runs that are over two seconds past due and not fired, and runs that wait for an instance; 10,000 of each at most.
SELECT (SELECT count(*) FROM (SELECT 1 FROM runs_live l WHERE NOT l.held AND l.due_at < clock_timestamp() - interval '2 seconds' AND l.state = 'pending' LIMIT 10000) x)::bigint AS unfired,
       (SELECT coalesce(min(x.due_at), 'epoch') FROM (SELECT l.due_at FROM runs_live l WHERE NOT l.held AND l.due_at < clock_timestamp() - interval '2 seconds' AND l.state = 'pending' ORDER BY l.due_at LIMIT 1) x)::timestamptz AS unfired_since,
       (SELECT count(*) FROM (SELECT 1 FROM runs_waiting LIMIT 10000) x)::bigint AS waiting,
       (SELECT coalesce(min(x.due_at), 'epoch') FROM (SELECT w.due_at FROM runs_waiting w LIMIT 10000) x)::timestamptz AS waiting_since;

-- name: Overdue :one
-- Counts runs that are over two seconds past due and not fired, among the 10,000 that came due last, and jobs that are over two seconds
-- past due and not planned, 10,000 at most. Dispatchers ask every ten seconds.
SELECT (SELECT count(*) FROM (SELECT l.state FROM runs_live l WHERE NOT l.held AND l.due_at < statement_timestamp() - interval '2 seconds'
         ORDER BY l.due_at DESC LIMIT 10000) x WHERE x.state = 'pending')::bigint AS runs,
       (SELECT count(*) FROM (SELECT 1 FROM job_due d WHERE d.next_due_at < statement_timestamp() - interval '2 seconds' LIMIT 10000) x)::bigint AS jobs;

-- name: SchedulerSilence :one
-- Returns the seconds since a scheduler gave its last sign of life; -1: none has.
SELECT coalesce(extract(epoch FROM clock_timestamp() - (SELECT max(p.seen_at) FROM scheduler_presence p)), -1)::double precision AS seconds;

-- name: Progress :one
SELECT clock_timestamp()::timestamptz AS now, current_setting('server_version')::text AS version,
       pg_database_size(current_database())::bigint AS size_bytes,
       (SELECT a.through FROM fire_audit a)::timestamptz AS audited_through,
       (SELECT m.through FROM run_stats_mark m)::timestamptz AS counted_through,
       (SELECT coalesce(max(p.seen_at), 'epoch') FROM scheduler_presence p)::timestamptz AS scheduler_seen_at;
