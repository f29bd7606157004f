package address

import (
	"time"

	"github.com/belfryhq/belfry/internal/gateway/clock"
)

// Patience holds the times after which an executor counts as silent or gone, and a run as lost.
type Patience struct {
	// Silent is how long the executor may send no registration. After that it gets no runs.
	Silent time.Duration
	// Lost is the time after that, or after the executor first said that it has no run of a job, until attempts are lost.
	Lost time.Duration
	// Check is the distance of questions about a run.
	Check time.Duration
}

// DefaultPatience returns the times of the product. Executors register every 10 to 30 s.
func DefaultPatience() Patience {
	return Patience{Silent: 90 * time.Second, Lost: 45 * time.Second, Check: 10 * time.Second}
}

// Presence judges from registrations whether an executor is there. It counts only time in which this process observed the address. So an outage of
// all gateways, or of Postgres, makes no executor gone.
type Presence struct {
	patience Patience
	count    int64         // registrations, as last observed
	heard    clock.Instant // when the count last grew, or the begin
	pace     time.Duration // between registrations of one process
	recent   []clock.Instant
	moved    clock.Instant // when registrations last came from another source
	source   time.Time     // of that change, on the database's clock
}

// paces are the distances of registrations by kind of executor.
var paces = map[string]time.Duration{"java": 30 * time.Second, "go": 20 * time.Second, "python": 10 * time.Second}

// Several processes behind one address are recognized by registrations from several sources, or at more than the pace of one process.
const (
	sharedFor   = 5 * time.Minute // since the last sign
	paceWindow  = 3 * time.Minute
	paceExcess  = 3 // more registrations in the window than one process sends; a restart adds one
	mostRecents = 64
)

// NewPresence begins the observation of an address, which has had a number of registrations, and whose source last changed at an instant; nil: never.
func NewPresence(p Patience, kind string, registrations int64, sourceChanged *time.Time, now clock.Instant) *Presence {
	out := &Presence{patience: p, count: registrations, heard: now, pace: paces[kind]}
	if sourceChanged != nil {
		out.source = *sourceChanged
	}
	return out
}

// Observe records the number of registrations until now, and when their source last changed.
func (p *Presence) Observe(registrations int64, sourceChanged *time.Time, now clock.Instant) {
	if sourceChanged != nil && !sourceChanged.Equal(p.source) {
		p.moved, p.source = now, *sourceChanged
	}
	for range min(max(registrations-p.count, 0), mostRecents) {
		p.recent = append(p.recent, now)
	}
	if registrations > p.count {
		p.heard = now
	}
	p.count = registrations
	for len(p.recent) > 0 && (clock.Since(p.recent[0], now) > paceWindow || len(p.recent) > mostRecents) {
		p.recent = p.recent[1:]
	}
}

// Interrupted records that registrations could not be observed until now.
func (p *Presence) Interrupted(now clock.Instant) { p.heard = now }

// Silent reports whether the executor has stopped sending registrations, so that it should get no runs.
func (p *Presence) Silent(now clock.Instant) bool {
	return clock.Since(p.heard, now) >= p.patience.Silent
}

// Gone reports whether the executor has been silent for so long that its runs are lost.
func (p *Presence) Gone(now clock.Instant) bool {
	return clock.Since(p.heard, now) >= p.patience.Silent+p.patience.Lost
}

// Shared reports whether several processes seem to be behind the address. Then what one of them says proves nothing about the others.
func (p *Presence) Shared(now clock.Instant) bool {
	if !p.moved.IsZero() && clock.Since(p.moved, now) < sharedFor {
		return true
	}
	return p.pace > 0 && len(p.recent) > int(paceWindow/p.pace)+paceExcess
}

// Suspicion judges whether a run has ended without a callback. The zero Suspicion is none.
type Suspicion struct {
	since clock.Instant // when the executor first said that it has no run of the job; zero: it has one
	count int64         // registrations at that time
}

// Idle records that the executor said that it has no run of the job. It reports whether the attempt is lost: the executor has said so for long enough, and has
// registered in the meantime.
func (s *Suspicion) Idle(p *Presence, now clock.Instant) (lost bool) {
	if s.since.IsZero() {
		s.since, s.count = now, p.count
		return false
	}
	return clock.Since(s.since, now) >= p.patience.Lost && p.count > s.count
}

// Busy records that the executor runs the job, or that nothing is known.
func (s *Suspicion) Busy() { s.since = clock.Instant{} }
