package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
)

// loader writes jobs and past runs into the database.
type loader struct {
	db      *pgxpool.Pool
	display *display
	serial  bool  // jobs have the block policy serial, not parallel
	newest  int64 // the id of the newest job
}

// chunk is the number of jobs that one statement writes. It is small enough for a useful progress line.
const chunk = 50_000

// insertJobs writes the same rows as the store's CreateJob, for the jobs of a set from number $3 up to $4: the job, its
// version and its due row. $1 is the spec, $2 the id of the set's first job, $5 the first instant, $6 the set's size if
// fires are spread, else 0, and $7 the period in milliseconds over which jobs are spread.
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
    INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at, fires_per_minute, fires_version)
    SELECT id, spec->>'group', 'bench-' || id, true, spec #>> '{schedule,kind}', '{}', spec, 1, now(), now(),
           CASE WHEN spec #>> '{schedule,every}' = '1s' THEN 60 ELSE 1 END, 1 FROM j
), versioned AS (
    INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
    SELECT id, 1, spec, now(), now(), 'bench', 'created' FROM j
)
INSERT INTO job_due (job_id, version, next_fire_time, next_due_at) SELECT id, 1, at, at FROM j`

// insertWireIDs gives ids for executors of XXL-JOB to the jobs from $1 up to $2. Otherwise the gateway would make them in the first second of the load.
const insertWireIDs = `INSERT INTO gateway_wire_ids (group_name, wire_id, job_id) SELECT '` + gatewayGroup + `', id, id FROM generate_series($1::bigint, $2::bigint - 1) id`

// noForeignKeys lets insertJobs insert jobs and the rows that refer to them in any order. It requires a superuser, which
// the measurement is on its own Postgres.
const noForeignKeys = `SET LOCAL session_replication_role = replica`

// jobSpec returns the definition of a job of a group with a schedule, as JSON.
func (l *loader) jobSpec(of string, schedule domain.Schedule) ([]byte, error) {
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler, spec.Schedule, spec.Block = of, "bench", handler, schedule, domain.BlockParallel
	if l.serial {
		spec.Block = domain.BlockSerial
	}
	spec.Normalize()
	return json.Marshal(spec)
}

// addJobs writes the jobs that fire a set. Each fires once a second, or only once.
func (l *loader) addJobs(ctx context.Context, s set) error {
	schedule := domain.Schedule{Kind: domain.ScheduleOnce}
	if s.For > 0 {
		end := domain.At(s.From.Add(s.For - time.Millisecond))
		schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second), EndAt: &end}
	}
	spread := 0
	if s.Spread {
		spread = s.N
	}
	return l.writeJobs(ctx, cmp.Or(s.Group, group), schedule, s.N, s.From, spread, time.Second)
}

// addIdleJobs writes jobs that fire once a day. Their first fires are spread over the day that begins in 24 hours.
func (l *loader) addIdleJobs(ctx context.Context, n int) error {
	const day = 24 * time.Hour
	schedule := domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(day)}
	if err := l.writeJobs(ctx, group, schedule, n, time.Now().Add(day).Truncate(time.Second), n, day); err != nil {
		return err
	}
	_, err := l.db.Exec(ctx, `VACUUM (ANALYZE) jobs, job_versions, job_due`)
	return err
}

func (l *loader) writeJobs(ctx context.Context, of string, schedule domain.Schedule, n int, from time.Time, spread int, over time.Duration) error {
	spec, err := l.jobSpec(of, schedule)
	if err != nil {
		return err
	}
	first := l.newest + 1
	l.newest += int64(n)
	for i := 0; i < n; i += chunk {
		if n > chunk {
			l.display.progress("writing jobs: %s of %s", thousands(float64(i)), thousands(float64(n)))
		}
		tx, err := l.db.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, noForeignKeys); err == nil {
			_, err = tx.Exec(ctx, insertJobs, spec, first, i, min(i+chunk, n), from, spread, over.Milliseconds())
		}
		if err == nil && of == gatewayGroup {
			_, err = tx.Exec(ctx, insertWireIDs, first+int64(i), first+int64(min(i+chunk, n)))
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

// cut stops all jobs that fire within an hour, and deletes their planned runs. It leaves the runs that are being fired.
func (l *loader) cut(ctx context.Context) error {
	for _, sql := range []string{
		`UPDATE job_due SET next_fire_time = NULL, next_due_at = NULL WHERE next_due_at < clock_timestamp() + interval '1 hour'`,
		`DELETE FROM runs_live WHERE id = ANY(ARRAY(SELECT id FROM runs_live WHERE state = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED))`,
	} {
		if _, err := l.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("end the load: %w", err)
		}
	}
	return nil
}

// pastDays is the number of days over which past runs are spread. The last is today, whose table also receives new runs.
const pastDays = 10

// addHistory writes past runs, day by day. A day's rows go into a separate table that is attached when it is complete, because
// building an index takes far less time than inserting into it. If the day's partition already exists, like today's, the rows
// are inserted into that.
func (l *loader) addHistory(ctx context.Context, n int) error {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	each := n / pastDays
	for d := range pastDays {
		l.display.progress("writing past runs: day %d of %d", d+1, pastDays)
		day := today.AddDate(0, 0, d-pastDays+1)
		if err := l.addDay(ctx, day, each); err != nil {
			return fmt.Errorf("write past runs: %w", err)
		}
	}
	_, err := l.db.Exec(ctx, `ANALYZE runs_history`)
	return err
}

// insertPast writes $2 runs of the day that begins at $1 into a table, spread over the first $3 seconds of the day.
const insertPast = `
INSERT INTO %s (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time, due_at,
       created_at, dispatched_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '8' || substr(h, 1, 3) || 'a' || substr(h, 4, 15))::uuid,
       1 + i %% 100000, 1, '` + group + `', 'schedule', CASE WHEN i %% 100 = 0 THEN 'failed' ELSE 'succeeded' END, '', '', '', 1,
       at, at, at, at, at, at, 1, 0, 'executor-1', h, 'any: the least loaded of 1', at
  FROM generate_series(0, $2::bigint - 1) i,
       LATERAL (SELECT $1::timestamptz + i * ($3::float8 / $2) * interval '1 second' AS at, md5($1::text || i) AS h) w`

func (l *loader) addDay(ctx context.Context, day time.Time, n int) error {
	db := l.db
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
