// Package lifecycle starts the components of a process in order and stops them in order.
//
// Components start one after the other, each when the one before it is ready. They stop in the reverse order,
// one at a time, so that whoever hands out work is gone before whoever does it. What fails first stops all.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// DefaultStopTimeout is how long a component may take to stop where its StopTimeout is 0.
const DefaultStopTimeout = 30 * time.Second

// ErrStopTimeout is in the error of Run when a component did not return in time after its context was
// cancelled. Its goroutines are still there, so the process should end.
var ErrStopTimeout = errors.New("did not stop in time")

// Component is a part of a process that runs until its context is cancelled.
type Component struct {
	Name string // for errors
	// Run blocks until all it started has ended. Cancelling ctx means: take no more work, finish, return nil.
	// Returning before that, with or without an error, stops the whole group.
	Run func(ctx context.Context) error
	// Ready is closed when the next component may start. Nil means at once.
	Ready <-chan struct{}
	// StopTimeout bounds the time from cancellation to return; 0 means DefaultStopTimeout.
	StopTimeout time.Duration
}

// Group runs components. The zero value is empty and ready to use. It is not for use by several goroutines.
type Group struct{ components []Component }

// Add appends a component: it starts after those added before it and stops before them.
func (g *Group) Add(c Component) { g.components = append(g.components, c) }

// running is a component that was started. done is closed after err was written.
type running struct {
	Component
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts all components, waits until ctx is cancelled or one of them returns, and stops all that were
// started. It returns nil after an ordinary stop, else every error, joined, each under its component's name.
func (g *Group) Run(ctx context.Context) error {
	ended := make(chan *running, len(g.components))
	var started []*running
	var errs []error
	for _, c := range g.components {
		if ctx.Err() != nil {
			break
		}
		r := start(ctx, c, ended)
		started = append(started, r)
		if first := awaitReady(ctx, c.Ready, ended); first != nil {
			errs = append(errs, first.early(ctx))
			return errors.Join(append(errs, stop(started, first)...)...)
		}
	}
	if ctx.Err() == nil && len(started) > 0 {
		select {
		case <-ctx.Done():
		case first := <-ended:
			errs = append(errs, first.early(ctx))
			return errors.Join(append(errs, stop(started, first)...)...)
		}
	}
	return errors.Join(stop(started, nil)...)
}

// start runs c in a goroutine under a context that only stop cancels: were it ctx's child, all components would
// see the end at once and the order would be lost.
func start(ctx context.Context, c Component, ended chan<- *running) *running {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Component: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer func() {
			if v := recover(); v != nil {
				r.err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
			close(r.done)
			ended <- r // has room for every component
		}()
		r.err = c.Run(own)
	}()
	return r
}

// awaitReady returns a component that ended before ready was closed, nil if none did or ctx was cancelled.
func awaitReady(ctx context.Context, ready <-chan struct{}, ended <-chan *running) *running {
	if ready == nil {
		return nil
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return nil
	case first := <-ended:
		return first
	}
}

// early is the error of a component that returned before it was told to.
func (r *running) early(ctx context.Context) error {
	err := r.err
	if err == nil && ctx.Err() == nil {
		err = errors.New("ended by itself")
	}
	if err == nil {
		return nil // both came at once
	}
	return fmt.Errorf("%s: %w", r.Name, err)
}

// stop cancels components from the last to the first and waits for each. The error of the one that is already
// reported is left out.
func stop(started []*running, reported *running) []error {
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		r := started[i]
		r.cancel()
		if r == reported {
			continue
		}
		limit := r.StopTimeout
		if limit == 0 {
			limit = DefaultStopTimeout
		}
		timer := time.NewTimer(limit)
		select {
		case <-r.done:
			if r.err != nil && !errors.Is(r.err, context.Canceled) {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
			}
		case <-timer.C:
			errs = append(errs, fmt.Errorf("%s: %w (%s)", r.Name, ErrStopTimeout, limit))
		}
		timer.Stop()
	}
	return errs
}
