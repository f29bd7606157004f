package peer

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// hearing tracks since when this process can receive heartbeats without an interruption: it is connected to NATS and was not
// stalled. Death verdicts depend on it, so that neither an outage of NATS nor a freeze of this process makes a run lost.
// Offers depend on it too, because the server may have closed the connection during a freeze.
type hearing struct {
	nc          *nats.Conn
	reconnected func()
	enough      time.Duration // see heardEnough

	mu      sync.Mutex
	since   time.Time // monotonic; zero while NATS is unavailable
	checked time.Time // when Run last found the connection usable
}

// heardEnough is how long this process must have been able to receive heartbeats before missing ones are evidence of a death. It
// is the lease plus the time that an instance may need to reconnect after an outage that affected both.
const heardEnough = wire.LeaseTTL + 3*time.Second

const (
	checkPeriod  = 250 * time.Millisecond
	stall        = 2 * time.Second // a longer gap between two checks counts as an interruption
	probeTimeout = time.Second     // for the server's answer after an interruption
)

func newHearing(nc *nats.Conn, enough time.Duration, reconnected func()) *hearing {
	if enough <= 0 {
		enough = heardEnough
	}
	return &hearing{nc: nc, reconnected: reconnected, enough: enough, checked: time.Now()}
}

// Run checks the connection until ctx ends.
func (h *hearing) Run(ctx context.Context) {
	connected, doubt := false, false
	reconnects := h.nc.Stats().Reconnects
	for {
		now := time.Now()
		stalled := h.sinceCheck(now) > stall
		up := h.nc.Status() == nats.CONNECTED
		again := h.nc.Stats().Reconnects
		if doubt = up && (doubt || stalled); doubt {
			doubt = h.nc.FlushTimeout(probeTimeout) != nil
		}
		h.mu.Lock()
		switch {
		case !up:
			h.since = time.Time{}
		case !connected, stalled, again != reconnects:
			h.since = now
		}
		if !doubt {
			h.checked = now
		}
		h.mu.Unlock()
		if up && (!connected || again != reconnects) {
			h.reconnected()
		}
		connected, reconnects = up, again
		if !lifecycle.Rest(ctx, checkPeriod) {
			return
		}
	}
}

// Connected reports whether NATS is available. After a freeze, it returns false until NATS has answered, because the client
// library treats a connection as open until it reads that the server has closed it.
func (h *hearing) Connected() bool {
	return h.nc.Status() == nats.CONNECTED && h.sinceCheck(time.Now()) <= stall
}

// HeardForLong reports whether this process would have heard a live instance by now, after a whole lease without a
// heartbeat.
func (h *hearing) HeardForLong() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	//sim:seam heard-for-long
	return !h.since.IsZero() && time.Since(h.since) > h.enough && between(h.checked, time.Now()) <= stall
}

// Suspect makes Connected return false until NATS has answered, as after a freeze of this process. Tests call it.
func (h *hearing) Suspect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checked = time.Now().Add(-stall - time.Second)
}

// sinceCheck returns how long ago Run last found the connection usable.
func (h *hearing) sinceCheck(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return between(h.checked, now)
}

// between returns the larger difference of the monotonic and the wall clock. The monotonic clock stands still while a
// machine is suspended, and the wall clock can be set.
func between(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
