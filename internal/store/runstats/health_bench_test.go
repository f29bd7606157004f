package runstats

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// BenchmarkRollUp measures the CPU time of the roll-up for each run, in windows of 5 seconds: that of this process and of Postgres. "counts" is the
// roll-up without the health of jobs. Work that Postgres does later for all tables (vacuum, checkpoints) is reported apart.
func BenchmarkRollUp(b *testing.B) {
	for _, c := range []struct {
		name             string
		jobs, runsOfEach int // in a window
		failing          int // percent of the runs that fail
		counts           bool
	}{
		{"counts", 10_000, 1, 0, true},
		{"one-run-of-each-job", 10_000, 1, 0, false},
		{"ten-runs-of-each-job", 1_000, 10, 0, false},
		{"ten-percent-fail", 10_000, 1, 10, false},
		{"few-of-many-jobs", 100_000, 1, 0, false},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkRollUp(b, c.jobs, c.runsOfEach, c.failing, c.counts) })
	}
}

func benchmarkRollUp(b *testing.B, jobs, runsOfEach, failing int, counts bool) {
	const windows, each, length = 12, 10_000, 5 * time.Second
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
	begin := time.Now().Add(-(windows + 10) * length).Truncate(time.Second)
	fill := func(from, to int) {
		// In each window, each job runs runsOfEach times, or each of a tenth of the jobs. Most runs take about a second.
		exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
			fire_time, due_at, created_at, started_at, finished_at, lateness_ms, last_line, instance, boot_id, route, settled_at)
			SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(at)::text, 1, 14) from 1)::uuid,
			       (w * $3::bigint / $5::int + n / $5) % $4::int, 1, 'g' || n % 10, 'schedule', CASE WHEN f THEN 'failed' ELSE 'succeeded' END, CASE WHEN f THEN 'handler_error' ELSE '' END,
			       CASE WHEN f THEN 'exit status 1: cannot connect to the database' ELSE '' END, '', 1,
			       at, at, at, at, at + (1 + 0.1 * (random() + random() - 1)) * interval '1 second', (random() * 20)::int, 3,
			       'instance-' || n % 50, 'c7d2f1a0b3e84d6f', 'any', at
			  FROM generate_series($1::int, $2::int) w, generate_series(0, $3::int - 1) n,
			       LATERAL (SELECT $6::timestamptz + (w + n / $3::float8) * $7::interval AS at, random() * 100 < $8::int AS f) x ORDER BY w, n`,
			from, to, each, jobs, runsOfEach, begin, length, failing)
	}
	fill(0, windows+1)
	exec(`VACUUM ANALYZE`)
	health := begin
	if counts {
		health = begin.AddDate(0, 0, -1)
	}
	exec(`UPDATE run_stats_mark SET through = $1, missed_through = $1, health_through = $2`, begin, health)
	stats := New(s.Pool())
	rollUp := func() int64 {
		runs, _, _, more, err := stats.RollUp(b.Context(), length)
		if err != nil || !more {
			b.Fatal(more, err)
		}
		return runs
	}
	// All jobs have their row and 20 durations.
	exec(`INSERT INTO job_health (job_id, success_at, success_version, hour, hour_succeeded, p95, success_run, durations, past_succeeded)
		SELECT i, $1, 1, extract(epoch FROM $1::timestamptz)::int / 3600, 0, 81, first_run_id($1), substr(d || decode(repeat('50515051', 5), 'hex'), 1, 20), decode(repeat('00', 46), 'hex')
		  FROM generate_series(0, $2::int - 1) i, LATERAL (SELECT substr(uuid_send(md5(i::text)::uuid), 1, 0) AS d) x`, begin, jobs)
	exec(`VACUUM ANALYZE job_health`)
	rollUp()
	exec(`CHECKPOINT`)
	var backend int
	if err := s.Pool().QueryRow(b.Context(), `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		b.Fatal(err)
	}
	var all int64
	before := cpuTimes(b, backend)
	for b.Loop() {
		if all == windows*each {
			b.Skip("NOT COVERED: more operations; use -benchtime 1x")
		}
		for range windows {
			all += rollUp()
		}
	}
	after := cpuTimes(b, backend)
	for what, d := range after {
		b.ReportMetric(float64((d-before[what]).Nanoseconds())/1000/float64(all), what+"-µs/run")
	}
	b.ReportMetric(0, "ns/op")
}

// cpuTimes returns the CPU time of this process, of the Postgres process that serves it, of the other ones, and of those that do the upkeep.
func cpuTimes(b *testing.B, backend int) map[string]time.Duration {
	b.Helper()
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		b.Fatal(err)
	}
	out := map[string]time.Duration{"own": time.Duration(self.Utime.Nano() + self.Stime.Nano())}
	parent := parentOf(strconv.Itoa(backend))
	procs, err := filepath.Glob("/proc/[0-9]*/schedstat")
	if err != nil || parent == "" {
		b.Skip("NOT COVERED: this system does not report the CPU time of processes")
	}
	for _, proc := range procs {
		pid := filepath.Base(filepath.Dir(proc))
		if parentOf(pid) != parent {
			continue
		}
		text, _ := os.ReadFile(proc)
		title, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		var ns int64
		_, _ = fmt.Sscan(string(text), &ns)
		what := "other-postgres"
		switch {
		case pid == strconv.Itoa(backend):
			what = "postgres"
		case strings.Contains(string(title), "autovacuum"), strings.Contains(string(title), "checkpointer"):
			what = "upkeep"
		}
		out[what] += time.Duration(ns)
	}
	return out
}

func parentOf(pid string) string {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}
