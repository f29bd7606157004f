package address

import (
	"maps"
	"slices"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/clock"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// State is the state of an attempt. The package comment defines the states.
type State string

// The states.
const (
	Judging State = "judging"
	Waiting State = "waiting"
	Sending State = "sending"
	Running State = "running"
	Ended   State = "ended"
)

// How long a Machine remembers what it must not forget at once.
const (
	lackFor   = time.Minute      // that the executor does not have a handler
	refuseFor = 60 * time.Second // refusals, and kills of attempts that are not known
	mostNotes = 20_000           // of these
)

// Config holds the settings of a Machine.
type Config struct {
	BootID    string
	Epoch     int64
	Capacity  int
	Languages []string // of scripts that the executor runs
	// PerHandler says that the executor runs at most one run of a handler at a time, whatever its job.
	PerHandler bool
}

// Attempt is an attempt that was accepted. The Machine changes State, Bind, KillReason and Slot. The other fields are the caller's.
type Attempt struct {
	gateway.Offer
	Task       wire.Offer // what to run; empty if the attempt was restored
	LogID      int64
	State      State
	KillReason string // of the first kill; "": none
	Arrived    clock.Instant
	Limit      clock.Instant // the request must begin before
	SentAt     time.Time     // zero: it was not sent
	Outcome    string        // of an ended attempt
	Suspicion  Suspicion

	// Timers and marks of the caller.
	Sent       clock.Instant // when the caller was about to send the request
	NextKill   clock.Instant
	NextCheck  clock.Instant
	KillStored bool

	turn chan struct{} // closed when it is the attempt's turn, or when a kill ends the wait
	slot bool
}

// TooLate reports whether the request of the attempt must not begin any more.
func (a *Attempt) TooLate(now clock.Instant) bool { return clock.Since(a.Limit, now) >= 0 }

// Woken returns a channel that is closed when it is the attempt's turn, or when a kill ends its wait.
func (a *Attempt) Woken() <-chan struct{} { return a.turn }

// Machine is the state of one address. It is not safe for concurrent use.
type Machine struct {
	cfg      Config
	attempts map[gateway.Attempt]*Attempt
	slots    int
	seq      int64
	turns    map[turnKey][]*Attempt // the first of each has its turn
	beats    []sentBeat
	last     int64 // number of the last heartbeat within the epoch
	notes    map[gateway.Attempt]note
	lacks    map[string]clock.Instant // since when
	draining bool
	retired  bool
	trouble  *wire.Unfit
}

// turnKey names runs of which the executor runs only one at a time.
type turnKey struct {
	job     int64
	handler string
}

// note is the memory of an attempt that does not start here.
type note struct {
	bind   int
	reason string // of the refusal
	at     clock.Instant
	// A kill came first, at barredAt. Refused offers do not prolong this bar: Belfry may have nowhere else to route the run.
	barred   bool
	barredAt clock.Instant
}

// bars reports whether the bar of a kill holds.
func (n *note) bars(now clock.Instant) bool {
	return n.barred && clock.Since(n.barredAt, now) < refuseFor
}

// sentBeat is a heartbeat and when its sending began.
type sentBeat struct {
	number int64
	at     clock.Instant
}

// New returns a Machine without attempts.
func New(c Config) *Machine {
	return &Machine{cfg: c, attempts: make(map[gateway.Attempt]*Attempt), turns: make(map[turnKey][]*Attempt), notes: make(map[gateway.Attempt]note), lacks: make(map[string]clock.Instant)}
}

// SetCapacity changes the number of slots.
func (m *Machine) SetCapacity(n int) {
	if m.cfg.Capacity != n {
		m.cfg.Capacity = n
		m.seq++
	}
}

// Beat returns the number of the next heartbeat. The caller sends it after now.
func (m *Machine) Beat(now clock.Instant) int64 {
	m.beats = slices.DeleteFunc(m.beats, func(b sentBeat) bool { return clock.Since(b.at, now) >= wire.LeaseTTL })
	m.last++
	number := m.cfg.Epoch<<32 + m.last
	m.beats = append(m.beats, sentBeat{number, now})
	return number
}

// limit returns the instant before which an attempt must start that relies on a heartbeat. It is false if this process did not send the
// heartbeat, or if the limit has passed.
func (m *Machine) limit(beat int64, now clock.Instant) (clock.Instant, bool) {
	for _, b := range m.beats {
		if b.number == beat {
			return b.at.Add(wire.LeaseTTL), clock.Since(b.at, now) < wire.LeaseTTL
		}
	}
	return clock.Instant{}, false
}

// Judge judges a message of offers. The attempts in fresh have taken slots and are judged as accepted: the caller stores their sends and calls Admit, or Forget or Refuse and changes the
// verdict. raised has the binds of attempts that were known before.
func (m *Machine) Judge(message *wire.Offers, now clock.Instant) (verdicts []wire.Verdict, fresh []*Attempt, raised []gateway.Offer) {
	limit, known := m.limit(message.Beat, now)
	for i := range message.Offers {
		o := &message.Offers[i]
		v := wire.Verdict{RunID: o.RunID, Attempt: o.Attempt, Verdict: wire.Refused, Reason: wire.RefusedStale}
		run, err := domain.ParseRunID(o.RunID)
		if message.BootID != m.cfg.BootID || err != nil {
			verdicts = append(verdicts, v)
			continue
		}
		id := gateway.Attempt{Run: run, Number: o.Attempt}
		if a := m.attempts[id]; a != nil && !a.routedAgain(o.Bind) {
			if v = again(a, v); v.Verdict == wire.Accepted && o.Bind > a.Bind {
				a.Bind = o.Bind
				raised = append(raised, a.Offer)
			}
			verdicts = append(verdicts, v)
			continue
		}
		v.Reason = m.refusal(id, o, known, now)
		switch {
		case v.Reason != "":
			if !m.note(id, note{bind: o.Bind, reason: v.Reason, at: now}) {
				continue // there is no room to remember the refusal, so there is none
			}
		default:
			v.Verdict = wire.Accepted
			fresh = append(fresh, m.take(id, o, limit, now))
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, fresh, raised
}

// routedAgain reports whether an offer with a bind is that of an attempt which has gone back. Only Postgres knows whether its earlier result is settled: the message
// that says so may have reached an earlier owner of the address.
func (a *Attempt) routedAgain(bind int) bool {
	return a.State == Ended && a.Outcome == wire.Unstarted && bind > a.Bind
}

// again judges an offer of a known attempt.
func again(a *Attempt, v wire.Verdict) wire.Verdict {
	switch {
	case a.KillReason != "" && (a.State == Judging || a.State == Waiting): // it is on its way back
	case a.State != Ended:
		v.Verdict, v.Reason = wire.Accepted, ""
	case a.Outcome != wire.Unstarted:
		v.Verdict, v.Reason, v.Outcome = wire.Ended, "", a.Outcome
	}
	return v
}

// refusal returns why an attempt that is not known is refused, or "".
func (m *Machine) refusal(id gateway.Attempt, o *wire.Offer, known bool, now clock.Instant) string {
	n, noted := m.notes[id]
	if noted = noted && clock.Since(n.at, now) < refuseFor; noted {
		switch {
		case n.bars(now), n.bind > o.Bind:
			return wire.RefusedStale
		case n.bind == o.Bind:
			return n.reason
		}
	}
	target := targetOf(o)
	switch {
	case !known:
		return wire.RefusedStale
	case m.retired:
		return wire.RefusedFull
	case m.draining:
		return wire.RefusedDraining
	case o.Script != nil && !slices.Contains(m.cfg.Languages, o.Script.Language):
		return wire.RefusedUnsupported
	case m.Lacked(target, now):
		return wire.RefusedNoHandler
	case m.trouble != nil, m.slots >= m.cfg.Capacity:
		return wire.RefusedFull
	}
	return ""
}

// targetOf returns the handler of an offer, or the target of its script.
func targetOf(o *wire.Offer) string {
	if o.Script != nil {
		return domain.ScriptTarget(o.Script.Language)
	}
	return o.Handler
}

// note remembers a refusal or a kill. It reports false if there is no room.
func (m *Machine) note(id gateway.Attempt, n note) bool {
	if old, ok := m.notes[id]; ok && !n.barred && old.bars(n.at) {
		n.barred, n.barredAt = true, old.barredAt
	}
	if len(m.notes) >= mostNotes {
		maps.DeleteFunc(m.notes, func(_ gateway.Attempt, old note) bool { return clock.Since(old.at, n.at) >= refuseFor })
	}
	if len(m.notes) >= mostNotes {
		return false
	}
	m.notes[id] = n
	return true
}

// take adds an attempt and takes a slot for it.
func (m *Machine) take(id gateway.Attempt, o *wire.Offer, limit, now clock.Instant) *Attempt {
	a := &Attempt{
		Offer: gateway.Offer{Attempt: id, Bind: o.Bind, Handler: targetOf(o)}, Task: *o, State: Judging, Arrived: now, Limit: limit, turn: make(chan struct{}), slot: true,
	}
	m.attempts[id] = a
	m.slots++
	m.seq++
	return a
}

// Admit records that the send of an attempt is stored under a log id.
func (m *Machine) Admit(a *Attempt, logID int64) {
	if a.State == Judging {
		a.State, a.LogID = Waiting, logID
	}
}

// Forget removes an attempt, as if it had never been offered.
func (m *Machine) Forget(a *Attempt) {
	m.free(a)
	if m.attempts[a.Attempt] == a {
		delete(m.attempts, a.Attempt)
	}
}

// Refuse removes an attempt that was judged as accepted, and remembers a refusal instead.
func (m *Machine) Refuse(a *Attempt, reason string, now clock.Instant) {
	m.Forget(a)
	m.note(a.Attempt, note{bind: a.Bind, reason: reason, at: now})
}

// Restore adds an attempt from its send, which an earlier owner has stored.
func (m *Machine) Restore(s *gateway.Send) *Attempt {
	if a := m.attempts[s.Attempt]; a != nil && a.LogID >= s.LogID {
		return nil
	}
	a := &Attempt{Offer: s.Offer, LogID: s.LogID, State: Running, KillReason: s.KillReason, turn: make(chan struct{}), slot: true}
	if s.SentAt != nil {
		a.SentAt = *s.SentAt
	}
	m.attempts[s.Attempt] = a
	m.slots++
	m.seq++
	if s.EndedAt != nil {
		m.End(s.Attempt, s.Result.Outcome)
		return a
	}
	k := m.turnOf(a)
	m.turns[k] = append(m.turns[k], a)
	return a
}

// Turn enters an attempt into the line of the runs of which the executor runs one at a time. The channel is closed when it is the attempt's turn, or when Kill
// ends the wait. The turn ends with the attempt.
func (m *Machine) Turn(a *Attempt) <-chan struct{} {
	k := m.turnOf(a)
	if m.turns[k] = append(m.turns[k], a); len(m.turns[k]) == 1 {
		closeOnce(a.turn)
	}
	return a.turn
}

func (m *Machine) turnOf(a *Attempt) turnKey {
	if m.cfg.PerHandler {
		return turnKey{handler: a.Handler}
	}
	return turnKey{job: a.WireID}
}

// leave removes an attempt from its line, and gives the turn to the next one.
func (m *Machine) leave(a *Attempt) {
	k := m.turnOf(a)
	line := m.turns[k]
	i := slices.Index(line, a)
	if i < 0 {
		return
	}
	if line = slices.Delete(line, i, i+1); len(line) == 0 {
		delete(m.turns, k)
		return
	}
	m.turns[k] = line
	closeOnce(line[0].turn)
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Sends records that the request of an attempt may now be sent.
func (m *Machine) Sends(a *Attempt, at time.Time) {
	if a.State == Waiting {
		a.State, a.SentAt = Sending, at
	}
}

// Runs records that the executor has taken a run, or has not answered.
func (m *Machine) Runs(a *Attempt) {
	if a.State == Sending {
		a.State = Running
	}
}

// End records that the end of an attempt is stored, and frees its slot. It reports false if the attempt is not known, or has ended before.
func (m *Machine) End(id gateway.Attempt, outcome string) bool {
	a := m.attempts[id]
	if a == nil || a.State == Ended {
		return false
	}
	m.free(a)
	a.State, a.Outcome = Ended, outcome
	return true
}

func (m *Machine) free(a *Attempt) {
	m.leave(a)
	if a.slot {
		a.slot = false
		m.slots--
		m.seq++
	}
}

// Settled removes an attempt whose end is settled. Postgres remembers it.
func (m *Machine) Settled(id gateway.Attempt) {
	if a := m.attempts[id]; a != nil {
		m.free(a)
		a.State = Ended
		delete(m.attempts, id)
	}
}

// Kill records a kill of an attempt and returns the attempt, or nil if the attempt is not known here. An unknown attempt will be refused.
func (m *Machine) Kill(id gateway.Attempt, reason string, now clock.Instant) *Attempt {
	a := m.attempts[id]
	if a == nil {
		m.note(id, note{bind: m.notes[id].bind, reason: wire.RefusedStale, at: now, barred: true, barredAt: now})
		return nil
	}
	if a.State != Ended && a.KillReason == "" {
		a.KillReason = reason
	}
	if a.State == Waiting || a.State == Judging {
		closeOnce(a.turn)
	}
	return a
}

// Known returns an attempt, or nil.
func (m *Machine) Known(id gateway.Attempt) *Attempt { return m.attempts[id] }

// Noted returns the status of an attempt that was refused or barred, or "".
func (m *Machine) Noted(id gateway.Attempt, now clock.Instant) string {
	switch n, ok := m.notes[id]; {
	case !ok || clock.Since(n.at, now) >= refuseFor:
		return ""
	case n.bars(now):
		return wire.StatusBarred
	}
	return wire.StatusRefused
}

// Attempts returns all attempts by log id.
func (m *Machine) Attempts() []*Attempt {
	all := slices.Collect(maps.Values(m.attempts))
	slices.SortFunc(all, func(a, b *Attempt) int { return int(a.LogID - b.LogID) })
	return all
}

// Lack records that the executor does not have a target: a handler, or scripts in a language.
func (m *Machine) Lack(target string, now clock.Instant) { m.lacks[target] = now }

// Lacked reports whether the executor has refused a target within the last minute.
func (m *Machine) Lacked(target string, now clock.Instant) bool {
	since, ok := m.lacks[target]
	return ok && clock.Since(since, now) < lackFor
}

// mostLacks bounds the list in the heartbeat. Further ones are refused when they are offered.
const mostLacks = 50

// Lacks returns the targets that the executor has refused within the last minute, sorted.
func (m *Machine) Lacks(now clock.Instant) []string {
	maps.DeleteFunc(m.lacks, func(_ string, since clock.Instant) bool { return clock.Since(since, now) >= lackFor })
	all := slices.Sorted(maps.Keys(m.lacks))
	return all[:min(len(all), mostLacks)]
}

// Drain makes the instance accept no attempts, or accept them again.
func (m *Machine) Drain(draining bool) {
	if m.draining != draining {
		m.draining = draining
		m.seq++
	}
}

// Retire makes the instance full for good: another process will serve the address. A dispatcher asks an instance that is full again as soon as a
// later heartbeat says that it has room, and does not count that as a refusal.
func (m *Machine) Retire() {
	m.retired = true
	m.seq++
}

// Trouble makes the instance accept no attempts while the problem is not nil. It reports whether this is a change.
func (m *Machine) Trouble(u *wire.Unfit) bool {
	changed := (m.trouble == nil) != (u == nil)
	m.trouble = u
	return changed
}

// Unfit returns the problem, or nil.
func (m *Machine) Unfit() *wire.Unfit { return m.trouble }

// Load returns the use of the slots.
func (m *Machine) Load() wire.Load {
	l := wire.Load{Capacity: m.cfg.Capacity, Running: m.slots, Seq: m.cfg.Epoch<<32 + m.seq + 1, Draining: m.draining}
	if m.retired {
		l.Running = max(l.Running, l.Capacity)
	}
	return l
}

// Unsettled returns the number of attempts whose ends are not settled.
func (m *Machine) Unsettled() (n int) {
	for _, a := range m.attempts {
		if a.State == Ended {
			n++
		}
	}
	return n
}

// JobRuns returns the number of a job's attempts that have not ended.
func (m *Machine) JobRuns(wireID int64) (n int) {
	for _, a := range m.attempts {
		if a.WireID == wireID && a.State != Ended {
			n++
		}
	}
	return n
}

// StatusOf returns the wire status of an attempt, without its result.
func StatusOf(a *Attempt) wire.Status {
	s := wire.Status{RunID: a.Run.String(), Attempt: a.Number, StartedAt: wire.Time{Time: a.SentAt}}
	switch a.State {
	case Judging, Waiting:
		s.Status = wire.StatusAccepted
	case Sending, Running:
		s.Status = wire.StatusRunning
	case Ended:
		s.Status = wire.StatusDone
		if a.Outcome != wire.Unstarted {
			s.Outcome = a.Outcome
		}
	}
	return s
}

// Recall judges an attempt by its sends, which are all that Postgres knows of it. The verdict is that on an offer with the given bind.
func Recall(sends []gateway.Send, instance, boot string, o *wire.Offer) wire.Verdict {
	v := wire.Verdict{RunID: o.RunID, Attempt: o.Attempt, Verdict: wire.Refused, Reason: wire.RefusedStale}
	for _, s := range sends {
		if s.State == gateway.Unstarted || s.Instance != instance || s.BootID != boot {
			continue
		}
		if s.EndedAt == nil {
			v.Verdict, v.Reason = wire.Accepted, ""
		} else {
			v.Verdict, v.Reason, v.Outcome = wire.Ended, "", s.Result.Outcome
		}
	}
	return v
}
