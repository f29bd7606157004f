package store

import (
	"testing"

	"github.com/belfryhq/belfry/internal/pgtest"
)

// The statement of the probe reads the clock too, so a process that only probes Postgres sends no other statement for it.
func TestCheckReadsTheClock(t *testing.T) {
	s, err := Open(t.Context(), Config{URL: pgtest.Database(t, Migrate), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	before := s.clock.reading.Load()
	for s.clock.reading.Load() == before { // an answer that took long is no reading
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
