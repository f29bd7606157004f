package store_test

import (
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/domain"
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
		bound := make([]domain.LiveRun, 0, len(runs))
		won := make(chan []domain.LiveRun, 2)
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
		pick := func(backwards bool) []domain.LiveRun {
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
				in = append(in, store.Started{RunID: r.ID, Attempt: 1, Instance: r.Instance, BootID: r.BootID, StartedAt: s.Now()})
			}
			_, err := s.MarkRunning(t.Context(), in)
			return err
		})
		counts := make(chan int, 2)
		both(func(s *store.Store, backwards bool) error {
			var in []domain.Ended
			for _, r := range pick(backwards) {
				in = append(in, result(s, r, domain.OutcomeSucceeded))
			}
			res, err := s.Settle(t.Context(), in)
			n := 0
			for _, d := range res.Dispositions {
				if d == domain.Settled {
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
