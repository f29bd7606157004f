package executor

import (
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// attemptKey identifies an attempt of a run.
type attemptKey struct {
	run     string
	attempt int
}

const (
	// offerAge is the maximum age of a binding that is offered without a beat, on the database's clock.
	offerAge = 10 * time.Second
	// memory is how long the ledger remembers an attempt that it refused, barred or handed back, and how long a bar holds.
	// Attempts that ran are remembered longer: see generations. It must be much longer than the 10 s for which an offer can
	// be accepted. A late duplicate is then refused either from memory or for its age.
	memory = 60 * time.Second
	// maxRemembered bounds the number of remembered attempts. At the bound, the ledger drops the oldest, but none
	// younger than minMemory. If that is not enough, it refuses offers.
	maxRemembered = 1 << 20
	minMemory     = 2 * offerAge
)

// entryState is the state of an attempt in the ledger. Its values are the states of an attempt in package wire.
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
	state  entryState
	bind   int    // the highest one seen; the result names it
	reason string // the reason of a refusal
	killed string // the reason of a kill that came after the acceptance
	// barUntil is when the bar of a kill ends, on the monotonic clock. Offers that were on their way when the kill came are too old
	// then. Refused offers do not prolong a bar: Belfry may have nowhere else to route the run.
	barUntil  time.Duration
	startedAt time.Time
	outcome   outcome
	slot      bool // the attempt holds a slot
	unstarted bool // done without having started
	foreign   bool // done in an earlier boot
	settled   bool
	forgetAt  time.Duration // on the monotonic clock; 0 means never
}

// ledger decides which offers are accepted and which attempts start. It is a pure state machine: it reads no clock,
// holds no lock and does no I/O. Its owner guards it.
type ledger struct {
	capacity int
	taken    int
	draining bool
	seq      int64
	entries  map[attemptKey]*entry
	// expiries lists the entries to forget, ordered by time. An item counts only if its entry still has that time.
	expiries []expiry
	// ended holds the outcomes of settled attempts that ran in this boot. These are nearly all remembered attempts.
	ended generations
}

type expiry struct {
	key attemptKey
	at  time.Duration
}

func newLedger(capacity int) *ledger {
	return &ledger{capacity: capacity, entries: make(map[attemptKey]*entry)}
}

// bid is an offer with the facts at the moment of the decision.
type bid struct {
	key       attemptKey
	bind      int
	now       instant
	beat      bool   // the offer names a heartbeat
	stale     bool   // the attempt may not start: its beat is unknown or too old; for offers without a beat see engine.oldRules
	leaseOver bool   // only for an offer without a beat
	unfit     bool   // the instance takes no runs because it has reported a problem: see engine.unfit
	refuse    string // no_handler or unsupported, if this instance cannot run the attempt
}

// verdict is the answer to a bid: accepted, ended with an outcome, or refused. fresh is the entry of an attempt that
// took a slot with this bid and starts when it is due, otherwise nil. silent means that the executor must not answer,
// because the ledger cannot remember the refusal and could accept the same offer later. The dispatcher must then ask
// and send a new offer.
type verdict struct {
	accepted bool
	ended    outcome
	reason   string
	fresh    *entry
	silent   bool
}

// ran returns the verdict on an attempt that this boot has run. An older server does not know the answer "ended".
func ran(o outcome, b bid) verdict {
	if b.beat && o != noOutcome {
		return verdict{ended: o}
	}
	return verdict{accepted: true}
}

// judge decides on one bid.
func (l *ledger) judge(b bid) verdict {
	l.sweep(b.now)
	e := l.entries[b.key]
	if e != nil {
		//sim:seam offer-repeated
		if v, known := e.answer(b); known {
			if v.reason != "" && b.bind > e.bind && e.forgetAt != 0 {
				l.expire(b.key, e, b.now) // the memory time of a refusal begins with the newest refused offer
			}
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
	l.expire(b.key, e, b.now)
	return verdict{reason: reason}
}

// answer returns the verdict on an attempt that the ledger knows. If known is false, the caller judges the bid as a new
// one.
func (e *entry) answer(b bid) (v verdict, known bool) {
	stale := verdict{reason: wire.RefusedStale}
	switch e.state {
	case barred:
		if b.bind > e.bind && b.now.mono >= e.barUntil {
			return verdict{}, false
		}
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
		if e.unstarted {
			return e.answerHandedBack(b)
		}
		if e.foreign {
			return stale, true // bound to this boot, but it ended in an earlier one, whose result is in flight
		}
		return ran(e.outcome, b), true
	case unknown, accepted, running:
	}
	return verdict{accepted: true}, true
}

// answerHandedBack answers an offer of an attempt that was accepted and then reported as unstarted. That report names
// the bind that it answers. After the report is settled, an offer under a higher bind is a new binding and is judged as
// new. Before that, and under the same bind, the offer is refused. That report is still in flight, so there is never more
// than one report per attempt.
func (e *entry) answerHandedBack(b bid) (v verdict, known bool) {
	if e.settled && !e.slot && b.bind > e.bind && b.now.mono >= e.barUntil {
		return verdict{}, false
	}
	return verdict{reason: wire.RefusedStale}, true
}

// refusal returns why a new offer is refused, or "".
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
	case b.unfit, l.taken >= l.capacity, l.remembered() >= maxRemembered:
		return wire.RefusedFull
	}
	return ""
}

