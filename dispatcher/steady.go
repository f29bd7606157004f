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

	mu    sync.Mutex
	since time.Time // monotonic; zero while NATS is away
}

// steadyEnough is how long the quiet of an instance must have been heard: its lease, and the time that its client
// may need to reconnect after an outage that hit all alike.
const steadyEnough = wire.LeaseTTL + 3*time.Second

const (
	stallCheck = 250 * time.Millisecond
	stall      = 2 * time.Second // a longer gap between two checks counts as having been away
)

func newSteadiness(nc *nats.Conn, reconnected func()) *steadiness {
	return &steadiness{nc: nc, reconnected: reconnected}
}

func (s *steadiness) run(ctx context.Context) {
	last := time.Now()
	connected := false
	reconnects := s.nc.Stats().Reconnects
	for {
		now := time.Now()
		// The larger of both clocks: one stands still while a machine sleeps, the other can be set.
		gap := max(now.Sub(last), now.Round(0).Sub(last.Round(0)))
		up := s.nc.Status() == nats.CONNECTED
		again := s.nc.Stats().Reconnects
		s.mu.Lock()
		switch {
		case !up:
			s.since = time.Time{}
		case !connected, gap > stall, again != reconnects:
			s.since = now
		}
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

// connected reports whether NATS is there.
func (s *steadiness) connected() bool { return s.nc.Status() == nats.CONNECTED }

// forLong reports whether an instance that was not heard for its whole lease would have been, were it alive.
func (s *steadiness) forLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && time.Since(s.since) > steadyEnough
}
