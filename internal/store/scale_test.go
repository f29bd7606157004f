package store_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The size of the world, and of a batch.
var (
	manyJobs = volume(250_000, 1_000_000)
	manyPast = volume(300_000, 1_200_000)
)

const (
	manyLive = 50_000
	batch    = 1000
)

// volume returns a number of rows: the second one in the long tier.
func volume(short, long int) int {
	if os.Getenv("BELFRY_TEST_LONG") != "" {
		return long
	}
	return short
}

// TestQueriesScale runs the hot methods on very many jobs and past runs, and fifty thousand live runs. It runs eight
// rounds of full batches with the statistics of empty tables, and eight with true statistics, all on one connection.
// Postgres's counters show how many rows sequential scans have read. A nested loop over full batches would take seconds.
func TestQueriesScale(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: the plans of the hot queries, with -short")
	}
	s, _ := openAt(t, pgtest.Database(t, store.Migrate), 1) // a connection keeps its counters until it flushes them
	begin := time.Now()
	fillWorld(t, s)
	t.Logf("filled in %s", time.Since(begin).Truncate(time.Millisecond))
	w := &scale{t: t, s: s, slowest: make(map[string]time.Duration)}
	before := w.read(bigTables)
	if n := query[int64](t, s, `SELECT count(*) FROM job_due WHERE version > 0`); w.read(bigTables)-before < n {
		t.Fatal("the counters do not change, so this test cannot fail")
	}
	t.Run("statistics of empty tables", func(t *testing.T) { w.t = t; w.rounds(); w.searches() })
	exec(t, s, `ANALYZE`)
	exec(t, s, `DISCARD PLANS`)
	t.Run("true statistics", func(t *testing.T) { w.t = t; w.rounds(); w.searches() })
	w.t = t
	w.idle()
	for name, d := range w.slowest {
		t.Logf("%-16s at most %s", name, d.Truncate(100*time.Microsecond))
	}
}

