package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// clock estimates the database's clock: its newest reading plus the time that has passed on this process's monotonic clock. The
// estimate does not use the wall clock, because setting it forward would fire runs before they are due. The wall clock only
// serves as a check. If the two clocks disagree about how much time has passed, then either the wall clock was set, or the
// monotonic clock stood still while the machine slept, and the store reads the database's clock again.
type clock struct {
	wall    func() time.Time // constant
	reading atomic.Pointer[reading]
}

// reading is one reading of the database's clock.
type reading struct {
	db   time.Time
	at   time.Time // with a monotonic reading
	wall time.Time // without one
}

const (
	clockPeriod = 10 * time.Second // between two readings
	clockCheck  = time.Second      // between two checks whether the clocks disagree
	clockApart  = 250 * time.Millisecond
)

// Now returns the estimated time of the database's clock, to the millisecond, without a query. SyncClock bounds its
// error.
func (s *Store) Now() time.Time {
	r := s.clock.reading.Load()
	return r.db.Add(time.Since(r.at)).UTC().Truncate(time.Millisecond)
}

// SyncClock reads the database's clock three times and keeps the best reading. Its error is at most half its round
// trip.
func (s *Store) SyncClock(ctx context.Context) error {
	best := time.Duration(1<<63 - 1)
	var chosen *reading
	for range 3 {
		sent := time.Now()
		db, err := s.q.Now(ctx)
		if err != nil {
			return pgerr.Translate(err)
		}
		came := time.Now()
		if trip := came.Sub(sent); trip < best {
			best = trip
			chosen = &reading{db: db.UTC().Add(trip / 2), at: came, wall: s.clock.wall().Round(0)}
		}
	}
	s.clock.reading.Store(chosen)
	return nil
}

// KeepClock reads the database's clock periodically until ctx ends, and at once when this machine's clocks disagree. It
// calls failed with each error.
func (s *Store) KeepClock(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(clockCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !s.clock.stale(time.Now(), s.clock.wall()) {
			continue
		}
		if err := s.SyncClock(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}

func (c *clock) stale(now, wall time.Time) bool {
	r := c.reading.Load()
	passed := now.Sub(r.at)
	apart := wall.Round(0).Sub(r.wall) - passed
	return passed >= clockPeriod || apart.Abs() > clockApart
}
