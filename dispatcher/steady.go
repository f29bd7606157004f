package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/wire"
)

// steadiness knows since when this process has been able to hear the instances without a break: connected to NATS
// and not stalled. Death verdicts rest on it, so that an outage of NATS, or a freeze of this process, kills nobody.
type steadiness struct {
	nc          *nats.Conn
	reconnected func()
	enough      time.Duration // steadyEnough

	mu      sync.Mutex
	since   time.Time // monotonic; zero while NATS is away
	checked time.Time // when run last looked
}

// steadyEnough is how long the quiet of an instance must have been heard: its lease, and the time that its client
// may need to reconnect after an outage that hit all alike.
const steadyEnough = wire.LeaseTTL + 3*time.Second

const (
	stallCheck = 250 * time.Millisecond
	stall      = 2 * time.Second // a longer gap between two checks counts as having been away
)

func newSteadiness(nc *nats.Conn, reconnected func()) *steadiness {
	return &steadiness{nc: nc, reconnected: reconnected, enough: steadyEnough}
}

func (s *steadiness) run(ctx context.Context) {
	last := time.Now()
	connected := false
	reconnects := s.nc.Stats().Reconnects
	for {
		now := time.Now()
		gap := between(last, now)
		up := s.nc.Status() == nats.CONNECTED
		again := s.nc.Stats().Reconnects
		s.mu.Lock()
		switch {
		case !up:
			s.since = time.Time{}
		case !connected, gap > stall, again != reconnects:
			s.since = now
		}
		s.checked = now
		s.mu.Unlock()
		if up && (!connected || again != reconnects) {
			s.reconnected()
		}
		last, connected, reconnects = now, up, again
		if !pause(ctx, stallCheck) {
			return
		}
	}
}

// between is the larger of both clocks' difference: one stands still while a machine sleeps, the other can be set.
func between(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// connected reports whether NATS is there.
func (s *steadiness) connected() bool { return s.nc.Status() == nats.CONNECTED }

// forLong reports whether an instance that was not heard for its whole lease would have been, were it alive. After a
// freeze whoever asks may be faster than run, so that the gap is looked for here as well.
func (s *steadiness) forLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && time.Since(s.since) > s.enough && between(s.checked, time.Now()) <= stall
}
