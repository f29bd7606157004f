package executor

import (
	"bytes"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// generations remembers the outcomes of attempts for outcomeMemory. If there are more than outcomesMax, it forgets the
// oldest earlier, but none before minMemory. A busy instance remembers hundreds of thousands of outcomes. They are
// stored without pointers, so that the garbage collector need not scan them, and are forgotten one generation at a
// time.
// Run ids begin with their time, and ids of about the same time are stored together. Most lookups are for new attempts.
// Such a lookup reads only data that fits into a CPU's cache. With one map for all attempts, each lookup would read main
// memory.
type generations struct {
	count int
	kept  []generation // oldest first
}

const (
	// outcomeMemory and outcomesMax bound the remembered outcomes. The stricter one applies.
	outcomeMemory = 10 * time.Minute
	outcomesMax   = 200_000
	// generationLength is short, so that sweep with crowded leaves few outcomes that are older than minMemory.
	generationLength = minMemory / 8
)

type generation struct {
	began time.Duration // on the monotonic clock
	last  time.Duration // when the newest outcome was added
	until idTime        // the newest id time in this generation
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

// String returns the outcome's name on the wire, or "" for noOutcome.
func (o outcome) String() string {
	return [...]string{noOutcome: "", succeeded: wire.Succeeded, failed: wire.Failed, cancelled: wire.Cancelled}[o]
}

// idTime is the time at the start of a run's id, in steps of 256 ms.
type idTime [5]byte

// endedKey is an attemptKey whose run is a UUID in Belfry's spelling.
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
	digits := k.run
	for i := range e.run {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			digits = digits[1:]
		}
		high, low := hexDigits[digits[0]], hexDigits[digits[1]]
		if high|low > 0xf {
			return e, false
		}
		e.run[i] = high<<4 | low
		digits = digits[2:]
	}
	return e, true
}

// hexDigits has the value of each lower-case hexadecimal digit, and 0xff for other bytes. A number in another spelling is another key.
var hexDigits = func() (values [256]byte) {
	for i := range values {
		values[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		values[c] = byte(i)
	}
	return values
}()

// add remembers the outcome of an attempt. It returns false if the key is not a UUID in Belfry's spelling or the
// attempt number is too large.
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

// find returns the outcome of an attempt, if it is remembered.
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
			continue // the usual case: most lookups are for runs that have just begun
		}
		if o, ok := old.keys[at][key]; ok {
			return o, true
		}
	}
	return noOutcome, false
}

// sweep forgets generations that are old enough. If crowded, it forgets all that are older than minMemory.
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
