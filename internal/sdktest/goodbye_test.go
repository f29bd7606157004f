package sdktest

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/executor/wire"
)

// farAway connects to a server from which everything arrives late.
type farAway struct{}

func (farAway) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return farConn{c}, err
}

type farConn struct{ net.Conn }

func (c farConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	<-time.After(20 * time.Millisecond)
	return n, err
}

// Offers that arrive while an executor ends are refused, or the server says that they have no receiver. An offer without an answer
// would count as possibly accepted, and its attempt would be declared lost.
func TestStopAnswersTheLastOffers(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.NATSOptions = []nats.Option{nats.SetCustomDialer(farAway{})}
	i := w.start(c, succeed())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var refused, without atomic.Int64
	var senders sync.WaitGroup
	for range 16 {
		senders.Go(func() {
			for {
				// The handler is not registered, so the executor refuses these offers before it drains, too.
				data := wire.Encode(wire.Offers{V: wire.Version, BootID: i.boot, Offers: []wire.Offer{newOffer("r", "missing")}})
				_, err := w.nc.RequestWithContext(ctx, wire.TriggerSubject("g", i.name), data)
				switch {
				case errors.Is(err, nats.ErrNoResponders):
					return
				case err != nil:
					without.Add(1)
					return
				}
				refused.Add(1)
			}
		})
	}
	for refused.Load() < 100 && ctx.Err() == nil {
		must(t, w.nc.Flush())
	}
	must(t, i.end())
	senders.Wait()
	if n := without.Load(); n > 0 {
		t.Errorf("%d offers got no answer, %d were refused", n, refused.Load())
	}
}
