// Package lifecycle starts the components of a process in order and stops them in order.
//
// Components start one after another, each when the previous one is ready. They stop in reverse order, one at a time,
// so that a component that hands out work stops before the component that does the work. The first failure stops all
// components.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// DefaultStopTimeout is how long a component may take to stop if its StopTimeout is 0.
const DefaultStopTimeout = 30 * time.Second

// ErrStopTimeout is part of Run's error if a component did not return in time after its context was cancelled. Its
// goroutines still run, so the process should exit.
var ErrStopTimeout = errors.New("did not stop in time")

// Component is a part of a process that runs until its context is cancelled.
type Component struct {
	Name string // for errors
	// Run blocks until everything it started has ended. When ctx is cancelled, Run must take no more work, finish, and
	// return nil. If Run returns earlier, with or without an error, the whole group stops.
	Run func(ctx context.Context) error
	// Ready is closed when the next component may start. Nil means immediately.
	Ready <-chan struct{}
	// StopTimeout bounds the time from cancellation to return; 0 means DefaultStopTimeout.
	StopTimeout time.Duration
}

// Group runs components. The zero value is an empty group. A Group is not safe for concurrent use.
type Group struct{ components []Component }

// Add appends a component. It starts after those added before it and stops before them.
func (g *Group) Add(c Component) { g.components = append(g.components, c) }

// running is a started component. done is closed after err was written.
type running struct {
	Component
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts all components, waits until ctx is cancelled or one of them returns, and stops all that were started. It
// returns nil after an ordinary stop, otherwise all errors joined, each with its component's name.
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

// start runs c in a goroutine. Only stop cancels its context: if it were a child of ctx, all components would be
// cancelled at once, and the stop order would be lost.
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

// awaitReady returns a component that ended before ready was closed, or nil if none did or ctx was cancelled.
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

// early returns the error of a component that returned before it was stopped.
func (r *running) early(ctx context.Context) error {
	err := r.err
	if err == nil && ctx.Err() == nil {
		err = errors.New("ended by itself")
	}
	if err == nil {
		return nil // the component returned while ctx was being cancelled, which is no failure
	}
	return fmt.Errorf("%s: %w", r.Name, err)
}

// stop cancels components from the last to the first and waits for each. It leaves out the error of the component that
// is already reported.
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
