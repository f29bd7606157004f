package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// watched returns a function that lists what KeepClock of a store has noticed so far.
func watched(t *testing.T, s *store.Store) func() []domain.Disturbance {
	t.Helper()
	var mu sync.Mutex
	var found []domain.Disturbance
	ctx, stop := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() {
		s.KeepClock(ctx, func(err error) { t.Logf("cannot read the clock: %v", err) }, func(d domain.Disturbance) {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, d)
		})
	})
	t.Cleanup(func() { stop(); g.Wait() })
	return func() []domain.Disturbance {
		mu.Lock()
		defer mu.Unlock()
		return append([]domain.Disturbance(nil), found...)
	}
}

// await waits until KeepClock has noticed more than n disturbances, and returns the next one.
func await(t *testing.T, noticed func() []domain.Disturbance, n int) domain.Disturbance {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(noticed()) <= n {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("nothing was noticed")
		}
	}
	return noticed()[n]
}

// The clock of a real Postgres steps forward and back. Two processes notice each step, and it is recorded once.
func TestStepsOfTheDatabaseClock(t *testing.T) {
	t.Parallel()
	url, clock := pgtest.DatabaseWithClock(t, store.Migrate)
	var stores []*store.Store
	var noticed []func() []domain.Disturbance
	for range 2 {
		s, _ := openAt(t, url)
		stores = append(stores, s)
		noticed = append(noticed, watched(t, s))
	}
	offset := stores[0].ClockOffset()
	for i, step := range []time.Duration{30 * time.Second, -30 * time.Second} {
		clock.Set(max(step, 0))
		for p, s := range stores {
			d := await(t, noticed[p], i)
			if d.Kind != domain.ClockStep || (d.Step-step).Abs() > time.Second || d.Back() != (step < 0) {
				t.Errorf("process %d noticed %+v, want a step of %s", p, d, step)
			}
			if wrong := s.ClockOffset() - offset + max(step, 0); wrong.Abs() > time.Second {
				t.Errorf("process %d estimates the clock wrongly by %s", p, wrong)
			}
			if err := s.RecordDisturbance(t.Context(), d, "a test"); err != nil {
				t.Fatal(err)
			}
		}
		if n := query[int](t, stores[0], `SELECT count(*) FROM disturbances`); n != i+1 {
			t.Errorf("%d disturbances are recorded, want %d", n, i+1)
		}
	}
	for p := range stores {
		if n := len(noticed[p]()); n != 2 {
			t.Errorf("process %d noticed %d steps: %+v", p, n, noticed[p]())
		}
	}
}

// The ledger names the step, although planning ran before KeepClock noticed it.
func TestMissedBecauseOfAStep(t *testing.T) {
	t.Parallel()
	url, clock := pgtest.DatabaseWithClock(t, store.Migrate)
	s, _ := openAt(t, url)
	exec(t, s, `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`)
	job := create(t, s, "j", func(sp *domain.JobSpec) {
		sp.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
		sp.Misfire = domain.MisfireSkip
	})
	clock.Set(time.Minute)
	if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, s, `SELECT why_note::json->>0 FROM missed WHERE job_id = $1`, job.ID); got != "clock_stepped" {
		t.Errorf("the reason is %s", got)
	}
	clock.Set(0)
	if _, err := s.PlanDue(t.Context(), 10, false); err != nil {
		t.Fatal(err)
	}
	doubled := query[int](t, s, `SELECT count(*) FROM runs_live l JOIN missed m ON l.job_id = m.job_id AND l.fire_time BETWEEN m.first_fire_time AND m.last_fire_time`)
	if doubled != 0 {
		t.Errorf("%d fire times have a run and a ledger entry", doubled)
	}
}

// Old disturbances are deleted, and each scheduler extends the absence of Postgres that another one has recorded.
func TestRecordedDisturbances(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	now := s.Now()
	exec(t, s, `INSERT INTO disturbances (kind, from_at, to_at, seen_by, seen_at) SELECT 'postgres_away', d, d, 'x', d FROM (SELECT now() - interval '40 days') x(d)`)
	for _, d := range []domain.Disturbance{
		{Kind: domain.PostgresAway, From: now.Add(-60 * time.Second), To: now.Add(-20 * time.Second)},
		{Kind: domain.PostgresAway, From: now.Add(-59 * time.Second), To: now.Add(-10 * time.Second)},
		{Kind: domain.ClockStep, From: now.Add(-60 * time.Second), To: now.Add(-28 * time.Second), Step: 30 * time.Second},
		{Kind: domain.ClockStep, From: now.Add(-59 * time.Second), To: now.Add(-27 * time.Second), Step: 30 * time.Second},
		{Kind: domain.ClockStep, From: now.Add(-28 * time.Second), To: now.Add(-56 * time.Second), Step: -30 * time.Second},
	} {
		if err := s.RecordDisturbance(t.Context(), d, "a test"); err != nil {
			t.Fatal(err)
		}
	}
	got := query[string](t, s, `SELECT string_agg(concat_ws(' ', kind, extract(epoch FROM from_at - $1)::int, extract(epoch FROM to_at - $1)::int, step_ms), ', ' ORDER BY id) FROM disturbances`, now)
	if want := "postgres_away -60 -10 0, clock_step -59 -28 30000, clock_step -28 -56 -30000"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
