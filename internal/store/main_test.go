package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// recorded keeps follow-ups instead of enqueuing them.
type recorded struct {
	mu  sync.Mutex
	ups []engine.FollowUp // guarded by mu while stores run
}

func (r *recorded) InsertTx(_ context.Context, _ pgx.Tx, ups []engine.FollowUp) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ups = append(r.ups, ups...)
	return nil
}

// open returns a store on a database of the test's own, with the group "g".
func open(t testing.TB) (*store.Store, *recorded) {
	t.Helper()
	s, r := openAt(t, pgtest.Database(t, store.Migrate))
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	return s, r
}

// openAt opens another store on a database. If conns is given, it is the maximum number of connections.
func openAt(t testing.TB, url string, conns ...int32) (*store.Store, *recorded) {
	t.Helper()
	cfg := store.Config{URL: url}
	if len(conns) > 0 {
		cfg.MaxConns = conns[0]
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &recorded{}
	s.UseFollowUps(r)
	return s, r
}

// exec runs SQL for changes that the store has no method for, such as moving instants.
func exec(t testing.TB, s *store.Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.Pool().Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the one value that sql selects.
func query[T any](t testing.TB, s *store.Store, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := s.Pool().QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// column returns the values that sql selects.
func column[T any](t testing.TB, s *store.Store, sql string, args ...any) []T {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// create stores a job of group g.
func create(t testing.TB, s *store.Store, name string, edit ...func(*domain.JobSpec)) domain.Job {
	t.Helper()
	job, err := s.CreateJob(t.Context(), spec(name, edit...), "test")
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// trigger plans n runs by hand, in order.
func trigger(t testing.TB, s *store.Store, job domain.JobID, n int) []domain.RunID {
	t.Helper()
	var ids []domain.RunID
	for range n {
		made, err := s.Trigger(t.Context(), job, domain.Trigger{Cause: domain.CauseManual})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made...)
	}
	return ids
}

// claim takes the runs that are due soon, in the order of their due instants.
func claim(t testing.TB, s *store.Store) []engine.Due {
	t.Helper()
	runs, _, err := s.ClaimNear(t.Context(), 2000)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(runs, func(a, b engine.Due) int {
		if c := a.DueAt.Compare(b.DueAt); c != 0 {
			return c
		}
		return slices.Compare(a.RunID[:], b.RunID[:])
	})
	return runs
}

// admit fires runs, all bound to instance i1.
func admit(t testing.TB, s *store.Store, runs []engine.Due) store.Admitted {
	t.Helper()
	out, err := s.Admit(t.Context(), admissions(t, s, runs))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start triggers a run and binds it to instance i1.
func start(t testing.TB, s *store.Store, job domain.JobID) engine.LiveRun {
	t.Helper()
	trigger(t, s, job, 1)
	out := admit(t, s, claim(t, s))
	if len(out.Bound) != 1 {
		t.Fatalf("a triggered run: %+v", out)
	}
	return out.Bound[0]
}

// result is what the instance of a bound run reports.
func result(s *store.Store, r engine.LiveRun, outcome domain.Outcome) engine.Ended {
	e := engine.Ended{
		RunID: r.ID, Attempt: r.Attempt, Bind: r.Bind, Instance: r.Instance, BootID: r.BootID, Group: "g",
		Outcome: outcome, StartedAt: s.Now(), FinishedAt: s.Now(), LastLine: 1,
	}
	if outcome == domain.OutcomeFailed {
		e.Reason = domain.ReasonHandlerError
	}
	return e
}

// settle settles results and checks their dispositions.
func settle(t testing.TB, s *store.Store, want []engine.Disposition, ended ...engine.Ended) store.SettleResult {
	t.Helper()
	res, err := s.Settle(t.Context(), ended)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.Dispositions, want) {
		t.Fatalf("dispositions %v, want %v", res.Dispositions, want)
	}
	return res
}

var settled = []engine.Disposition{engine.Settled}

// everySecond is a schedule whose fire times do not depend on the job's creation, so that rewind can move them.
func everySecond(sp *domain.JobSpec) {
	begin := domain.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second), StartAt: &begin}
}

func parallel(sp *domain.JobSpec) { sp.Block = domain.BlockParallel }

// rewind moves everything that is planned for a job into the past by d, which is a number of whole seconds.
func rewind(t testing.TB, s *store.Store, job domain.JobID, d time.Duration) {
	t.Helper()
	exec(t, s, `UPDATE job_due SET next_fire_time = next_fire_time - $2::interval, next_due_at = next_due_at - $2::interval,
		decided_through = decided_through - $2::interval WHERE job_id = $1`, job, d)
	for _, f := range column[time.Time](t, s, `SELECT fire_time FROM runs_live WHERE job_id = $1 AND cause = 'schedule' ORDER BY 1`, job) {
		exec(t, s, `UPDATE runs_live SET id = $3, fire_time = fire_time - $4::interval, due_at = due_at - $4::interval,
			rung_at = rung_at - $4::interval WHERE job_id = $1 AND fire_time = $2`,
			job, f, domain.ScheduledRunID(job, f.Add(-d), 0), d)
	}
}

// spec returns a valid job of group g.
func spec(name string, edit ...func(*domain.JobSpec)) domain.JobSpec {
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler = "g", name, "echo"
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	for _, e := range edit {
		e(&sp)
	}
	return sp
}
