package executor

import (
	"bytes"
	"encoding/hex"
	"time"
)

// generations remembers attempts for some time: no shorter than memory, or minMemory where that is asked for, and
// hardly longer. Hundreds of thousands are remembered on a busy instance, so they are kept as numbers, which
// the garbage collector need not look at, and are forgotten a generation at a time. Ids of runs begin with the time, and
// those of about one time are kept together: what is looked for is mostly new, so that this finds it missing in what a
// CPU's cache holds, where one map of all would be a walk to memory for each.
type generations struct {
	count  int
	recent [memory/generationLength + 1]generation // newest first
}

// generationLength is so short that where room is asked for, hardly more is remembered than must be.
const generationLength = minMemory / 8

type generation struct {
	began time.Duration // on the monotonic clock
	last  time.Duration // when the newest was added
	until idTime        // the newest that it has
	count int
	keys  map[idTime]map[endedKey]struct{}
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

// add remembers an attempt from now on, unless its key does not fit.
func (g *generations) add(k attemptKey, now time.Duration) bool {
	key, ok := endedKeyOf(k)
	if !ok {
		return false
	}
	g.sweep(now, false)
	newest := &g.recent[0]
	if newest.keys == nil {
		newest.began, newest.keys = now, make(map[idTime]map[endedKey]struct{})
	}
	newest.add(key)
	newest.last = now
	g.recount()
	return true
}

// has reports whether an attempt is remembered.
func (g *generations) has(k attemptKey) bool {
	if g.count == 0 {
		return false
	}
	key, ok := endedKeyOf(k)
	if !ok {
		return false
	}
	at := idTime(key.run[:])
	for i := range g.recent {
		old := &g.recent[i]
		if old.count == 0 || bytes.Compare(at[:], old.until[:]) > 0 {
			continue // which is nearly always found so: runs are looked for that have just begun
		}
		if _, ok := old.keys[at][key]; ok {
			return true
		}
	}
	return false
}

// sweep forgets what is old enough. Crowded asks for room: then generations live no longer than they must.
func (g *generations) sweep(now time.Duration, crowded bool) {
	lives := memory
	if crowded {
		lives = minMemory
	}
	oldest := len(g.recent) - 1
	// The newest is closed when it is long enough, and the oldest, for which it would need the place, may go.
	if g.recent[0].keys != nil && now-g.recent[0].began >= generationLength && g.recent[oldest].gone(now, lives) {
		copy(g.recent[1:], g.recent[:oldest])
		g.recent[0] = generation{}
	}
	for i := range g.recent {
		if g.recent[i].keys != nil && g.recent[i].gone(now, lives) {
			g.recent[i] = generation{}
		}
	}
	g.recount()
}

func (g *generations) recount() {
	g.count = 0
	for i := range g.recent {
		g.count += g.recent[i].count
	}
}

func (g *generation) add(key endedKey) {
	at := idTime(key.run[:])
	if bytes.Compare(at[:], g.until[:]) > 0 {
		g.until = at
	}
	keys := g.keys[at]
	if keys == nil {
		keys = make(map[endedKey]struct{})
		g.keys[at] = keys
	}
	before := len(keys)
	keys[key] = struct{}{}
	g.count += len(keys) - before
}

func (g *generation) gone(now, lives time.Duration) bool { return g.keys == nil || now-g.last >= lives }
