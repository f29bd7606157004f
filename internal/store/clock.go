package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// clock estimates the database's clock: its newest reading plus the time that has passed on this process's monotonic clock. The
// estimate does not use the wall clock, because setting it forward would fire runs before they are due. The wall clock only
// serves as a check. If the two clocks disagree about how much time has passed, then either the wall clock was set, or the
// monotonic clock stood still while the machine slept, and the store reads the database's clock again.
//
// Each reading is compared with the one before it, to notice disturbances: a step of the database's clock, and a time
// without an answer. See the section about disturbances in doc.go.
type clock struct {
	wall      func() time.Time // constant
	tolerance time.Duration    // constant; how long Postgres may be away without a disturbance
	reading   atomic.Pointer[reading]

	mu    sync.Mutex
	asked time.Time            // guarded by mu; the first question since the last answer; zero if there is none
	stuck time.Time            // guarded by mu; since when planning fails, on the database's clock; zero if it works
	known []domain.Disturbance // guarded by mu; the newest ones, of at most knownMax
	fresh []domain.Disturbance // guarded by mu; those of known that KeepClock has not reported yet
}

// reading is one reading of the database's clock.
type reading struct {
	db   time.Time
	at   time.Time     // with a monotonic reading
	boot time.Duration // by the clock that continues while the machine sleeps; always 0 on some systems
	wall time.Time     // without a monotonic reading
	trip time.Duration // the error of db is at most half of it
}

const (
	clockPeriod  = 2 * time.Second        // between two readings
	clockCheck   = 500 * time.Millisecond // between two checks whether a reading is needed
	clockTimeout = 5 * time.Second        // of a reading by KeepClock
	clockApart   = 250 * time.Millisecond
	quickTrip    = 2 * time.Millisecond // a reading with a shorter round trip is not repeated

	// Between two readings, the clocks may drift apart by 1/maxSlew of the time, because each machine slews its clock by
	// up to 500 ppm. A difference is a step if it exceeds the sum of this drift, the error of the readings, and leastStep.
	leastStep = time.Second
	maxSlew   = 1000
	knownMax  = 16
)

// Now returns the estimated time of the database's clock, to the millisecond, without a query. SyncClock bounds its
// error.
func (s *Store) Now() time.Time {
	r := s.clock.reading.Load()
	return r.db.Add(time.Since(r.at)).UTC().Truncate(time.Millisecond)
}

// ClockOffset returns this process's wall clock minus the database's clock.
func (s *Store) ClockOffset() time.Duration { return s.clock.wall().Round(0).Sub(s.Now()) }

// SyncClock reads the database's clock up to three times and keeps the best reading. Its error is at most half its
// round trip.
func (s *Store) SyncClock(ctx context.Context) error { return s.readClock(ctx, s.q) }

func (s *Store) readClock(ctx context.Context, q *sqlcgen.Queries) error {
	s.clock.ask(time.Now())
	var chosen *reading
	var answered time.Time
	for try := 0; try < 3 && (chosen == nil || chosen.trip > quickTrip); try++ {
		sent := time.Now()
		db, err := q.Now(ctx)
		if err != nil {
			return pgerr.Translate(err)
		}
		came := time.Now()
		if answered.IsZero() {
			answered = came
		}
		if r := s.clock.read(sent, came, db); chosen == nil || r.trip < chosen.trip {
			chosen = r
		}
	}
	s.clock.accept(chosen, answered)
	return nil
}

// noteClock takes the instant db of the database's clock, which the answer to a statement had, as a reading. sent is when the statement was
// sent. An answer that took long is no reading: KeepClock makes one when it needs one.
func (s *Store) noteClock(sent, db time.Time) {
	came := time.Now()
	if r := s.clock.read(sent, came, db); r.trip <= quickTrip {
		s.clock.accept(r, came)
	}
}

// read returns a reading. db was read between sent and came.
func (c *clock) read(sent, came, db time.Time) *reading {
	trip := came.Sub(sent)
	return &reading{db: db.UTC().Add(trip / 2), at: came, boot: bootTime(), wall: c.wall().Round(0), trip: trip}
}

// KeepClock reads the database's clock periodically until ctx ends, and at once when this machine's clocks disagree. It
// calls failed with the first error of each outage, and noticed with each disturbance that any method of the store has
// noticed.
func (s *Store) KeepClock(ctx context.Context, failed func(error), noticed func(domain.Disturbance)) {
	tick := time.NewTicker(clockCheck)
	defer tick.Stop()
	for failing := false; ; {
		for _, d := range s.clock.takeFresh() {
			noticed(d)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.clock.stale(time.Now(), s.clock.wall()) {
			continue
		}
		within, cancel := context.WithTimeout(ctx, clockTimeout)
		err := s.SyncClock(within)
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			failed(err)
		}
		failing = err != nil
	}
}

