package executor

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// attemptKey names an attempt of a run.
type attemptKey struct {
	run     string
	attempt int
}

const (
	// offerAge is the age, on the database's clock, up to which a binding that is offered without a beat is accepted.
	offerAge = 10 * time.Second
	// memory is how long the ledger remembers an attempt that it refused, barred or handed back. Attempts that ran are
	// remembered longer: see generations. It must exceed the 10 s for which an offer can be taken by far, so that a late
	// duplicate finds either the memory or its age against it.
	memory = 60 * time.Second
	// maxRemembered bounds all memories. Beyond it the oldest are dropped, but none younger than minMemory: the ledger
	// refuses offers instead.
	maxRemembered = 1 << 20
	minMemory     = 2 * offerAge
)

// entryState is what the ledger knows of an attempt; its values are the wire's.
type entryState string

const (
	accepted entryState = wire.StatusAccepted
	running  entryState = wire.StatusRunning
	done     entryState = wire.StatusDone
	refused  entryState = wire.StatusRefused
	barred   entryState = wire.StatusBarred
	unknown  entryState = wire.StatusUnknown
)

// entry is the ledger's record of one attempt.
type entry struct {
	state     entryState
	bind      int    // the highest seen; its result names it
	reason    string // of a refusal
	killed    string // reason of a kill that came after the acceptance
	startedAt time.Time
	outcome   outcome
	slot      bool // holds a slot
	unstarted bool // done without having been started
	foreign   bool // done in an earlier boot
	settled   bool
	forgetAt  time.Duration // on the monotonic clock; 0 is never
}

// ledger decides which offers are taken and which attempts start. It is a pure state machine: it reads no clock,
// holds no lock and does no I/O. Its owner guards it.
type ledger struct {
	capacity int
	taken    int
	draining bool
	seq      int64
	entries  map[attemptKey]*entry
	// fading holds what is to be forgotten, by time. An item counts only while its entry still names that time.
	fading []fade
	// ended holds the outcomes of what ran in this boot and is settled, which is nearly all that is remembered.
	ended generations
}

type fade struct {
	key attemptKey
	at  time.Duration
}

func newLedger(capacity int) *ledger {
	return &ledger{capacity: capacity, entries: make(map[attemptKey]*entry)}
}

// bid is what the ledger must know of an offer and of the moment it is judged in.
type bid struct {
	key       attemptKey
	bind      int
	now       instant
	beat      bool   // the offer names the heartbeat that it relies on
	stale     bool   // it may not start any more: its beat is unknown or too old; without a beat, see engine.oldRules
	leaseOver bool   // only for an offer without a beat
	spoolFull bool   // there may be no room for the result
	refuse    string // no_handler or unsupported, where there is nobody to run it
}

// verdict is the answer to a bid: accepted, ended with an outcome, or else refused. Fresh is the entry of an attempt that took
// a slot just now and starts at its due instant, otherwise nil. Silent means that no answer may be given: the ledger could
// accept an offer whose refusal it cannot remember, so the dispatcher must ask and send a new offer.
type verdict struct {
	accepted bool
	ended    outcome
	reason   string
	fresh    *entry
	silent   bool
}

// ran is the verdict on an attempt that this boot has run. An older server does not know the answer "ended".
func ran(o outcome, b bid) verdict {
	if b.beat && o != noOutcome {
		return verdict{ended: o}
	}
	return verdict{accepted: true}
}

// judge answers an offer.
func (l *ledger) judge(b bid) verdict {
	l.sweep(b.now)
	e := l.entries[b.key]
	if e != nil {
		if v, known := e.answer(b); known {
			e.bind = max(e.bind, b.bind)
			return v
		}
		e.bind = b.bind
	} else if o, ok := l.ended.find(b.key); ok {
		return ran(o, b)
	}
	reason := l.refusal(b)
	if reason == "" {
		e = &entry{state: accepted, bind: b.bind, slot: true}
		l.entries[b.key] = e
		l.taken++
		l.seq++
		return verdict{accepted: true, fresh: e}
	}
	if e == nil {
		if l.remembered() >= maxRemembered {
			return verdict{reason: reason, silent: true}
		}
		e = &entry{bind: b.bind}
		l.entries[b.key] = e
	}
	e.state, e.reason, e.unstarted, e.settled = refused, reason, false, false
	l.fade(b.key, e, b.now)
	return verdict{reason: reason}
}

// answer is the verdict on an attempt that the ledger knows; known is false where it is to be judged anew.
func (e *entry) answer(b bid) (v verdict, known bool) {
	stale := verdict{reason: wire.RefusedStale}
	switch e.state {
	case barred:
		return stale, true
	case refused:
		if b.bind > e.bind {
			return verdict{}, false
		}
		if b.bind < e.bind {
			return stale, true
		}
		return verdict{reason: e.reason}, true
	case done:
		if e.foreign {
			return stale, true // bound to this boot, but it ended in an earlier one: its result will tell
		}
		if e.unstarted {
			return e.answerHandedBack(b)
		}
		return ran(e.outcome, b), true
	case unknown, accepted, running:
	}
	return verdict{accepted: true}, true
}

// answerHandedBack answers an offer of an attempt that was accepted and reported as unstarted. That report names the bind
// that it answers. When the report is settled, an offer under a higher bind is a new binding and is judged anew. Until then,
// and under the same bind, it is refused: the report is on the way, and there is never more than one to tell apart.
func (e *entry) answerHandedBack(b bid) (v verdict, known bool) {
	if e.settled && !e.slot && e.killed == "" && b.bind > e.bind {
		return verdict{}, false
	}
	return verdict{reason: wire.RefusedStale}, true
}

