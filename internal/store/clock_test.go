package store

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// If the wall clock is set forward or back, the estimate of the database's clock continues steadily, and the change is noticed.
// A suspended machine, during which only the wall clock continues, is noticed as well.
func TestClockIgnoresTheWall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wrong := time.Duration(0)
		wall := func() time.Time { return time.Now().Round(0).Add(wrong) }
		s := &Store{clock: clock{wall: wall}}
		db := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // the machine's own clock does not matter
		s.clock.reading.Store(&reading{db: db, at: time.Now(), wall: wall()})
		for _, jump := range []time.Duration{0, time.Minute, -time.Hour, 300 * time.Millisecond} {
			wrong = jump
			begun := s.Now()
			time.Sleep(time.Second)
			if got := s.Now().Sub(begun); got != time.Second {
				t.Errorf("with a clock set by %v a second lasted %v", jump, got)
			}
			if got, want := s.clock.stale(time.Now(), wall()), jump != 0; got != want {
				t.Errorf("with a clock set by %v the reading counts as stale: %v", jump, got)
			}
		}
		wrong = 0
		time.Sleep(clockPeriod)
		if !s.clock.stale(time.Now(), wall()) {
			t.Error("an old reading is not renewed")
		}
		if want := db.Add(4*time.Second + clockPeriod); !s.Now().Equal(want) {
			t.Errorf("it is %v, want %v", s.Now(), want)
		}
	})
}

func TestDisturbances(t *testing.T) {
	t.Parallel()
	const trip = 10 * time.Millisecond
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	begun := time.Now()
	old := reading{db: noon, at: begun, trip: trip}
	for name, c := range map[string]struct {
		passed, slept, db, trip time.Duration
		away                    bool
		want                    []domain.Disturbance
	}{
		"nothing":                       {2 * time.Second, 0, 2 * time.Second, trip, false, nil},
		"a slewed clock":                {time.Hour, 0, time.Hour + 3*time.Second, trip, false, nil},
		"a slow answer":                 {20 * time.Second, 0, 24 * time.Second, 8 * time.Second, false, nil},
		"a suspended machine":           {time.Second, time.Hour, time.Hour, trip, false, nil},
		"a small step":                  {2 * time.Second, 0, 2900 * time.Millisecond, trip, false, nil},
		"forward":                       {2 * time.Second, 0, 32 * time.Second, trip, false, []domain.Disturbance{{Kind: domain.ClockStep, From: noon, To: noon.Add(32 * time.Second), Step: 30 * time.Second}}},
		"back":                          {2 * time.Second, 0, -28 * time.Second, trip, false, []domain.Disturbance{{Kind: domain.ClockStep, From: noon, To: noon.Add(-28 * time.Second), Step: -30 * time.Second}}},
		"Postgres away":                 {time.Minute, 0, time.Minute, trip, true, []domain.Disturbance{{Kind: domain.PostgresAway, From: noon, To: noon.Add(time.Minute)}}},
		"a failover to another's clock": {time.Minute, 0, time.Minute - 5*time.Second, trip, true, []domain.Disturbance{{Kind: domain.PostgresAway, From: noon, To: noon.Add(time.Minute)}, {Kind: domain.ClockStep, From: noon, To: noon.Add(55 * time.Second), Step: -5 * time.Second}}},
	} {
		got := compare(&old, &reading{db: noon.Add(c.db), at: begun.Add(c.passed), boot: c.slept, trip: c.trip}, c.away)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// An absence of Postgres begins with the first question without an answer, whichever goroutine sent it. A reading that is older than
// the current one changes nothing.
func TestAbsence(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	begun := time.Now()
	after := func(d time.Duration) *reading { return &reading{db: noon.Add(d), at: begun.Add(d)} }
	c := clock{tolerance: 5 * time.Second}
	c.accept(after(0), begun)
	for _, d := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		c.ask(begun.Add(d))
	}
	if c.unanswered(begun.Add(6*time.Second)) || !c.unanswered(begun.Add(8*time.Second)) {
		t.Error("the absence does not count from the first question")
	}
	c.accept(after(9*time.Second), begun.Add(9*time.Second))
	c.ask(begun.Add(10 * time.Second))
	c.accept(after(7*time.Second), begun.Add(7*time.Second))
	if got, want := c.reading.Load().db, noon.Add(9*time.Second); !got.Equal(want) {
		t.Errorf("the reading is %s", got)
	}
	want := []domain.Disturbance{{Kind: domain.PostgresAway, From: noon, To: noon.Add(9 * time.Second)}}
	if got := c.takeFresh(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.takeFresh(); len(got) != 0 || len(c.known) != 1 {
		t.Errorf("%+v is reported twice", got)
	}
	// The same, but every question is answered slowly: Postgres was there.
	c.ask(begun.Add(20 * time.Second))
	c.accept(after(30*time.Second), begun.Add(24*time.Second))
	for i := range 2 * knownMax {
		c.ask(begun.Add(time.Duration(i+1) * time.Hour))
		c.accept(&reading{db: noon, at: begun.Add(time.Duration(i+1) * time.Hour)}, begun.Add(time.Duration(i+1)*time.Hour))
	}
	if len(c.known) != knownMax || len(c.takeFresh()) != knownMax {
		t.Errorf("%d disturbances are kept", len(c.known))
	}
}

// Planning that fails although Postgres answers other queries is an absence of Postgres, from the first failure to the next success. An
// absence that a reading of the clock has noticed is not noticed again.
func TestPlanningFails(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	unavailable := domain.NewError(domain.Unavailable, "locked")
	c := clock{tolerance: 5 * time.Second}
	c.planned(at(0), domain.NewError(domain.Internal, "not because of Postgres"))
	c.planned(at(10), unavailable)
	c.planned(at(14), nil)
	if got := c.takeFresh(); len(got) > 0 {
		t.Errorf("a short failure: %+v", got)
	}
	c.planned(at(20), unavailable)
	c.planned(at(30), unavailable)
	c.planningWorks(at(40))
	c.planned(at(39), nil)
	want := []domain.Disturbance{{Kind: domain.PostgresAway, From: at(20), To: at(40)}}
	if got := c.takeFresh(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c.planned(at(50), unavailable)
	c.add(domain.Disturbance{Kind: domain.PostgresAway, From: at(48), To: at(71)})
	c.planningWorks(at(72))
	if len(c.known) != 2 {
		t.Errorf("an absence is noticed twice: %+v", c.known)
	}
}
