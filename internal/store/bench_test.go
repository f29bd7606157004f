package store_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// BenchmarkLife takes batches of scheduled runs through their whole life, from the plan to the history, one call after
// the other. An operation is one run. STORE_BENCH_STATEMENTS=1 prints what each statement cost, if the server has
// pg_stat_statements loaded.
func BenchmarkLife(b *testing.B) {
	for _, block := range []domain.Block{domain.BlockParallel, domain.BlockSerial} {
		b.Run(string(block), func(b *testing.B) { benchmarkLife(b, block) })
	}
}

func benchmarkLife(b *testing.B, block domain.Block) {
	const batch = 1000
	s, _ := open(b)
	for i := range batch {
		create(b, s, fmt.Sprint("job-", i), func(sp *domain.JobSpec) { sp.Block = block })
	}
	statements := os.Getenv("STORE_BENCH_STATEMENTS") != ""
	if statements {
		exec(b, s, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements WITH SCHEMA public`)
		exec(b, s, `SELECT public.pg_stat_statements_reset()`)
	}
	took := make(map[string]time.Duration)
	timed := func(what string, f func() error) {
		begun := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took[what] += time.Since(begun)
	}
	from := query[string](b, s, `SELECT pg_current_wal_lsn()::text`)
	runs := 0
	for b.Loop() {
		if runs++; runs%batch != 1 {
			continue
		}
		insert := `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, plain, fire_time, due_at, rung_at)
			SELECT overlay(first_run_id(now())::text placing substr(md5(random()::text), 1, 12) from 25)::uuid, id, version, group_name,
			       'schedule', spec->>'block' = 'parallel', now(), date_trunc('milliseconds', now()), now() FROM jobs`
		timed("insert", func() error { _, err := s.Pool().Exec(b.Context(), insert); return err })
		var due []engine.Due
		rows, err := s.Pool().Query(b.Context(), `SELECT id, job_id, due_at FROM runs_live ORDER BY due_at, id`)
		if err != nil {
			b.Fatal(err)
		}
		for rows.Next() {
			d := engine.Due{JobVersion: 1, Attempt: 1}
			if err := rows.Scan(&d.RunID, &d.JobID, &d.DueAt); err != nil {
				b.Fatal(err)
			}
			due = append(due, d)
		}
		var bound []engine.LiveRun
		for part := range slices.Chunk(due, 500) { // as the ring does
			in := admissions(b, s, part)
			timed("admit", func() error {
				out, err := s.Admit(b.Context(), in)
				bound = append(bound, out.Bound...)
				return err
			})
		}
		for part := range slices.Chunk(bound, 1000) {
			ended := make([]engine.Ended, len(part))
			for i, r := range part {
				ended[i] = result(s, r, domain.OutcomeSucceeded)
			}
			timed("settle", func() error { _, err := s.Settle(b.Context(), ended); return err })
		}
	}
	runs = max(runs-runs%batch, batch)
	for what, d := range took {
		b.ReportMetric(float64(d.Microseconds())/float64(runs), what+"-µs/run")
	}
	wal := query[int64](b, s, `SELECT (pg_current_wal_lsn() - $1::pg_lsn)::bigint`, from)
	b.ReportMetric(float64(wal)/float64(runs), "WAL-B/run")
	if statements {
		for _, line := range column[string](b, s, `SELECT format('%8s µs/run %6s calls  %s', round((total_exec_time * 1000 / $1)::numeric, 2), calls, query)
			FROM public.pg_stat_statements WHERE calls > 0 ORDER BY total_exec_time DESC LIMIT 25`, runs) {
			line = blanks.ReplaceAllString(strings.TrimSpace(line), " ")
			b.Log(line[:min(170, len(line))])
		}
	}
}

var blanks = regexp.MustCompile(`\s+`)
