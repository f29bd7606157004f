// Package glance saves the statements of loops that would find nothing. One statement says once a second which of them may find something.
package glance

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/internal/engine"
)

// Store defines the database operation that a Glance needs.
type Store interface {
	Glance(ctx context.Context) (engine.Glance, error)
}

// fresh is the maximum age of an answer. A loop that runs every second finds something a second later at most than without a Glance. It is less than a second, because
// many loops look at the same instant of each second.
const fresh = 900 * time.Millisecond

// Glance looks at the database for several loops. It is safe for concurrent use.
type Glance struct {
	store Store

	turn chan struct{} // holds a token while no loop looks; the token guards the other fields
	at   time.Time
	last engine.Glance
}

// New returns a Glance.
func New(store Store) *Glance {
	g := &Glance{store: store, turn: make(chan struct{}, 1)}
	g.turn <- struct{}{}
	return g
}

// Look returns what may be found, as of at most fresh ago.
func (g *Glance) Look(ctx context.Context) (engine.Glance, error) {
	select {
	case <-g.turn:
		defer func() { g.turn <- struct{}{} }()
	case <-ctx.Done():
		return engine.Glance{}, ctx.Err()
	}
	if !g.at.IsZero() && time.Since(g.at) < fresh {
		return g.last, nil
	}
	begun := time.Now()
	last, err := g.store.Glance(ctx)
	if err != nil {
		return last, err
	}
	g.at, g.last = begun, last
	return last, nil
}
