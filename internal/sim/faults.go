package sim

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// dice draws the random numbers of a world while it runs.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, 2))} }

// chance returns true with a probability.
func (d *dice) chance(p float64) bool {
	if p <= 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < p
}

// between draws a duration from lo to hi.
func (d *dice) between(lo, hi time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return lo + time.Duration(d.rng.Int64N(int64(hi-lo)+1))
}

// faults are the current faults of the network and of Postgres. They implement simnats.Faults.
type faults struct {
	dice                         *dice
	loss, spikes, fails, unknown atomic.Int64 // probabilities in millionths
	awayUntil                    atomic.Int64 // end of the outage of Postgres, in Unix nanoseconds
}

// Delay implements simnats.Faults.
func (f *faults) Delay(string) time.Duration {
	if f.dice.chance(probability(&f.spikes)) {
		return f.dice.between(0, 800*time.Millisecond)
	}
	return f.dice.between(50*time.Microsecond, time.Millisecond)
}

// Lose implements simnats.Faults.
func (f *faults) Lose(string, string) bool { return f.dice.chance(probability(&f.loss)) }

func (f *faults) databaseAway() bool { return time.Now().UnixNano() < f.awayUntil.Load() }

// storeFails draws whether a transaction fails.
func (f *faults) storeFails() bool { return f.dice.chance(probability(&f.fails)) }

// storeUnknown draws whether the caller of a committed transaction receives an error.
func (f *faults) storeUnknown() bool { return f.dice.chance(probability(&f.unknown)) }

// clear ends all faults.
func (f *faults) clear() {
	for _, p := range []*atomic.Int64{&f.loss, &f.spikes, &f.fails, &f.unknown, &f.awayUntil} {
		p.Store(0)
	}
}

func probability(millionths *atomic.Int64) float64 { return float64(millionths.Load()) / 1e6 }