// refusal says why a new offer is not taken, or "".
func (l *ledger) refusal(b bid) string {
	switch {
	case b.stale:
		return wire.RefusedStale
	case l.draining:
		return wire.RefusedDraining
	case b.leaseOver:
		return wire.RefusedLease
	case b.refuse != "":
		return b.refuse
	case b.spoolFull, l.taken >= l.capacity, l.remembered() >= maxRemembered:
		return wire.RefusedFull
	}
	return ""
}

// remembered counts the attempts that hold no slot.
func (l *ledger) remembered() int { return len(l.entries) - l.taken + l.ended.count }

// start says whether an accepted attempt may start, now that it is due, and why not. late says why it is too late for it
// to start, "" if it is not.
func (l *ledger) start(e *entry, late string, at time.Time) (ok bool, why string) {
	switch {
	case e.state != accepted:
		return false, "the ledger does not hold it as accepted"
	case e.killed != "":
		return false, "the run was killed before it started"
	case l.draining:
		return false, "the instance is draining"
	case late != "":
		return false, late
	}
	e.state, e.startedAt = running, at
	return true, ""
}

// takeBack notes that an attempt whose start was allowed will not be started after all.
func (l *ledger) takeBack(e *entry) {
	if e.state == running {
		e.state, e.startedAt = accepted, time.Time{}
	}
}

// finish notes that an accepted attempt ended, started or not, with an outcome of the wire. Its slot stays taken until
// free. It returns the highest bind that was seen of it, which the result is to name.
func (l *ledger) finish(e *entry, outcome string) (bind int) {
	e.unstarted = e.state == accepted
	e.state, e.outcome = done, outcomeOf(outcome)
	return e.bind
}

// free gives the slot of an ended attempt back.
func (l *ledger) free(e *entry) {
	if e.slot {
		e.slot = false
		l.taken--
		l.seq++
	}
}

// restore notes an attempt that ended in an earlier boot and whose result is not settled yet.
func (l *ledger) restore(key attemptKey, unstarted bool) {
	l.entries[key] = &entry{state: done, foreign: true, unstarted: unstarted}
}

// settle notes that an attempt's result is in the database.
func (l *ledger) settle(key attemptKey, now instant) {
	e := l.entries[key]
	if e == nil || e.state != done || e.settled {
		return
	}
	if e.foreign && e.unstarted && e.killed == "" {
		delete(l.entries, key) // it may be routed to this boot as well as to any
		return
	}
	if e.forgettable() && l.ended.add(key, e.outcome, now.mono) {
		delete(l.entries, key)
		return
	}
	e.settled = true
	l.fade(key, e, now)
}

// forgettable reports whether all that is to be remembered of a settled attempt is that it ran here.
func (e *entry) forgettable() bool { return !e.slot && !e.foreign && !e.unstarted && e.killed == "" }

// kill ends or bars an attempt and returns the state it found. For accepted and running the caller ends it.
func (l *ledger) kill(key attemptKey, reason string, now instant) entryState {
	l.sweep(now)
	e := l.entries[key]
	switch {
	case e == nil && l.ran(key):
		return done
	case e == nil:
		e = &entry{}
		l.entries[key] = e
		fallthrough
	case e.state == refused:
		e.state = barred
		l.fade(key, e, now)
	case e.state == accepted || e.state == running:
		if e.killed == "" {
			e.killed = reason
		}
	case e.state == done && e.unstarted:
		e.killed = reason // it may not be routed here again
	}
	return e.state
}

// ran reports whether an attempt ran in this boot and is settled.
func (l *ledger) ran(key attemptKey) bool {
	_, ok := l.ended.find(key)
	return ok
}

// known is what the ledger knows of an attempt. The outcome is that of a handler which has returned.
func (l *ledger) known(key attemptKey) (state entryState, startedAt time.Time, o outcome) {
	if e := l.entries[key]; e != nil {
		return e.state, e.startedAt, e.outcome
	}
	if o, ok := l.ended.find(key); ok {
		return done, time.Time{}, o
	}
	return unknown, time.Time{}, noOutcome
}

// drain makes the ledger take and start nothing more.
func (l *ledger) drain() {
	if !l.draining {
		l.draining = true
		l.seq++
	}
}

// load is the use of the slots. Who can remember no more has none that is free: it would refuse all the same, or not answer.
// So it forgets here, too: who says that it is full is offered nothing, which would leave it full for ever.
func (l *ledger) load(now instant) wire.Load {
	l.sweep(now)
	load := wire.Load{Capacity: l.capacity, Running: l.taken, Seq: l.seq, Draining: l.draining}
	if l.remembered() >= maxRemembered {
		load.Running = l.capacity
	}
	return load
}

// fade plans that an entry be forgotten. Only the monotonic clock counts here: the wall clock, set forward, would
// make the ledger forget what it must still know.
func (l *ledger) fade(key attemptKey, e *entry, now instant) {
	e.forgetAt = now.mono + memory
	l.fading = append(l.fading, fade{key, e.forgetAt})
}

// sweep forgets what is due to be forgotten.
func (l *ledger) sweep(now instant) {
	l.ended.sweep(now.mono, l.remembered() >= maxRemembered)
	n := 0
	for n < len(l.fading) {
		f := l.fading[n]
		crowded := l.remembered() >= maxRemembered && f.at-now.mono < memory-minMemory
		if f.at > now.mono && !crowded {
			break
		}
		if e := l.entries[f.key]; e != nil && e.forgetAt == f.at {
			if e.slot { // its result has waited for the disk all this time
				l.fade(f.key, e, now)
			} else {
				delete(l.entries, f.key)
			}
		}
		n++
	}
	l.fading = l.fading[n:]
	if len(l.fading) == 0 {
		l.fading = nil // so that the array of a busy hour is given back
	}
}
