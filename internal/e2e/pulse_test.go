//go:build unix

package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A promise that names a time holds on a machine that has time for it. pulse asks Postgres for nothing much, over and over,
// beside a test; a takeover is about steps such round trips, and is allowed what so many of the slowest one took.
type pulse struct {
	mu    sync.Mutex
	worst time.Duration // guarded by mu
}

const steps = 10

func newPulse(t *testing.T, db *pgxpool.Pool) *pulse {
	t.Helper()
	p := &pulse{}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		const rest = 20 * time.Millisecond
		tick := time.NewTimer(rest)
		for {
			begun := time.Now()
			tick.Reset(rest)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := db.Exec(ctx, `SELECT 1`); err != nil {
				continue // the test's own doing
			}
			p.mu.Lock()
			p.worst = max(p.worst, time.Since(begun)-rest)
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		t.Logf("the slowest pulse took %v", p.worst)
	})
	return p
}

// allowed is a promise's bound on this machine, as it has been since the test began.
func (p *pulse) allowed(bound time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bound + steps*p.worst
}