func fillWorld(t *testing.T, s *store.Store) {
	t.Helper()
	for _, table := range column[string](t, s, `SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'belfry'::regnamespace`) {
		exec(t, s, `ALTER TABLE `+pgx.Identifier{table}.Sanitize()+` SET (autovacuum_enabled = false)`)
	}
	exec(t, s, `ANALYZE`)
	// While the test runs, no other fire times come due.
	jobSpec := `{"group": "g", "name": "n", "handler": "echo", "enabled": true, "retries": 1, "block": "serial",
		"schedule": {"kind": "fixed_rate", "every": "1h0m0s", "start_at": "` + time.Now().UTC().Add(-30*time.Minute).Format(time.RFC3339) + `"}}`
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	// Checking two million foreign keys takes most of the time, so the test switches it off if its role is allowed to.
	_, _ = s.Pool().Exec(t.Context(), `SET session_replication_role = replica`)
	exec(t, s, `INSERT INTO jobs (group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT 'g', 'j' || i, true, 'fixed_rate', $1::jsonb, 1, now(), now() FROM generate_series(1, $2) i`, jobSpec, manyJobs)
	exec(t, s, `INSERT INTO job_versions (job_id, version, spec, created_at, valid_from, changed_by, change)
		SELECT i, 1, $1::jsonb, now(), now(), 'test', 'created' FROM generate_series(1, $2) i`, jobSpec, manyJobs)
	// 25,000 jobs are due in 4 s. Planning reads the pauses of every tenth of these.
	exec(t, s, `INSERT INTO job_due (job_id, version, next_fire_time, next_due_at, paused_until)
		SELECT i, 1, f, f, CASE WHEN i % (10 * $2) = 0 THEN now() + interval '1 hour' END FROM (SELECT i, date_trunc('ms', now()) + CASE WHEN i % $2::int = 0 THEN interval '4 s' ELSE i * interval '0.1 s' + interval '1 h' END AS f
		  FROM generate_series(1, $1::int) i) x`, manyJobs, manyJobs/25_000)
	// Every tenth job was paused yesterday.
	exec(t, s, `INSERT INTO job_pauses (job_id, from_at, to_at, reason, paused_by)
		SELECT i * 10, now() - interval '2 days', now() - interval '1 day', 'disks', 'ann' FROM generate_series(1, $1 / 10) i`, manyJobs)
	exec(t, s, `INSERT INTO block_slots (job_id) SELECT generate_series(1, $1)`, manyJobs)
	exec(t, s, `INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
		fire_time, due_at, created_at, finished_at, last_line, route)
		SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(now() - i * interval '70 ms')::text, 1, 14) from 1)::uuid,
		       1 + i % 100000, 1, 'g', 'schedule', CASE i % 40 WHEN 7 THEN 'failed' ELSE 'succeeded' END, '', '', '', 1, now(), now(), now(), now(), 0, ''
		  FROM generate_series(1, $1) i`, manyPast)
	exec(t, s, `RESET session_replication_role`)
	// A third of the live runs is running, a third waits for an instance, and a third is held.
	exec(t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, admitted, held, held_on, instance, boot_id, due_at, rung_at)
		SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(now())::text, 1, 14) from 1)::uuid,
		       1 + i, 1, 'g', 'manual', CASE i % 3 WHEN 0 THEN 'running' WHEN 1 THEN 'queued' ELSE 'pending' END, true,
		       i % 3 = 2, CASE WHEN i % 3 = 2 THEN '' END, CASE WHEN i % 3 = 0 THEN 'i' || i % 100 END, CASE WHEN i % 3 = 0 THEN 'b' END,
		       date_trunc('ms', now()) - interval '1 min', now()
		  FROM generate_series(1, $1) i`, manyLive)
	exec(t, s, `INSERT INTO runs_waiting (run_id, job_id, group_name, handler, due_at, deadline_at)
		SELECT id, job_id, 'g', 'echo', due_at, now() + interval '1 h' FROM runs_live WHERE state = 'queued'`)
}

// scale calls methods and measures them.
type scale struct {
	t       *testing.T
	s       *store.Store
	slowest map[string]time.Duration
}

// bigTables selects the tables that no method may scan. The tables of live runs are small, and reconcilers may scan them.
const bigTables = `relname IN ('jobs', 'job_due', 'job_versions', 'job_pauses', 'block_slots') OR relname LIKE 'runs_history%'`

func (w *scale) read(condition string) int64 {
	w.t.Helper()
	exec(w.t, w.s, `SELECT pg_stat_force_next_flush()`)
	return query[int64](w.t, w.s, `SELECT COALESCE(sum(seq_tup_read), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'belfry' AND (`+condition+`)`)
}

// looked returns how many entries of the indexes on live runs and due jobs were read. Many runs share a due instant. If a plan
// joins on it, it reads the entries of all these runs for each of them.
func (w *scale) looked() int64 {
	w.t.Helper()
	exec(w.t, w.s, `SELECT pg_stat_force_next_flush()`)
	return query[int64](w.t, w.s, `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes
		WHERE schemaname = 'belfry' AND relname IN ('runs_live', 'job_due')`)
}

// idle measures the search for due jobs when there are none. The cost must not depend on the number of enabled jobs.
func (w *scale) idle() {
	w.t.Helper()
	for {
		p, err := w.s.PlanDue(w.t.Context(), 5*batch, false)
		if err != nil {
			w.t.Fatal(err)
		}
		if p.Jobs == 0 {
			break
		}
	}
	exec(w.t, w.s, `VACUUM job_due`)
	looked := w.looked()
	for range 10 {
		if _, err := w.s.PlanDue(w.t.Context(), batch, false); err != nil {
			w.t.Fatal(err)
		}
	}
	if n := w.looked() - looked; n > batch {
		w.t.Errorf("ten searches that found no due job read %d index entries", n)
	}
}

// hot measures a method that runs all the time. reconciler measures a method that may read all unfinished runs.
func (w *scale) hot(name string, call func() error)        { w.measure(name, true, call) }
func (w *scale) reconciler(name string, call func() error) { w.measure(name, false, call) }

func (w *scale) measure(name string, hot bool, call func() error) {
	w.t.Helper()
	big, live, looked := w.read(bigTables), w.read(`relname IN ('runs_live', 'runs_waiting')`), w.looked()
	begin := time.Now()
	if err := call(); err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	took := time.Since(begin)
	w.slowest[name] = max(w.slowest[name], took)
	if n := w.read(bigTables) - big; n > batch {
		w.t.Errorf("%s read %d rows of big tables in sequence", name, n)
	}
	if n := w.read(`relname IN ('runs_live', 'runs_waiting')`) - live; hot && n > 5*batch {
		w.t.Errorf("%s read %d live rows in sequence", name, n)
	}
	if n := w.looked() - looked; hot && n > 2*manyLive { // a nested loop over two batches reads a million
		w.t.Errorf("%s read %d index entries", name, n)
	}
}

func (w *scale) rounds() {
	for range 8 {
		w.round()
	}
}

func (w *scale) round() {
	ctx, s := w.t.Context(), w.s
	var planned store.Planned
	w.hot("PlanDue", func() (err error) {
		planned, err = s.PlanDue(ctx, batch, false)
		return err
	})
	if planned.Jobs != batch || len(planned.Runs)+planned.Missed != batch {
		w.t.Fatalf("planned %d runs of %d jobs, %d missed", len(planned.Runs), planned.Jobs, planned.Missed)
	}
	// In late rounds of the test, the runs are past the tolerance. The next steps need runs that are due now.
	exec(w.t, s, `INSERT INTO runs_live (id, job_id, job_version, group_name, cause, due_at)
		SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(now())::text, 1, 14) from 1)::uuid,
		       100000 + i * 40, 1, 'g', 'manual', date_trunc('ms', now()) FROM generate_series(1, $1) i`, batch)
	var near []engine.Due
	// A call of ClaimNear searches all live runs for stranded ones if the last such search was more than a few seconds ago.
	w.reconciler("ClaimNear", func() (err error) {
		near, _, err = s.ClaimNear(ctx, 2*batch)
		near = slices.DeleteFunc(near, func(d engine.Due) bool { return d.JobID < 100_000 }) // retries of the rounds before
		return err
	})
	w.quickClaim()
	if len(near) != batch {
		w.t.Fatalf("claimed %d", len(near))
	}
	in := admissions(w.t, s, near)
	var out store.Admitted
	w.hot("Admit", func() (err error) {
		out, err = s.Admit(ctx, in)
		return err
	})
	if len(out.Bound) != batch {
		w.t.Fatalf("%d bound, %d held, %d later", len(out.Bound), len(out.Held), len(out.Later))
	}
	var started []store.Started
	var ended []engine.Ended
	for i, r := range out.Bound {
		started = append(started, store.Started{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: s.Now()})
		ended = append(ended, result(s, r, domain.OutcomeSucceeded))
		if i%10 == 0 {
			ended[i].Outcome, ended[i].Reason = domain.OutcomeFailed, domain.ReasonHandlerError
		}
	}
	w.hot("MarkRunning", func() error {
		_, err := s.MarkRunning(ctx, started)
		return err
	})
	w.hot("Settle", func() error {
		_, err := s.Settle(ctx, ended)
		return err
	})
	w.hot("Settle a repeat", func() error {
		res, err := s.Settle(ctx, ended)
		if slices.ContainsFunc(res.Dispositions, func(d engine.Disposition) bool { return d != engine.Repeat }) {
			return fmt.Errorf("dispositions %v", res.Dispositions[:10])
		}
		return err
	})
	w.reconciler("ReplanOverdue", func() error {
		exec(w.t, s, `UPDATE runs_live SET due_at = now() WHERE state = 'retrying'`)
		n, err := s.ReplanOverdue(ctx, batch)
		if n != batch/10 {
			return fmt.Errorf("replanned %d", n)
		}
		return err
	})
	again, _, err := s.ClaimNear(ctx, 2*batch)
	if err != nil {
		w.t.Fatal(err)
	}
	if out, err = s.Admit(ctx, admissions(w.t, s, again)); err != nil || len(out.Bound) < batch/10 {
		w.t.Fatalf("%d of the retries bound, %v", len(out.Bound), err)
	}
	ended = nil
	for _, r := range out.Bound {
		ended = append(ended, result(s, r, domain.OutcomeSucceeded))
	}
	if _, err := s.Settle(ctx, ended); err != nil {
		w.t.Fatal(err)
	}
	w.waiting()
	w.readers()
}

// quickClaim calls ClaimNear until a call does not search all live runs. On a busy machine, that is not always the first one.
func (w *scale) quickClaim() {
	w.t.Helper()
	var read []int64
	for range 10 {
		looked := w.looked()
		if _, _, err := w.s.ClaimNear(w.t.Context(), batch); err != nil {
			w.t.Fatal(err)
		}
		n := w.looked() - looked
		if n <= 5*batch {
			return
		}
		read = append(read, n)
	}
	w.t.Errorf("ten calls of ClaimNear read %d index entries of live runs", read)
}

func (w *scale) waiting() {
	ctx, s := w.t.Context(), w.s
	w.hot("WaitingKeys", func() error {
		keys, err := s.WaitingKeys(ctx)
		if len(keys) != 1 {
			return fmt.Errorf("keys %v", keys)
		}
		return err
	})
	var bound []engine.LiveRun
	w.hot("AssignWaiting", func() (err error) {
		bound, _, err = s.AssignWaiting(ctx, store.WaitingKey{Group: "g", Target: "echo"}, batch, func(runs []store.Waiting) []engine.Binding {
			to := make([]engine.Binding, len(runs))
			for i := range to {
				to[i] = engine.Binding{Instance: "i1", BootID: "b"}
			}
			return to
		})
		return err
	})
	if len(bound) != batch {
		w.t.Fatalf("assigned %d", len(bound))
	}
	var refused []store.Refusal
	for _, r := range bound {
		refused = append(refused, store.Refusal{RunID: r.ID, Attempt: 1, Bind: r.Bind, Why: "full"})
	}
	w.hot("Unbind", func() error {
		_, _, err := s.Unbind(ctx, refused)
		return err
	})
}

// readers runs the queries of the reconcilers and the console.
func (w *scale) readers() {
	ctx, s := w.t.Context(), w.s
	for name, call := range map[string]func() error{
		"Quiet":        func() error { _, err := s.Quiet(ctx); return err },
		"Glance":       func() error { _, err := s.Glance(ctx); return err },
		"PlanStranded": func() error { _, err := s.PlanStranded(ctx, batch); return err },
		"Silent":       func() error { _, err := s.Silent(ctx, []string{"g"}, time.Second, batch); return err },
		"BoundBoots":   func() error { _, err := s.BoundBoots(ctx, time.Second); return err },
		"RunsOf": func() error {
			_, err := s.RunsOf(ctx, store.BoundBoot{Group: "g", Instance: "i3", BootID: "b"}, domain.NilRunID, batch)
			return err
		},
		"PastDeadline":     func() error { _, err := s.PastDeadline(ctx, batch); return err },
		"PastGiveUp":       func() error { _, err := s.PastGiveUp(ctx, "g", batch); return err },
		"UnconfirmedKills": func() error { _, err := s.UnconfirmedKills(ctx, time.Second, batch); return err },
		"ReturnStrays":     func() error { _, err := s.ReturnStrays(ctx, batch); return err },
		"ReleaseOrphans":   func() error { _, err := s.ReleaseOrphans(ctx, 10); return err },
		"GoOnChains":       func() error { _, err := s.GoOnChains(ctx, batch); return err },
		"Job":              func() error { _, err := s.Job(ctx, 77); return err },
		"EditJob": func() error {
			_, _, err := s.EditJob(ctx, 77, 0, "test", func(sp *domain.JobSpec) error { sp.Description += "x"; return nil })
			return err
		},
	} {
		w.reconciler(strings.TrimSpace(name), call)
	}
}

// searches searches runs for a text that no run has. A page reads each run twice, by an index: once for the filter, once for its texts.
func (w *scale) searches() {
	w.t.Helper()
	v := view.New(w.s.Pool())
	past := w.s.Now().Add(-2 * time.Hour)
	for name, f := range map[string]view.RunFilter{
		"all": {}, "past": {To: past}, "group": {Group: "g", To: past}, "groups": {Only: []string{"g", "h"}, To: past}, "job": {JobID: 77},
		"succeeded": {States: []domain.State{domain.Succeeded}, To: past}, "failed": {States: []domain.State{domain.Failed}},
		"unfinished": {States: []domain.State{domain.Queued, domain.Running}}, "unplanned": {Unplanned: true},
	} {
		f.Limit = 50
		before := w.fetched()
		w.reconciler("search "+name, func() error {
			found, err := v.SearchRuns(w.t.Context(), f, view.RunSearch{Text: "no such text"})
			if err == nil && (len(found.Runs) != 0 || found.SearchedBackTo.IsZero()) {
				err = fmt.Errorf("%d runs, searched back to %s", len(found.Runs), found.SearchedBackTo)
			}
			return err
		})
		if n := w.fetched() - before; n > 60_000 {
			w.t.Errorf("search %s read %d rows of the history", name, n)
		}
	}
}

// fetched returns how many rows of the history were read by an index.
func (w *scale) fetched() int64 {
	w.t.Helper()
	exec(w.t, w.s, `SELECT pg_stat_force_next_flush()`)
	return query[int64](w.t, w.s, `SELECT COALESCE(sum(idx_tup_fetch), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = 'belfry' AND relname LIKE 'runs_history%'`)
}
