package app

import (
	"context"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

const (
	probePeriod  = 2 * time.Second
	probeTimeout = 2 * time.Second
	// JetStream elects a new leader of a stream within a few seconds after a server is lost. This is no outage.
	electionGrace = 5 * time.Second
)

// A probe checks a server in the background and keeps the result, so that neither /readyz nor a scrape waits for the server.
type probe struct {
	name  string
	check func(context.Context) error
	grace time.Duration // how long the server counts as available after the last success
	// said logs that the server became unavailable or, if err is nil, that it is available again.
	said  func(ctx context.Context, err error)
	ready chan struct{} // closed after the first success

	mu        sync.Mutex
	err       error         // guarded by mu; of the last check
	succeeded time.Time     // guarded by mu; when the last successful check began; zero: none yet
	took      time.Duration // guarded by mu; the last check
}

func newProbe(name string, grace time.Duration, check func(context.Context) error, said func(context.Context, error)) *probe {
	return &probe{name: name, check: check, grace: grace, said: said, ready: make(chan struct{}),
		err: domain.NewError(domain.Unavailable, name+" was not checked yet")}
}

// Err returns nil if the server is available. It does not wait.
func (p *probe) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || !p.succeeded.IsZero() && time.Since(p.succeeded) < p.grace {
		return nil
	}
	return p.err
}

// Took returns how long the last check took.
func (p *probe) Took() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took
}

// run checks the server until ctx ends.
func (p *probe) run(ctx context.Context) error {
	var was error // what was said last
	for first := true; ; {
		succeeded := p.once(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the context is no failure
		}
		if succeeded && first {
			first = false
			close(p.ready)
		}
		if now := p.Err(); (now == nil) != (was == nil) {
			was = now
			p.said(ctx, now)
		}
		if !lifecycle.Rest(ctx, probePeriod) {
			return nil
		}
	}
}

func (p *probe) once(ctx context.Context) (succeeded bool) {
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := p.check(limited)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err, p.took = err, time.Since(begun)
	if err == nil {
		p.succeeded = begun
	}
	return err == nil
}