// disturbances returns those that this process has noticed lately. now is the database's clock as a query of q's
// transaction has just read it. If it contradicts the estimate, or Postgres has just come back, disturbances first reads
// the clock again, so that decisions of the transaction know the cause of a delay.
func (s *Store) disturbances(ctx context.Context, q *sqlcgen.Queries, now time.Time) ([]domain.Disturbance, error) {
	if now.Sub(s.Now()).Abs() > leastStep || s.clock.unanswered(time.Now()) {
		if err := s.readClock(ctx, q); err != nil {
			return nil, err
		}
	}
	s.clock.planningWorks(now.UTC())
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return slices.Clone(s.clock.known), nil
}

// PlanningFails returns for how long planning has failed because Postgres could not complete it, for example because of a lock; 0 if the
// last attempt succeeded.
func (s *Store) PlanningFails() time.Duration {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	if s.clock.stuck.IsZero() {
		return 0
	}
	return max(s.Now().Sub(s.clock.stuck), 0)
}

// planned notes the outcome of an attempt to plan that began at the instant begun of the database's clock.
func (c *clock) planned(begun time.Time, err error) {
	if err == nil {
		c.planningWorks(begun)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stuck.IsZero() && domain.CodeOf(err) == domain.Unavailable {
		c.stuck = begun
	}
}

// planningWorks notes that a transaction plans at an instant of the database's clock. If planning failed for longer than the tolerance
// until then, Postgres was unavailable, although it may have answered other queries. A reading of the clock may have noticed the same.
func (c *clock) planningWorks(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.stuck
	c.stuck = time.Time{}
	if since.IsZero() || now.Sub(since) <= c.tolerance {
		return
	}
	noticed := func(d domain.Disturbance) bool {
		return d.Kind == domain.PostgresAway && !d.From.After(since.Add(c.tolerance)) && !d.To.Before(now.Add(-c.tolerance))
	}
	if !slices.ContainsFunc(c.known, noticed) {
		c.add(domain.Disturbance{Kind: domain.PostgresAway, From: since, To: now})
	}
}

// add adds disturbances that were noticed. The caller holds mu.
func (c *clock) add(found ...domain.Disturbance) {
	c.fresh = append(c.fresh, found...)
	c.known = append(c.known, found...)
	c.known = c.known[max(0, len(c.known)-knownMax):]
	c.fresh = c.fresh[max(0, len(c.fresh)-knownMax):]
}

func (c *clock) stale(now, wall time.Time) bool {
	r := c.reading.Load()
	passed := now.Sub(r.at)
	apart := wall.Round(0).Sub(r.wall) - passed
	return passed >= clockPeriod || apart.Abs() > clockApart
}

// ask notes that a question is sent.
func (c *clock) ask(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() {
		c.asked = now
	}
}

// unanswered reports whether Postgres has not answered for longer than the tolerance.
func (c *clock) unanswered(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.asked.IsZero() && now.Sub(c.asked) > c.tolerance
}

// accept makes r the current reading, unless a concurrent call has read the clock later. answered is when the first
// answer came.
func (c *clock) accept(r *reading, answered time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, asked := c.reading.Load(), c.asked
	c.asked = time.Time{}
	if old != nil && r.at.Before(old.at) {
		return
	}
	c.reading.Store(r)
	if old == nil {
		return
	}
	away := !asked.IsZero() && answered.Sub(asked) > c.tolerance
	c.add(compare(old, r, away)...)
}

// compare returns the disturbances between two readings. away means that Postgres did not answer in between.
func compare(old, r *reading, away bool) (found []domain.Disturbance) {
	passed := max(r.at.Sub(old.at), r.boot-old.boot)
	expected := old.db.Add(passed)
	if away {
		found = append(found, domain.Disturbance{Kind: domain.PostgresAway, From: old.db, To: expected})
	}
	step := r.db.Sub(expected).Round(time.Millisecond)
	if step.Abs() > leastStep+(old.trip+r.trip)/2+passed/maxSlew {
		found = append(found, domain.Disturbance{Kind: domain.ClockStep, From: old.db, To: r.db, Step: step})
	}
	return found
}

func (c *clock) takeFresh() []domain.Disturbance {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := c.fresh
	c.fresh = nil
	return fresh
}
