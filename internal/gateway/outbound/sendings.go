package outbound

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// sending is an attempt whose request will be made as soon as that is recorded.
type sending struct {
	t *tender
	a *address.Attempt
}

const (
	mostSends = 100                  // in one statement
	sendRest  = 8 * time.Millisecond // between two statements: many runs are due at the same instant
)

// recordSends records that the requests of attempts will be made now, and returns the instants of those that may be made, by log id. Attempts that are due at the same
// instant, at whatever addresses, are recorded together.
func (f *Fleet) recordSends(sendings []sending) (map[int64]time.Time, error) {
	ids := make([]int64, len(sendings))
	var tenders []*tender
	var holds []gateway.Hold
	of := make(map[*tender][]*address.Attempt)
	for i, s := range sendings {
		ids[i] = s.a.LogID
		if of[s.t] == nil {
			tenders, holds = append(tenders, s.t), append(holds, s.t.address.Hold())
		}
		of[s.t] = append(of[s.t], s.a)
	}
	begun := clock.Now()
	ctx, cancel := context.WithTimeout(f.work, storeTime)
	defer cancel()
	sentAt, left, err := f.Sends.Send(ctx, f.Owner, holds, ids)
	if err != nil {
		return nil, err
	}
	for i, t := range tenders {
		if left[i] > 0 {
			(&carrier{t}).recorded(of[t], begun, left[i], sentAt)
		}
	}
	return sentAt, nil
}

// recorded notes what a statement that began at begun has recorded: instants by log id, and the rest of the lease.
func (t *carrier) recorded(attempts []*address.Attempt, begun clock.Instant, left time.Duration, sentAt map[int64]time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The row has the lease that Postgres saw. If a renewal came later, the tender knows a longer one.
	if held := begun.Add(left - Lease); clock.Since(t.lease, held) > 0 {
		t.lease = held
	}
	for _, a := range attempts {
		if at, moved := sentAt[a.LogID]; moved {
			a.Sent = begun
			t.machine.Sends(a, at)
		}
	}
}
