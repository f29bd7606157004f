package store_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// Two processes create the partitions of the same day at the same time. The second one waits for the first one, and neither fails.
func TestDaysAreMadeOnce(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"make_day", "make_event_day"} {
		t.Run(function, func(t *testing.T) {
			s, _ := openAt(t, pgtest.Database(t, store.Migrate))
			makeDay := `SELECT ` + function + `(current_date + 100)`
			first := pgtest.Begin(t, s.Pool())
			defer first.Rollback(t.Context()) //nolint:errcheck // it is committed below
			if _, err := first.Exec(t.Context(), makeDay); err != nil {
				t.Fatal(err)
			}
			second := make(chan error, 1)
			go func() {
				_, err := s.Pool().Exec(t.Context(), makeDay)
				second <- err
			}()
			waitUntil(t, func() bool {
				return query[int64](t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) == 1
			})
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-second; err != nil {
				t.Error(err)
			}
		})
	}
}
