package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// The search for the maximum has two steps. A ramp raises the rate until fires are late, which gives an estimate. Then
// rates near the estimate are held for as long as the baseline runs.
const (
	rampStep   = 5 * time.Second
	rampGrowth = 1.1
	rampSteps  = 15
	holdFor    = 15 * time.Second
	holdGrowth = 1.04
	holdTries  = 16
	lateAtEnd  = time.Second     // a rate is not sustained if fires are later than this at the end of its step or hold
	lateStop   = 3 * time.Second // the load ends if fires are later than this
)

var errTooBusy = errors.New("the machine is too busy to measure")

// search finds the highest rate that the engine sustains.
type search struct {
	*rig
	found int // runs a second that the last search found; 0: none yet
}

// run returns the figures of the highest sustained rate. It takes an estimate from a ramp that starts at begin, or at
// half of it if begin itself is not sustained.
//
// A later search starts at the rate that the last one found, because a short search leaves less time for the machine's
// speed to change between the baseline and the engine.
func (s *search) run(ctx context.Context, begin int) (f Figures, err error) {
	defer func() { s.found = int(f["max_per_s"]) }()
	if s.found > 0 {
		if f, err := s.hold(ctx, s.found); !errors.Is(err, errTooBusy) {
			return f, err
		}
		s.display.say("the machine became much slower: the search starts again")
	}
	for {
		most, err := s.ramp(ctx, begin)
		switch last := rampRate(begin, rampSteps-1); {
		case err != nil:
			return nil, err
		case most >= last:
			begin = last
		case most > 0:
			return s.hold(ctx, most)
		case begin < 20:
			return nil, errors.New("not even 10 fires a second were sustained")
		default:
			s.display.say("%d/s were not sustained; starting with %d/s", begin, begin/2)
			begin /= 2
		}
	}
}

// ramp returns the rate of the highest step that was sustained, or zero if none was.
func (s *search) ramp(ctx context.Context, begin int) (most int, err error) {
	e := engineRun{rig: s.rig, stop: lateStop, of: func(from time.Time) load { return ramp(from, begin, s.config.Spread) }}
	if _, err := e.run(ctx); err != nil {
		return 0, err
	}
	// A late step does not end the ramp, because another program on this machine may have been the cause.
	for k := range rampSteps {
		if e.sustained(e.from.Add(time.Duration(k+1) * rampStep)) {
			most = rampRate(begin, k)
		}
	}
	return most, nil
}

// hold holds rates near an estimate, and returns the figures of the highest rate that was sustained.
func (s *search) hold(ctx context.Context, estimate int) (best Figures, err error) {
	tries := holds{rate: float64(estimate)}
	for rate := tries.next(); rate > 0; rate = tries.next() {
		e := engineRun{rig: s.rig, stop: lateStop, of: func(from time.Time) load {
			return load{Sets: []set{{N: rate, From: from, For: holdFor, Spread: s.config.Spread}}}
		}}
		f, err := e.run(ctx)
		if err != nil {
			return nil, err
		}
		held := e.sustained(e.from.Add(holdFor))
		s.display.say("%s/s for %v: sustained: %t", thousands(float64(rate)), holdFor, held)
		if tries.was(held) {
			// The last fires are due a second before the end, so fires_per_s can be higher than the offered rate.
			f.set("max_per_s", min(float64(rate), f["fires_per_s"]))
			best = f
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: no rate near %d/s was sustained for %v", errTooBusy, estimate, holdFor)
	}
	return best, nil
}

// holds decides which rate is held next: lower rates until one is sustained, or higher rates until one is not, and then
// one between the two. A rate fails only when it was not sustained twice, because another program on this machine may
// have been the cause the first time.
type holds struct {
	rate   float64 // the next to try
	best   float64 // the highest that was sustained, 0: none yet
	above  float64 // the lowest that was not sustained, 0: none yet
	failed bool    // rate failed once
	last   bool    // rate is between best and above
	tries  int
}

// next returns the rate to try, or 0 if the search is over.
func (h *holds) next() int {
	if h.tries++; h.tries > holdTries {
		return 0
	}
	return int(h.rate)
}

// was receives the result of the try, and reports whether its rate is the best so far.
func (h *holds) was(sustained bool) bool {
	if !sustained && !h.failed {
		h.failed = true
		return false
	}
	h.failed = false
	if sustained {
		h.best = h.rate
	} else {
		h.above = h.rate
	}
	switch {
	case h.last:
		h.tries = holdTries
	case h.above == 0:
		h.rate *= holdGrowth
	case h.best == 0:
		h.rate /= holdGrowth
	default:
		h.rate, h.last = (h.best+h.above)/2, true
	}
	return sustained
}

func rampRate(begin, step int) int { return int(float64(begin) * math.Pow(rampGrowth, float64(step))) }

// ramp returns a load that grows step by step.
func ramp(from time.Time, begin int, spread bool) load {
	var l load
	had := 0
	for k := range rampSteps {
		rate := rampRate(begin, k)
		l.Sets = append(l.Sets, set{
			N: rate - had, From: from.Add(time.Duration(k) * rampStep), For: time.Duration(rampSteps-k) * rampStep, Spread: spread,
		})
		had = rate
	}
	return l
}
