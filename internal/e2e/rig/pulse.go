//go:build unix

package rig

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"testing"
	"time"
)

// Pulse measures the stalls of the machine while a test runs. It repeats one step and measures its duration. Like most work of
// Belfry, the step waits for a timer, computes for some milliseconds, and asks a server.
type Pulse struct {
	mu    sync.Mutex
	worst time.Duration // guarded by mu
	slow  []Stall       // guarded by mu
}

// Stall is a step that took 50 ms or longer.
type Stall struct {
	From time.Time
	Took time.Duration
}

const (
	conspicuous = 50 * time.Millisecond
	maxStalls   = 100_000 // more than an hour of stalls only
)

// Steps is the number of steps that a takeover or a verdict consists of, one after the other: timers, statements, messages and
// their answers. A promise allows this number of times the slowest step.
const Steps = 10

// StartPulse measures until the test ends. ask is the round trip to a server that a step includes; nil means none. A step
// whose ask fails does not count, because the test itself may have taken the server away.
func StartPulse(t testing.TB, ask func(context.Context) error) *Pulse {
	t.Helper()
	p := &Pulse{}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { p.run(ctx, ask) })
	t.Cleanup(func() {
		stop()
		done.Wait()
		t.Logf("the slowest step of the pulse took %v", p.Worst())
	})
	return p
}

func (p *Pulse) run(ctx context.Context, ask func(context.Context) error) {
	const rest = 50 * time.Millisecond
	work := make([]byte, 4<<20)
	tick := time.NewTimer(rest)
	for {
		begin := time.Now()
		tick.Reset(rest)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sum := sha256.Sum256(work)
		copy(work, sum[:])
		if ask != nil && ask(ctx) != nil {
			continue
		}
		took := time.Since(begin) - rest
		p.mu.Lock()
		p.worst = max(p.worst, took)
		if took >= conspicuous && len(p.slow) < maxStalls {
			p.slow = append(p.slow, Stall{begin, took})
		}
		p.mu.Unlock()
	}
}

// Worst returns how long the slowest step has taken until now.
func (p *Pulse) Worst() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worst
}

// Stalls returns the steps that took 50 ms or longer.
func (p *Pulse) Stalls() []Stall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.slow)
}

// Allowed returns the bound of a promise on this machine: the bound plus the stalls that the pulse has measured.
func (p *Pulse) Allowed(bound time.Duration) time.Duration { return bound + Steps*p.Worst() }
