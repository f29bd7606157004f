package natsauth

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	authSubject  = "$SYS.REQ.USER.AUTH"
	queueGroup   = "belfry_auth"
	workers      = 16
	flushTimeout = 2 * time.Second
)

// Responder answers the log-ins that NATS servers forward by auth callout.
type Responder struct {
	cfg     Config
	known   *verified
	gates   *gates
	waiting *queue[login]
	samples *samples
	ready   chan struct{}
	once    sync.Once
	*metrics

	allowed, fromCache, refused, unavailable, limited, droppedLogins, malformedLogins atomic.Int64
}

// New returns a Responder that answers nothing until Run is called. The error has code invalid if Config is incomplete
// or Issuer is not an account key with its seed.
func New(cfg Config) (*Responder, error) {
	if cfg.Account == "" {
		cfg.Account = DefaultAccount
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = DefaultLifetime
	}
	if cfg.CacheSize == 0 {
		cfg.CacheSize = DefaultCacheSize
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var faults domain.Faults
	if cfg.Verifier == nil {
		faults.Add("verifier", "is required")
	}
	if cfg.Lifetime < 2*time.Second {
		faults.Add("lifetime", "must be at least 2s")
	}
	if err := checkIssuer(cfg.Issuer); err != nil {
		faults.Add("issuer", err.Error())
	}
	known, err := newVerified(cfg.CacheSize)
	if err != nil {
		faults.Add("cache_size", err.Error())
	}
	if err := faults.Err("NATS log-ins"); err != nil {
		return nil, err
	}
	gates, err := newGates(cfg.Limits)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "prepare the limits of log-ins", err)
	}
	r := &Responder{
		cfg: cfg, known: known, gates: gates, waiting: newQueue[login](), samples: newSamples(cfg.Log), ready: make(chan struct{}),
	}
	if cfg.Sessions != nil {
		r.metrics = cfg.Sessions.metrics
	} else {
		r.metrics = newMetrics(cfg.Registry)
	}
	return r, nil
}

var errConnectionClosed = domain.NewError(domain.Unavailable, "the NATS connection that answers log-ins was closed")

// Run answers log-ins that arrive on nc, a connection of the system side, until ctx is cancelled. Before it returns, it
// answers the log-ins in progress. It continues after reconnects, and fails only if nc is closed.
func (r *Responder) Run(ctx context.Context, nc *nats.Conn) error {
	requests := make(chan *nats.Msg, maxWaiting)
	for _, subscribe := range []func() (*nats.Subscription, error){
		func() (*nats.Subscription, error) { return nc.ChanQueueSubscribe(authSubject, queueGroup, requests) },
		func() (*nats.Subscription, error) { return nc.Subscribe(changedSubject, r.changed) },
		func() (*nats.Subscription, error) { return nc.Subscribe(closedSubject, r.closed) },
	} {
		sub, err := subscribe()
		if err != nil {
			return domain.WrapError(domain.Unavailable, "subscribe to NATS log-ins", err)
		}
		defer func() {
			if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
				r.cfg.Log.Warn("cannot unsubscribe from NATS log-ins, the subscription ends with the connection", "err", err)
			}
		}()
	}
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-closed:
			cancel(errConnectionClosed)
		case <-ctx.Done():
		}
	})
	wg.Go(func() { r.announce(ctx, nc) })
	wg.Go(func() { r.sort(ctx, requests) })
	wg.Go(func() { r.review(ctx) })
	for range workers {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errConnectionClosed) {
		return cause
	}
	return nil
}

// announce closes ready when the server has confirmed the subscription, however long it is unreachable.
func (r *Responder) announce(ctx context.Context, nc *nats.Conn) {
	for ctx.Err() == nil && !nc.IsClosed() {
		flushCtx, cancel := context.WithTimeout(ctx, flushTimeout)
		err := nc.FlushWithContext(flushCtx)
		if err == nil {
			cancel()
			r.once.Do(func() { close(r.ready) })
			return
		}
		<-flushCtx.Done() // a flush that failed at once must not be retried before its time
		cancel()
	}
}

// Ready is closed when the first Run has subscribed, so that executors in the same process need not retry.
func (r *Responder) Ready() <-chan struct{} { return r.ready }

// review asks periodically whether the tokens in the cache are still valid, so that one that ended shortly before an
// outage is not accepted in it.
func (r *Responder) review(ctx context.Context) {
	if r.cfg.Directory == nil {
		return
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.reviewCache(ctx); err != nil && ctx.Err() == nil {
			r.samples.warn("cannot check the tokens in memory, retrying", "", err)
		}
	}
}

func (r *Responder) reviewCache(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	gone, err := invalid(ctx, r.cfg.Directory, r.known.users(""))
	if err == nil {
		r.known.removeUsers(gone)
	}
	return err
}

// Stats counts the answers of a Responder since its start.
type Stats struct {
	Allowed     int64 // by the Verifier
	FromCache   int64 // allowed from the cache while the Verifier was unavailable
	Refused     int64 // unknown token
	Unavailable int64 // refused because the Verifier was unavailable and the token not in the cache
	Limited     int64 // refused because of a limit of the group
	Dropped     int64 // not answered, because too many log-ins waited
	Malformed   int64 // requests that were not a client's log-in
}

// Stats returns the current counters.
func (r *Responder) Stats() Stats {
	return Stats{
		Allowed:     r.allowed.Load(),
		FromCache:   r.fromCache.Load(),
		Refused:     r.refused.Load(),
		Unavailable: r.unavailable.Load(),
		Limited:     r.limited.Load(),
		Dropped:     r.droppedLogins.Load(),
		Malformed:   r.malformedLogins.Load(),
	}
}
