package peer

import (
	"context"
	"errors"
	"sync"
)

// Lanes runs the work of one loop for each group apart, so that instances that do not answer delay only the work for their own
// group. Create one with NewLanes. One goroutine calls Do.
type Lanes struct {
	free chan struct{}
	work sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool // guarded by mu; groups for which a call is in progress
	errs []error         // guarded by mu; of calls that have ended
}

const (
	maxLanes      = 32 // calls in progress; a group has at most one
	maxLaneErrors = 8  // that Err returns
)

// NewLanes returns lanes without work.
func NewLanes() *Lanes {
	return &Lanes{free: make(chan struct{}, maxLanes), busy: make(map[string]bool)}
}

// Idle reports whether no call for a group is in progress.
func (l *Lanes) Idle(group string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy[group]
}

// Do calls f in the background, for groups that are idle. If maxLanes calls are in progress, it waits until one of them has
// ended, and does nothing if ctx ends first.
func (l *Lanes) Do(ctx context.Context, groups []string, f func() error) {
	select {
	case l.free <- struct{}{}:
	case <-ctx.Done():
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, group := range groups {
		l.busy[group] = true
	}
	l.work.Go(func() {
		defer func() { <-l.free }()
		err := f()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, group := range groups {
			delete(l.busy, group)
		}
		if err != nil && len(l.errs) < maxLaneErrors {
			l.errs = append(l.errs, err)
		}
	})
}

// Err returns the errors of the calls that have ended since the last Err, but not more than a few.
func (l *Lanes) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.errs...)
	l.errs = nil
	return err
}

// Wait returns when no call is in progress.
func (l *Lanes) Wait() { l.work.Wait() }
