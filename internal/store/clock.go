package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// clock is the database's clock as this process knows it: its own clock plus a measured offset.
type clock struct{ offset atomic.Int64 }

// Now returns the database's clock, to the millisecond, without asking it. SyncClock bounds the error.
func (s *Store) Now() time.Time {
	return time.Now().Add(time.Duration(s.clock.offset.Load())).UTC().Truncate(time.Millisecond)
}

// Offset returns how far the database's clock is ahead of this process's.
func (s *Store) Offset() time.Duration { return time.Duration(s.clock.offset.Load()) }

// SyncClock measures the offset: the best of three readings, each wrong by half its round trip at most.
func (s *Store) SyncClock(ctx context.Context) error {
	best := time.Duration(1<<63 - 1)
	for range 3 {
		sent := time.Now()
		db, err := s.q.Now(ctx)
		if err != nil {
			return pgerr.Translate(err)
		}
		trip := time.Since(sent)
		if trip < best {
			best = trip
			// Round(0) drops the monotonic reading: the offset is between wall clocks.
			s.clock.offset.Store(int64(db.Sub(sent.Round(0).Add(trip / 2))))
		}
	}
	return nil
}
