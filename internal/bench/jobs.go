package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// chunk is how many jobs or past runs one statement writes: few enough to tell of progress.
const chunk = 50_000

// insertJobs writes what the store's CreateJob writes, for jobs i of a set from $3 up to $4: the job, its version and
// its due row. $1 is the spec, $2 the id of the set's first job, $5 the first instant, $6 the set's size where fires
// are spread, else 0, and $7 the period in milliseconds over which jobs are spread.
const insertJobs = `
WITH s AS MATERIALIZED (
    SELECT $2::bigint + i AS id,
           date_trunc('milliseconds', $5::timestamptz + CASE WHEN $6::bigint > 0 THEN floor(i * $7::float8 / $6) ELSE 0 END * interval '1 millisecond') AS at,
           i
      FROM generate_series($3::bigint, $4::bigint - 1) i
), j AS MATERIALIZED (
    SELECT id, at, jsonb_set($1::jsonb, CASE WHEN $1::jsonb #>> '{schedule,kind}' = 'once' THEN '{schedule,at}' ELSE '{schedule,start_at}' END::text[],
               to_jsonb(to_char(at, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))) || jsonb_build_object('name', 'bench-' || id) AS spec
      FROM s
), made AS (
    INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
    SELECT id, '` + group + `', 'bench-' || id, true, spec #>> '{schedule,kind}', '{}', spec, 1, now(), now() FROM j
), versioned AS (
    INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
    SELECT id, 1, spec, now(), now(), 'bench', 'created' FROM j
)
INSERT INTO job_due (job_id, version, next_fire_time, next_due_at) SELECT id, 1, at, at FROM j`

// noForeignKeys lets the statement above insert parents and children at once, in whatever order. Only the superuser of
// the measurement's own Postgres may do so.
const noForeignKeys = `SET LOCAL session_replication_role = replica`

// jobSpec is a job of a measurement.
func jobSpec(schedule domain.Schedule) ([]byte, error) {
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler, spec.Schedule, spec.Block = group, "bench", handler, schedule, domain.BlockParallel
	spec.Normalize()
	return json.Marshal(spec)
}

// addJobs writes the jobs that fire a set: each once a second, or once.
func (b *Bench) addJobs(ctx context.Context, s set) error {
	schedule := domain.Schedule{Kind: domain.ScheduleOnce}
	if s.For > 0 {
		end := domain.At(s.From.Add(s.For - time.Millisecond))
		schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second), EndAt: &end}
	}
	spread := 0
	if s.Spread {
		spread = s.N
	}
	return b.writeJobs(ctx, schedule, s.N, s.From, spread, time.Second)
}

// addIdleJobs writes jobs that fire once a day, spread over a day that begins in a day.
func (b *Bench) addIdleJobs(ctx context.Context, n int) error {
	const day = 24 * time.Hour
	schedule := domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(day)}
	if err := b.writeJobs(ctx, schedule, n, time.Now().Add(day).Truncate(time.Second), n, day); err != nil {
		return err
	}
	_, err := b.servers.db.Exec(ctx, `VACUUM (ANALYZE) jobs, job_versions, job_due`)
	return err
}

func (b *Bench) writeJobs(ctx context.Context, schedule domain.Schedule, n int, from time.Time, spread int, over time.Duration) error {
	spec, err := jobSpec(schedule)
	if err != nil {
		return err
	}
	first := b.jobs + 1
	b.jobs += int64(n)
	for i := 0; i < n; i += chunk {
		if n > chunk {
			b.progress("writing jobs: %s of %s", thousands(float64(i)), thousands(float64(n)))
		}
		tx, err := b.servers.db.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, noForeignKeys); err == nil {
			_, err = tx.Exec(ctx, insertJobs, spec, first, i, min(i+chunk, n), from, spread, over.Milliseconds())
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			_ = tx.Rollback(ctx)
			return fmt.Errorf("write jobs: %w", err)
		}
	}
	return nil
}

// cut ends the fires of all jobs that fire soon, and takes back what is planned and not being fired at this moment.
func (b *Bench) cut(ctx context.Context) error {
	for _, sql := range []string{
		`UPDATE job_due SET next_fire_time = NULL, next_due_at = NULL WHERE next_due_at < clock_timestamp() + interval '1 hour'`,
		`DELETE FROM runs_live WHERE id = ANY(ARRAY(SELECT id FROM runs_live WHERE state = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED))`,
	} {
		if _, err := b.servers.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("end the load: %w", err)
		}
	}
	return nil
}

// pastDays is over how many days past runs are spread; the last is today, into whose tables new runs go.
const pastDays = 10

// addHistory writes past runs: by day, into a table apart that is attached when it is full, as indexes are built far
// faster than they grow. Today's share goes where today's runs go.
func (b *Bench) addHistory(ctx context.Context, n int) error {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	each := n / pastDays
	for d := range pastDays {
		b.progress("writing past runs: day %d of %d", d+1, pastDays)
		day := today.AddDate(0, 0, d-pastDays+1)
		if err := b.addDay(ctx, day, each); err != nil {
			return fmt.Errorf("write past runs: %w", err)
		}
	}
	_, err := b.servers.db.Exec(ctx, `ANALYZE runs_history`)
	return err
}

// insertPast writes $2 runs of the day that begins at $1 into a table, spread over its elapsed part ($3 seconds).
const insertPast = `
INSERT INTO %s (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time, due_at,
       created_at, dispatched_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(h, 1, 3) || 'a' || substr(h, 4, 15))::uuid,
       1 + i %% 100000, 1, '` + group + `', 'schedule', CASE WHEN i %% 100 = 0 THEN 'failed' ELSE 'succeeded' END, '', '', '', 1,
       at, at, at, at, at, at, 1, 0, 'executor-1', h, 'any: the least loaded of 1', at
  FROM generate_series(0, $2::bigint - 1) i,
       LATERAL (SELECT $1::timestamptz + i * ($3::float8 / $2) * interval '1 second' AS at, md5($1::text || i) AS h) w`

func (b *Bench) addDay(ctx context.Context, day time.Time, n int) error {
	db := b.servers.db
	var there bool
	table := "runs_history_" + day.Format("20060102")
	if err := db.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, table).Scan(&there); err != nil {
		return err
	}
	elapsed := min(24*time.Hour, time.Since(day)-time.Minute)
	if there {
		_, err := db.Exec(ctx, fmt.Sprintf(insertPast, table), day, n, elapsed.Seconds())
		return err
	}
	if _, err := db.Exec(ctx, `CREATE TABLE `+table+` (LIKE runs_history INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)`); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, fmt.Sprintf(insertPast, table), day, n, elapsed.Seconds()); err != nil {
		return err
	}
	var bounds string
	if err := db.QueryRow(ctx, `SELECT format('FROM (%L) TO (%L)', first_run_id($1::timestamptz), first_run_id($1::timestamptz + interval '1 day'))`,
		day).Scan(&bounds); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `ALTER TABLE runs_history ATTACH PARTITION `+table+` FOR VALUES `+bounds)
	return err
}
