package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// steadiness knows since when this process has been able to hear the instances without a break: connected to NATS
// and not stalled. Death verdicts rest on it, so that an outage of NATS, or a freeze of this process, kills nobody; and so
// does what is offered, which would be lost on a connection that the server has given up meanwhile.
type steadiness struct {
	nc          *nats.Conn
	reconnected func()
	enough      time.Duration // steadyEnough

	mu      sync.Mutex
	since   time.Time // monotonic; zero while NATS is away
	checked time.Time // when run last found that nothing is in doubt
}

// steadyEnough is how long the quiet of an instance must have been heard: its lease, and the time that its client
// may need to reconnect after an outage that hit all alike.
const steadyEnough = wire.LeaseTTL + 3*time.Second

const (
	stallCheck = 250 * time.Millisecond
	stall      = 2 * time.Second // a longer gap between two checks counts as having been away
	proofTime  = time.Second     // for the server's answer on a connection that is in doubt
)

func newSteadiness(nc *nats.Conn, reconnected func()) *steadiness {
	return &steadiness{nc: nc, reconnected: reconnected, enough: steadyEnough, checked: time.Now()}
}

func (s *steadiness) run(ctx context.Context) {
	connected, doubt := false, false
	reconnects := s.nc.Stats().Reconnects
	for {
		now := time.Now()
		stalled := s.sinceCheck(now) > stall
		up := s.nc.Status() == nats.CONNECTED
		again := s.nc.Stats().Reconnects
		if doubt = up && (doubt || stalled); doubt {
			doubt = s.nc.FlushTimeout(proofTime) != nil
		}
		s.mu.Lock()
		switch {
		case !up:
			s.since = time.Time{}
		case !connected, stalled, again != reconnects:
			s.since = now
		}
		if !doubt {
			s.checked = now
		}
		s.mu.Unlock()
		if up && (!connected || again != reconnects) {
			s.reconnected()
		}
		connected, reconnects = up, again
		if !pause(ctx, stallCheck) {
			return
		}
	}
}

// between is the larger of both clocks' difference: one stands still while a machine sleeps, the other can be set.
func between(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// sinceCheck is how long ago run found that nothing is in doubt.
func (s *steadiness) sinceCheck(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return between(s.checked, now)
}

// connected reports whether NATS is there. After a freeze it is not, until it has answered: whoever asks may be faster than
// run, and than the client, which holds its connection for good until it reads that the server has closed it.
func (s *steadiness) connected() bool {
	return s.nc.Status() == nats.CONNECTED && s.sinceCheck(time.Now()) <= stall
}

// forLong reports whether an instance that was not heard for its whole lease would have been, were it alive.
func (s *steadiness) forLong() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && time.Since(s.since) > s.enough && between(s.checked, time.Now()) <= stall
}
