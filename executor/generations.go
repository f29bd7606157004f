package executor

import (
	"bytes"
	"encoding/hex"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// generations remembers the outcomes of attempts: for outcomeMemory, or for the newest outcomesMax attempts, whichever is
// less; but none for less than minMemory. Hundreds of thousands are remembered on a busy instance, so they are kept as
// numbers, which the garbage collector need not look at, and are forgotten a generation at a time. Ids of runs begin with
// the time, and those of about one time are kept together: most attempts that are looked up are new, and a lookup finds
// that out in what a CPU's cache holds, where one map of all would cost a walk to memory for each.
type generations struct {
	count int
	kept  []generation // oldest first
}

const (
	// outcomeMemory and outcomesMax bound what is remembered of attempts that ended, whichever is less.
	outcomeMemory = 10 * time.Minute
	outcomesMax   = 200_000
	// generationLength is so short that where room is asked for, hardly more is remembered than must be.
	generationLength = minMemory / 8
)

type generation struct {
	began time.Duration // on the monotonic clock
	last  time.Duration // when the newest was added
	until idTime        // the newest that it has
	count int
	keys  map[idTime]map[endedKey]outcome
}

// outcome is a handler's outcome in one byte.
type outcome uint8

const (
	noOutcome outcome = iota
	succeeded
	failed
	cancelled
)

func outcomeOf(text string) outcome {
	switch text {
	case wire.Succeeded:
		return succeeded
	case wire.Failed:
		return failed
	case wire.Cancelled:
		return cancelled
	}
	return noOutcome
}

// String returns the wire's word, "" for noOutcome.
func (o outcome) String() string {
	return [...]string{noOutcome: "", succeeded: wire.Succeeded, failed: wire.Failed, cancelled: wire.Cancelled}[o]
}

// idTime is the time that a run's id begins with, in steps of 256 ms.
type idTime [5]byte

// endedKey is an attemptKey whose run is a UUID as Belfry writes them.
type endedKey struct {
	run     [16]byte
	attempt int32
}

func endedKeyOf(k attemptKey) (e endedKey, ok bool) {
	const dashed = 36
	if len(k.run) != dashed || k.run[8] != '-' || k.run[13] != '-' || k.run[18] != '-' || k.run[23] != '-' {
		return e, false
	}
	e.attempt = int32(k.attempt)
	if int(e.attempt) != k.attempt {
		return e, false
	}
	var digits [32]byte
	n := 0
	for i := range dashed {
		c := k.run[i]
		if c >= 'A' && c <= 'F' {
			return e, false // another text of the same number, and so another key
		}
		if i != 8 && i != 13 && i != 18 && i != 23 {
			digits[n] = c
			n++
		}
	}
	_, err := hex.Decode(e.run[:], digits[:])
	return e, err == nil
}

// add remembers the outcome of an attempt from now on, unless its key does not fit.
func (g *generations) add(k attemptKey, o outcome, now time.Duration) bool {
	key, ok := endedKeyOf(k)
	if !ok {
		return false
	}
	g.sweep(now, false)
	if n := len(g.kept); n == 0 || now-g.kept[n-1].began >= generationLength {
		g.kept = append(g.kept, generation{began: now, keys: make(map[idTime]map[endedKey]outcome)})
	}
	newest := &g.kept[len(g.kept)-1]
	before := newest.count
	newest.add(key, o)
	newest.last = now
	g.count += newest.count - before
	return true
}

// find returns the outcome of an attempt that is remembered.
func (g *generations) find(k attemptKey) (outcome, bool) {
	if g.count == 0 {
		return noOutcome, false
	}
	key, ok := endedKeyOf(k)
	if !ok {
		return noOutcome, false
	}
	at := idTime(key.run[:])
	for i := len(g.kept) - 1; i >= 0; i-- {
		old := &g.kept[i]
		if bytes.Compare(at[:], old.until[:]) > 0 {
			continue // nearly always: most lookups are for runs that have just begun
		}
		if o, ok := old.keys[at][key]; ok {
			return o, true
		}
	}
	return noOutcome, false
}

// sweep forgets what is old enough. If crowded, it forgets all that is older than minMemory.
func (g *generations) sweep(now time.Duration, crowded bool) {
	n := 0
	for ; n < len(g.kept); n++ {
		old := &g.kept[n]
		age := now - old.last
		if age < minMemory || (age < outcomeMemory && !crowded && g.count <= outcomesMax) {
			break
		}
		g.count -= old.count
	}
	if n > 0 {
		g.kept = append(g.kept[:0], g.kept[n:]...)
		clear(g.kept[len(g.kept):cap(g.kept)])
	}
}

func (g *generation) add(key endedKey, o outcome) {
	at := idTime(key.run[:])
	if bytes.Compare(at[:], g.until[:]) > 0 {
		g.until = at
	}
	keys := g.keys[at]
	if keys == nil {
		keys = make(map[endedKey]outcome)
		g.keys[at] = keys
	}
	before := len(keys)
	keys[key] = o
	g.count += len(keys) - before
}
