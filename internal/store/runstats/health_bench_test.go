package runstats

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// BenchmarkRollUp measures the CPU time of the roll-up for each run, in windows of 5 seconds: that of this process and of the Postgres process that serves
// it. "health" is what the health of jobs adds, compared with a roll-up without it. On a shared machine, neighbours double the time of a window now and then.
// So the windows of both alternate, and each figure is that of the quickest tenth. "one-column" is what an update of one column of the same rows takes.
func BenchmarkRollUp(b *testing.B) {
	for _, c := range []struct {
		name             string
		jobs, runsOfEach int // in a window
		failing          int // percent of the runs that fail
	}{
		{"one-run-of-each-job", 10_000, 1, 0},
		{"ten-runs-of-each-job", 1_000, 10, 0},
		{"ten-percent-fail", 10_000, 1, 10},
		{"few-of-many-jobs", 100_000, 1, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			without, with := newRollUps(b, c.jobs, c.runsOfEach, c.failing, false), newRollUps(b, c.jobs, c.runsOfEach, c.failing, true)
			for b.Loop() {
				if without.runs > 0 {
					b.Skip("NOT COVERED: more operations; use -benchtime 1x")
				}
				for range benchWindows {
					without.measure(b)
					without.measureUpdate(b)
					with.measure(b)
				}
			}
			own, postgres := quick(with.own), quick(with.postgres)
			b.ReportMetric(own, "own-µs/run")
			b.ReportMetric(postgres, "postgres-µs/run")
			b.ReportMetric(own+postgres-quick(without.own)-quick(without.postgres), "health-µs/run")
			b.ReportMetric(quick(without.update), "one-column-µs/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const benchWindows = 24

// rollUps rolls up the windows of a database.
type rollUps struct {
	pool                  *pgxpool.Pool
	stats                 *Store
	backend               string // the process of Postgres that serves it
	runs                  int64
	own, postgres, update []float64 // microseconds for each run, of each window
}

const benchLength = 5 * time.Second

func newRollUps(b *testing.B, jobs, runsOfEach, failing int, withHealth bool) *rollUps {
	const each = 10_000
	s, err := store.Open(b.Context(), store.Config{URL: pgtest.Database(b, store.Migrate), MaxConns: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	exec := func(sql string, args ...any) {
		b.Helper()
		if _, err := s.Pool().Exec(b.Context(), sql, args...); err != nil {
			b.Fatal(err)
		}
	}
	exec(`INSERT INTO groups (name, token_sha256) SELECT 'g' || i, i::text::bytea FROM generate_series(0, 9) i`)
	exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT i, 'g' || i % 10, i, true, 'none', '{}', 1, now(), now() FROM generate_series(0, $1::int - 1) i`, jobs)
	begin := time.Now().Add(-(benchWindows + 10) * benchLength).Truncate(time.Second)
	// In each window, each job runs runsOfEach times, or each of a tenth of the jobs. Most runs take about a second.
	exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
		fire_time, due_at, created_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
		SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(at)::text, 1, 14) from 1)::uuid,
		       (w * $2::bigint / $4::int + n / $4) % $3::int, 1, 'g' || n % 10, 'schedule', CASE WHEN f THEN 'failed' ELSE 'succeeded' END, CASE WHEN f THEN 'handler_error' ELSE '' END,
		       CASE WHEN f THEN 'exit status 1: cannot connect to the database' ELSE '' END, '', 1,
		       at, at, at, at, at + (1 + 0.1 * (random() + random() - 1)) * interval '1 second', (random() * 20)::int, 3,
		       'instance-' || n % 50, 'c7d2f1a0b3e84d6f', 'any', at
		  FROM generate_series(0, $1::int) w, generate_series(0, $2::int - 1) n,
		       LATERAL (SELECT $5::timestamptz + (w + n / $2::float8) * $6::interval AS at, random() * 100 < $7::int AS f) x ORDER BY w, n`,
		benchWindows+1, each, jobs, runsOfEach, begin, benchLength, failing)
	health := begin
	if !withHealth {
		health = begin.AddDate(0, 0, -1)
	}
	exec(`UPDATE run_stats_mark SET through = $1, missed_through = $1, health_through = $2`, begin, health)
	// All jobs have their row and 20 durations.
	exec(`INSERT INTO job_health (job_id, success_at, success_version, hour, hour_succeeded, p95, success_run, durations, past_succeeded)
		SELECT i, $1, 1, extract(epoch FROM $1::timestamptz)::int / 3600, 0, 81, first_run_id($1), decode(repeat('50515051', 5), 'hex'), decode(repeat('00', 46), 'hex')
		  FROM generate_series(0, $2::int - 1) i`, begin, jobs)
	exec(`VACUUM ANALYZE`)
	exec(`CHECKPOINT`)
	r := &rollUps{pool: s.Pool(), stats: New(s.Pool())}
	if err := s.Pool().QueryRow(b.Context(), `SELECT pg_backend_pid()::text`).Scan(&r.backend); err != nil {
		b.Fatal(err)
	}
	r.rollUp(b) // what comes first is not typical
	return r
}

func (r *rollUps) rollUp(b *testing.B) int64 {
	runs, _, _, more, err := r.stats.RollUp(b.Context(), benchLength)
	if err != nil || !more {
		b.Fatal(more, err)
	}
	return runs
}

// measure rolls up a window.
func (r *rollUps) measure(b *testing.B) {
	own, postgres := cpuTimes(b, r.backend)
	runs := r.rollUp(b)
	ownAfter, postgresAfter := cpuTimes(b, r.backend)
	r.runs += runs
	r.own = append(r.own, float64((ownAfter-own).Nanoseconds())/1000/float64(runs))
	r.postgres = append(r.postgres, float64((postgresAfter-postgres).Nanoseconds())/1000/float64(runs))
}

// measureUpdate updates a column of as many rows as a window with one run of each job.
func (r *rollUps) measureUpdate(b *testing.B) {
	_, before := cpuTimes(b, r.backend)
	tag, err := r.pool.Exec(b.Context(), `UPDATE job_health SET hour_succeeded = hour_succeeded + 1 WHERE job_id < 10000`)
	if err != nil {
		b.Fatal(err)
	}
	_, after := cpuTimes(b, r.backend)
	r.update = append(r.update, float64((after-before).Nanoseconds())/1000/float64(tag.RowsAffected()))
}

// quick returns the first decile.
func quick(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/10]
}

// cpuTimes returns the CPU time of this process and of a process of Postgres.
func cpuTimes(b *testing.B, backend string) (own, postgres time.Duration) {
	b.Helper()
	text, err := os.ReadFile("/proc/" + backend + "/schedstat")
	if err != nil {
		b.Skip("NOT COVERED: this system does not report the CPU time of processes: ", err)
	}
	if _, err := fmt.Sscan(string(text), &postgres); err != nil { // in nanoseconds
		b.Fatal(err)
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		b.Fatal(err)
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano()), postgres
}