// remembered counts the attempts that hold no slot.
func (l *ledger) remembered() int { return len(l.entries) - l.taken + l.ended.count }

// start reports whether an accepted attempt that is due may start, and otherwise why not. late is why the attempt is
// too late, or "".
func (l *ledger) start(e *entry, late string, at time.Time) (ok bool, why string) {
	switch {
	case e.state != accepted:
		return false, "it is not in the state accepted"
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

// takeBack reverts start for an attempt that will not be started.
func (l *ledger) takeBack(e *entry) {
	if e.state == running {
		e.state, e.startedAt = accepted, time.Time{}
	}
}

// finish records that an accepted attempt ended, whether it started or not, with an outcome of the wire. Its slot stays
// taken until free is called. finish returns the highest bind seen, which the result must name.
func (l *ledger) finish(e *entry, outcome string) (bind int) {
	e.unstarted = e.state == accepted
	e.state, e.outcome = done, outcomeOf(outcome)
	return e.bind
}

// free releases the slot of an ended attempt.
func (l *ledger) free(e *entry) {
	if e.slot {
		e.slot = false
		//sim:seam slot-freed
		l.taken--
		l.seq++
	}
}

// restore adds an attempt that ended in an earlier boot and whose result is not settled yet.
func (l *ledger) restore(key attemptKey, unstarted bool) {
	l.entries[key] = &entry{state: done, foreign: true, unstarted: unstarted}
}

// settle records that an attempt's result is in the database.
func (l *ledger) settle(key attemptKey, now instant) {
	e := l.entries[key]
	if e == nil || e.state != done || e.settled {
		return
	}
	if e.foreign && e.unstarted && now.mono >= e.barUntil {
		delete(l.entries, key) // Belfry may route it to any boot, including this one
		return
	}
	if e.forgettable() && l.ended.add(key, e.outcome, now.mono) {
		delete(l.entries, key)
		return
	}
	e.settled = true
	l.expire(key, e, now)
}

// forgettable reports whether the only fact to remember about a settled attempt is that it ran here.
func (e *entry) forgettable() bool { return !e.slot && !e.foreign && !e.unstarted && e.killed == "" }

// kill ends or bars an attempt and returns its state. If the state is accepted or running, the caller must end the
// attempt.
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
	case e.state == refused, e.state == barred:
		e.state, e.barUntil = barred, now.mono+memory
		l.expire(key, e, now)
	case e.state == accepted || e.state == running:
		if e.killed == "" {
			e.killed = reason
		}
		e.bar(reason, now)
	case e.state == done && e.unstarted:
		e.bar(reason, now)
	}
	return e.state
}

// bar keeps an attempt from being routed here again after it was handed back. A kill for a timeout does not: it was for a binding that
// has ended, and Belfry routes the attempt again.
func (e *entry) bar(reason string, now instant) {
	if reason != reasonTimeout {
		e.barUntil = now.mono + memory
	}
}

// ran reports whether an attempt ran in this boot and is settled.
func (l *ledger) ran(key attemptKey) bool {
	_, ok := l.ended.find(key)
	return ok
}

// known returns the ledger's state of an attempt. o is the outcome of a handler that has returned.
func (l *ledger) known(key attemptKey) (state entryState, startedAt time.Time, o outcome) {
	if e := l.entries[key]; e != nil {
		return e.state, e.startedAt, e.outcome
	}
	if o, ok := l.ended.find(key); ok {
		return done, time.Time{}, o
	}
	return unknown, time.Time{}, noOutcome
}

// drain stops the acceptance and the start of attempts.
func (l *ledger) drain() {
	if !l.draining {
		l.draining = true
		l.seq++
	}
}

// load returns the use of the slots. If the ledger cannot remember more attempts, it reports zero free slots, because
// it would refuse every offer or not answer. load also sweeps: the dispatcher offers nothing to a full instance, so
// without the sweep the instance would stay full.
func (l *ledger) load(now instant) wire.Load {
	l.sweep(now)
	load := wire.Load{Capacity: l.capacity, Running: l.taken, Seq: l.seq, Draining: l.draining}
	if l.remembered() >= maxRemembered {
		load.Running = l.capacity
	}
	return load
}

// expire schedules an entry to be forgotten. It uses the monotonic clock only. If the wall clock is set forward, the
// ledger must still remember the entry.
func (l *ledger) expire(key attemptKey, e *entry, now instant) {
	e.forgetAt = now.mono + memory
	l.expiries = append(l.expiries, expiry{key, e.forgetAt})
}

// sweep removes the entries that are due to be forgotten.
func (l *ledger) sweep(now instant) {
	l.ended.sweep(now.mono, l.remembered() >= maxRemembered)
	n := 0
	for n < len(l.expiries) {
		f := l.expiries[n]
		crowded := l.remembered() >= maxRemembered && f.at-now.mono < memory-minMemory
		if f.at > now.mono && !crowded {
			break
		}
		if e := l.entries[f.key]; e != nil && e.forgetAt == f.at {
			if e.slot { // its result has been waiting for the disk all this time
				l.expire(f.key, e, now)
			} else {
				delete(l.entries, f.key)
			}
		}
		n++
	}
	l.expiries = l.expiries[n:]
	if len(l.expiries) == 0 {
		l.expiries = nil // frees the array after a busy hour
	}
}
