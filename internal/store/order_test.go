package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// TestLocksAreTakenInOrder has two processes fire, mark, bind again and settle the same runs in opposite orders.
// Each run has one winner; a deadlock would be an error.
func TestLocksAreTakenInOrder(t *testing.T) {
	url := pgtest.Database(t, store.Migrate)
	a, _ := openAt(t, url)
	b, _ := openAt(t, url)
	exec(t, a, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	free := create(t, a, "free", parallel)
	for range 15 {
		trigger(t, a, free.ID, 40)
		for i := range 20 {
			create(t, a, t.Name()+domain.NewRunID(a.Now()).String(), func(sp *domain.JobSpec) {
				if i%2 == 0 {
					instanceScope(sp)
				}
			})
		}
		for _, id := range column[int64](t, a, `SELECT id FROM jobs WHERE name <> 'free' ORDER BY id DESC LIMIT 20`) {
			trigger(t, a, domain.JobID(id), 1)
		}
		runs := claim(t, a)
		both := func(do func(s *store.Store, backwards bool) error) {
			t.Helper()
			var g errgroup.Group
			g.Go(func() error { return do(a, false) })
			g.Go(func() error { return do(b, true) })
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		bound := make([]engine.LiveRun, 0, len(runs))
		won := make(chan []engine.LiveRun, 2)
		both(func(s *store.Store, backwards bool) error {
			in := admissions(t, s, runs)
			if backwards {
				slices.Reverse(in)
			}
			out, err := s.Admit(t.Context(), in)
			won <- out.Bound
			return err
		})
		bound = append(append(bound, <-won...), <-won...)
		if len(bound) != len(runs) {
			t.Fatalf("%d of %d runs were bound", len(bound), len(runs))
		}
		reversed := slices.Clone(bound)
		slices.Reverse(reversed)
		pick := func(backwards bool) []engine.LiveRun {
			if backwards {
				return reversed
			}
			return bound
		}
		both(func(s *store.Store, backwards bool) error {
			_, err := s.RaiseBinds(t.Context(), pick(backwards))
			return err
		})
		both(func(s *store.Store, backwards bool) error {
			var in []store.Started
			for _, r := range pick(backwards) {
				in = append(in, store.Started{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: s.Now()})
			}
			_, err := s.MarkRunning(t.Context(), in)
			return err
		})
		counts := make(chan int, 2)
		both(func(s *store.Store, backwards bool) error {
			var in []engine.Ended
			for _, r := range pick(backwards) {
				in = append(in, result(s, r, domain.OutcomeSucceeded))
			}
			res, err := s.Settle(t.Context(), in)
			n := 0
			for _, d := range res.Dispositions {
				if d == engine.Settled {
					n++
				}
			}
			counts <- n
			return err
		})
		if n := <-counts + <-counts; n != len(runs) {
			t.Fatalf("%d runs were settled %d times", len(runs), n)
		}
	}
}

// A run that is planned or retried while its job is being deleted ends with the job's other runs.
func TestDeleteSeesConcurrentRuns(t *testing.T) {
	for _, what := range []string{"a new run", "a retry"} {
		t.Run(what, func(t *testing.T) {
			s, ups := open(t)
			job := create(t, s, "a", func(sp *domain.JobSpec) { sp.Retries = 1 })
			conn := other(t, s)
			deleted := make(chan error, 1)
			remove := func() { // begins to delete the job, and waits until the deletion waits for the open transaction
				go func() {
					_, err := s.DeleteJob(t.Context(), job.ID, 0, "test")
					deleted <- err
				}()
				waitUntil(t, func() bool {
					var n int
					err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n)
					return err != nil || n > 0 || len(deleted) > 0
				})
			}
			if what == "a new run" {
				tx := pgtest.Begin(t, s.Pool())
				if _, err := s.PlanChildTx(t.Context(), tx, domain.NewRunID(s.Now()), job.ID, s.Now()); err != nil {
					t.Fatal(err)
				}
				remove()
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				run := start(t, s, job.ID)
				s.UseFollowUps(during{ups, remove})
				settle(t, s, settled, result(s, run, domain.OutcomeFailed))
			}
			if err := <-deleted; err != nil {
				t.Fatal(err)
			}
			if n := query[int64](t, s, `SELECT count(*) FROM runs_live`); n != 0 {
				t.Errorf("%d runs of the deleted job are left", n)
			}
			if reason := query[string](t, s, `SELECT reason FROM runs_history`); reason != "job_deleted" {
				t.Errorf("the run ended for %s", reason)
			}
		})
	}
}

// during calls a function in the middle of a settling transaction.
type during struct {
	*recorded
	do func()
}

func (d during) InsertTx(ctx context.Context, tx pgx.Tx, ups []engine.FollowUp) error {
	d.do()
	return d.recorded.InsertTx(ctx, tx, ups)
}
