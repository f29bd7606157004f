package followup_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/scheduler"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is a store with its own database. Its follow-ups are River jobs.
type bench struct {
	t     *testing.T
	pg    *store.Store
	queue *followup.Queue
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pg, err := store.Open(context.Background(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	b := &bench{t: t, pg: pg}
	b.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'g')`)
	if b.queue, err = followup.NewQueue(pg.Pool(), migrations.RiverSchema, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	pg.UseFollowUps(b.queue)
	return b
}

// work runs workers until the test ends or stop is called.
func (b *bench) work() (stop func()) {
	b.t.Helper()
	w, err := followup.NewWorkers(b.pg.Pool(), migrations.RiverSchema, b.pg, nil, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.background(w.Run)
}

// pool returns another pool of connections.
func (b *bench) pool(edit func(*pgxpool.Config)) *pgxpool.Pool {
	b.t.Helper()
	config := b.pg.Pool().Config().Copy()
	edit(config)
	pool, err := pgxpool.NewWithConfig(b.t.Context(), config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

func (b *bench) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pg.Pool().Exec(context.Background(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bench) count(sql string, args ...any) int {
	b.t.Helper()
	var n int
	if err := b.pg.Pool().QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// patience bounds each wait, because the machine may be busy.
const patience = 5 * time.Minute

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(10 * time.Millisecond); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			b.t.Fatalf("in vain: %s", what)
		}
	}
}

func (b *bench) job(name string, edit ...func(*domain.JobSpec)) domain.JobID {
	b.t.Helper()
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Schedule = "g", name, "echo", domain.Schedule{Kind: domain.ScheduleNone}
	for _, e := range edit {
		e(&sp)
	}
	job, err := b.pg.CreateJob(context.Background(), sp, "test")
	if err != nil {
		b.t.Fatal(err)
	}
	return job.ID
}

// insert enqueues follow-ups.
func (b *bench) insert(ups ...engine.FollowUp) {
	b.t.Helper()
	err := pgx.BeginFunc(context.Background(), b.pg.Pool(), func(tx pgx.Tx) error { return b.queue.InsertTx(context.Background(), tx, ups) })
	if err != nil {
		b.t.Fatal(err)
	}
}

// worked waits until every River job is completed, and checks that there are n.
func (b *bench) worked(n int) {
	b.t.Helper()
	b.eventually("all follow-ups are worked", func() bool {
		return b.count(`SELECT count(*) FROM `+migrations.RiverSchema+`.river_job WHERE state = 'completed'`) == n
	})
	if left := b.count(`SELECT count(*) FROM ` + migrations.RiverSchema + `.river_job WHERE state <> 'completed'`); left != 0 {
		b.t.Errorf("%d follow-ups are left", left)
	}
}

// firer binds the runs that it gets to an instance and passes them on.
type firer struct {
	pg    *store.Store
	fired chan engine.LiveRun
}

func (f *firer) Fire(ctx context.Context, runs []engine.Due) ([]engine.Due, error) {
	defs, err := f.pg.Definitions(ctx, runs)
	if err != nil {
		return nil, err
	}
	in := make([]engine.Admission, len(runs))
	for i, r := range runs {
		in[i] = engine.Admission{Due: r, Def: defs.Of(r.JobID, r.JobVersion), Binding: engine.Binding{Instance: "a", BootID: "boot-a"}}
	}
	out, err := f.pg.Admit(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, r := range out.Bound {
		f.fired <- r
	}
	return out.Later, nil
}

func (f *firer) ResultsLag(context.Context) (time.Duration, error) { return 0, nil }

// next returns the next fired run.
func (f *firer) next(t *testing.T) engine.LiveRun {
	t.Helper()
	select {
	case r := <-f.fired:
		return r
	case <-time.After(patience):
		t.Fatal("nothing is fired")
		panic("unreachable")
	}
}

func (b *bench) fail(r engine.LiveRun) engine.SettleResult {
	b.t.Helper()
	out, err := b.pg.Settle(context.Background(), []engine.Ended{{
		RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Group: r.Group, Outcome: domain.OutcomeFailed,
		Reason: domain.ReasonHandlerError, StartedAt: b.pg.Now(), FinishedAt: b.pg.Now(),
	}})
	if err != nil || out.Dispositions[0] != engine.Settled {
		b.t.Fatalf("settle: %+v, %v", out, err)
	}
	return out
}

// A retry is planned at once for its due instant, and River's scheduling is not involved. That holds even directly
// after the leader of River's workers has stopped, because planning needs no leader.
func TestRetryIsPunctual(t *testing.T) {
	b := newBench(t)
	leader := b.work()
	b.insert(engine.FollowUp{RunID: domain.NewRunID(time.Now()), Retry: true, Attempt: 1}) // of no run; without it, the workers would rest
	b.eventually("River has a leader", func() bool { return b.count(`SELECT count(*) FROM `+migrations.RiverSchema+`.river_leader`) == 1 })
	b.work()
	f := &firer{b.pg, make(chan engine.LiveRun, 100)}
	b.background(scheduler.New(scheduler.Config{Store: b.pg, Firer: f, Log: slog.New(slog.DiscardHandler)}).Run)
	job := b.job("j", func(s *domain.JobSpec) { s.Retries = 3 }) // delays of 1 s, 2 s, 4 s
	if _, err := b.pg.Trigger(t.Context(), job, domain.Trigger{Cause: domain.CauseManual}); err != nil {
		t.Fatal(err)
	}
	r := f.next(t)
	for attempt, backoff := range []time.Duration{time.Second, 2 * time.Second} {
		if r.Attempt != attempt+1 {
			t.Fatalf("attempt %d is fired, want %d", r.Attempt, attempt+1)
		}
		if attempt == 1 {
			leader()
		}
		before := b.pg.Now()
		b.fail(r)
		after := b.pg.Now()
		r = f.next(t)
		least, most := before.Add(backoff*9/10), after.Add(backoff*11/10)
		if r.DueAt.Before(least.Add(-time.Millisecond)) || r.DueAt.After(most.Add(time.Millisecond)) {
			t.Errorf("attempt %d is due at %s, want %s to %s", r.Attempt, r.DueAt, least, most)
		}
		if r.BoundAt.Before(r.DueAt.Add(-time.Second)) {
			t.Errorf("attempt %d is due at %s and was fired at %s", r.Attempt, r.DueAt, r.BoundAt)
		}
		if n := b.count(`SELECT count(*) FROM ` + migrations.RiverSchema + `.river_job WHERE scheduled_at > created_at + interval '500 ms'`); n != 0 {
			t.Errorf("%d jobs wait for River's leader", n)
		}
	}
	select {
	case r := <-f.fired:
		t.Errorf("run %+v is fired again", r)
	default:
	}
}

func TestRetryRepeated(t *testing.T) {
	b := newBench(t)
	f := &firer{b.pg, make(chan engine.LiveRun, 100)}
	job := b.job("j", func(s *domain.JobSpec) {
		s.Retries, s.RetryBackoff = 3, domain.RetryBackoff{Initial: domain.Duration(time.Hour), Factor: 1, Max: domain.Duration(time.Hour)}
	})
	if _, err := b.pg.Trigger(t.Context(), job, domain.Trigger{Cause: domain.CauseManual}); err != nil {
		t.Fatal(err)
	}
	due, _, err := b.pg.ClaimNear(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fire(t.Context(), due); err != nil {
		t.Fatal(err)
	}
	r := f.next(t)
	b.fail(r)
	again := engine.FollowUp{Retry: true, RunID: r.ID, Attempt: 1}
	gone := engine.FollowUp{Retry: true, RunID: domain.NewRunID(time.Now()), Attempt: 1}
	b.insert(again, again, gone)
	b.work()
	b.worked(4)
	if n := b.count(`SELECT attempt FROM runs_live WHERE id = $1 AND replanned AND state = 'retrying'`, r.ID); n != 2 {
		t.Errorf("the run is in attempt %d", n)
	}
	// A follow-up that arrives when the run is already in its next attempt.
	b.insert(again)
	b.worked(5)
	if n := b.count(`SELECT attempt FROM runs_live WHERE id = $1`, r.ID); n != 2 {
		t.Errorf("the run is in attempt %d", n)
	}
}

func TestChild(t *testing.T) {
	b := newBench(t)
	child, deleted := b.job("child", func(s *domain.JobSpec) { s.Param = "the child's" }), b.job("deleted")
	if _, err := b.pg.DeleteJob(t.Context(), deleted, 0, "test"); err != nil {
		t.Fatal(err)
	}
	parent, end := domain.NewRunID(time.Now()), time.Now()
	up := engine.FollowUp{RunID: parent, ChildJob: child, EndedAt: end}
	b.insert(up, up, engine.FollowUp{RunID: parent, ChildJob: deleted, EndedAt: end})
	b.work()
	b.worked(3)
	b.insert(up)
	b.worked(4)
	if n := b.count(`SELECT count(*) FROM runs_live`); n != 1 {
		t.Errorf("%d runs", n)
	}
	if n := b.count(`SELECT count(*) FROM runs_live WHERE job_id = $1 AND parent_run_id = $2 AND cause = 'child' AND state = 'pending'`, child, parent); n != 1 {
		t.Errorf("%d runs of the child", n)
	}
	// It also has no effect if the child's run has ended in the meantime.
	f := &firer{b.pg, make(chan engine.LiveRun, 100)}
	due, _, err := b.pg.ClaimNear(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fire(t.Context(), due); err != nil {
		t.Fatal(err)
	}
	b.fail(f.next(t))
	b.insert(up)
	b.worked(5)
	if live, done := b.count(`SELECT count(*) FROM runs_live`), b.count(`SELECT count(*) FROM runs_history`); live != 0 || done != 1 {
		t.Errorf("%d live, %d final runs", live, done)
	}
}

// The run of a child ends at once if its group has too many unfinished runs. This is reported once, after the commit.
func TestChildBeyondTheLimit(t *testing.T) {
	b := newBench(t)
	b.exec(`UPDATE groups SET limits = '{"max_live_runs": 0}' WHERE name = 'g'`)
	child := b.job("child")
	ended := make(chan engine.Change, 10)
	b.pg.OnEnded(func(runs []engine.Change) {
		for _, r := range runs {
			if n := b.count(`SELECT count(*) FROM runs_history WHERE id = $1`, r.RunID); n != 1 {
				t.Errorf("run %s is reported before the commit", r.RunID)
			}
			ended <- r
		}
	})
	up := engine.FollowUp{RunID: domain.NewRunID(time.Now()), ChildJob: child, EndedAt: time.Now()}
	b.insert(up, up)
	stop := b.work()
	b.worked(2)
	stop() // the workers' functions have returned
	if len(ended) != 1 {
		t.Fatalf("%d runs are reported", len(ended))
	}
	if r := <-ended; r.JobID != child || r.State != domain.Skipped || r.Reason != domain.ReasonQueueFull || r.Cause != domain.CauseChild {
		t.Errorf("the ended run is %+v", r)
	}
}

// A transaction that is not committed has no follow-ups.
func TestInsertIsTheTransactions(t *testing.T) {
	b := newBench(t)
	tx := pgtest.Begin(t, b.pg.Pool())
	if err := b.queue.InsertTx(t.Context(), tx, []engine.FollowUp{{RunID: domain.NewRunID(time.Now()), ChildJob: 1, EndedAt: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(`SELECT count(*) FROM ` + migrations.RiverSchema + `.river_job`); n != 0 {
		t.Errorf("%d follow-ups", n)
	}
}

func TestWorkersLeakNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	b := newBench(t)
	stop := b.work()
	b.insert(engine.FollowUp{Retry: true, RunID: domain.NewRunID(time.Now()), Attempt: 1})
	b.worked(1)
	stop()
	b.pg.Close()
	goleak.VerifyNone(t, append(pgtest.IgnoreServer(), before)...)
}

// Postgres may be unavailable when the workers start. They retry, and the role does not end.
func TestWorkersStartWithoutPostgres(t *testing.T) {
	b := newBench(t)
	var refusals atomic.Int64
	refusals.Store(3)
	pool := b.pool(func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if refusals.Add(-1) >= 0 {
				return errors.New("away")
			}
			return nil
		}
	})
	w, err := followup.NewWorkers(pool, migrations.RiverSchema, b.pg, nil, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	stop := b.background(w.Run)
	b.insert(engine.FollowUp{RunID: domain.NewRunID(time.Now()), ChildJob: b.job("child"), EndedAt: time.Now()})
	b.worked(1)
	if refusals.Load() >= 0 {
		t.Error("the workers were not refused")
	}
	stop()
	refusals.Store(1 << 40)
	pool.Reset()
	b.background(w.Run)() // it can also be stopped while Postgres is unavailable
}
