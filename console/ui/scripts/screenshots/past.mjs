// The past of the screenshots, which is written into the database.
import { execFileSync } from "node:child_process";
import { join } from "node:path";

/** past inserts some days of run statistics, and two weeks of one job's runs, into the database of a server. */
export function past(server, jobs) {
  const sql = `
INSERT INTO run_stats (span, at, group_name, state, reason, runs, duration_ms)
SELECT span, at, 'demo', state, CASE state WHEN 'failed' THEN 'handler_error' WHEN 'skipped' THEN 'discarded' ELSE '' END, n * span / 60, n * span * 15
FROM (SELECT 60 AS span, generate_series(date_trunc('minute', now()) - interval '72 hours', now() - interval '1 minute', interval '1 minute') AS at
      UNION ALL SELECT 3600, generate_series(date_trunc('hour', now()) - interval '8 days', date_trunc('hour', now()) - interval '1 hour', interval '1 hour')) s,
LATERAL (VALUES ('succeeded', (60 + 28 * sin(extract(epoch FROM at) / 13750) + 14 * random())::bigint), ('failed', (CASE WHEN random() < 0.12 THEN 4 ELSE 0 END + CASE WHEN extract(epoch FROM now() - at)::bigint BETWEEN 30000 AND 34000 THEN 19 ELSE 0 END)::bigint), ('skipped', (2 * random())::bigint)) v (state, n)
WHERE n > 0 ON CONFLICT DO NOTHING;
INSERT INTO run_lateness (span, at, group_name, bucket, runs) SELECT span, at, group_name, b, runs / (1 + b) FROM run_stats, generate_series(0, 16, 4) b WHERE state = 'succeeded' AND runs > b ON CONFLICT DO NOTHING;
SELECT make_day(d::date) FROM generate_series(now() - interval '15 days', now(), interval '1 day') d;
INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time, due_at, created_at, dispatched_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(md5(at::text), 1, 3) || '9' || substr(md5(at::text), 4, 15))::uuid, ${jobs["warehouse-report"].id}, 1, 'demo', 'schedule',
  CASE WHEN bad THEN 'failed' ELSE 'succeeded' END, CASE WHEN bad THEN 'handler_error' ELSE '' END, CASE WHEN bad THEN 'exit status 1' ELSE '' END, '', CASE WHEN bad THEN 2 ELSE 1 END, at, at, at - interval '5 seconds', at, at + interval '2 ms', at + took, 2, 2, 'demo-1', 'past', 'any: the only instance with a free slot', NULL
FROM (SELECT at, random() < 0.04 OR extract(epoch FROM now() - at)::bigint BETWEEN 30000 AND 40000 AS bad, (600 + 500 * random() + 4 * extract(hour FROM at) * extract(hour FROM at)) * interval '1 ms' AS took
      FROM generate_series(date_trunc('hour', now()) - interval '13 days 7 hours', date_trunc('hour', now()) - interval '1 hour', interval '1 hour') at WHERE NOT at BETWEEN now() - interval '101 hours' AND now() - interval '95 hours') h;
INSERT INTO missed (job_id, at, first_fire_time, last_fire_time, count, policy, why) SELECT ${jobs["warehouse-report"].id}, now() - interval '95 hours', date_trunc('hour', now()) - interval '100 hours', date_trunc('hour', now()) - interval '95 hours', 6, 'skip', 'no scheduler ran from then until then';
`;
  const psql =
    process.env.PSQL ??
    execFileSync("bash", ["-c", "command -v psql || ls /usr/lib/postgresql/*/bin/psql | tail -1"], {
      encoding: "utf8",
    }).trim();
  execFileSync(
    psql,
    [
      "-qAt",
      "-o",
      "/dev/null",
      "-v",
      "ON_ERROR_STOP=1",
      "-h",
      join(server.data, "postgres", "run"),
      "-U",
      "belfry",
      "-d",
      "belfry",
    ],
    { input: sql, stdio: ["pipe", "inherit", "inherit"] },
  );
}
