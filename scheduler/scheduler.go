package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/plan"
)

// Store is the scheduler's access to Postgres.
type Store interface {
	// Quiet reports whether TendPauses, PlanDue, ClaimNear and PlanStranded would find nothing now. It costs less than these, and may be false
	// although they would.
	Quiet(ctx context.Context) (bool, error)
	PlanDue(ctx context.Context, batch int, near bool) (engine.Planned, error)
	PlanStranded(ctx context.Context, batch int) (engine.Planned, error)
	ClaimNear(ctx context.Context, batch int) (runs []engine.Due, stranded int, err error)
	// TendPauses takes back the planned runs of paused groups, and makes their jobs due for planning again after the
	// pause. It returns true if more is left to do.
	TendPauses(ctx context.Context, batch int) (more bool, err error)
	// HandBack takes runs out of this scheduler's ring and wakes the other schedulers, which claim them with ClaimNear. Runs
	// that are no longer as described are left alone.
	HandBack(ctx context.Context, runs []engine.Due) error
	Listen(ctx context.Context, wake func()) error
	Now() time.Time // the database's clock
}

// Firer fires runs. It returns the runs that are not yet due and whose block slot is taken; the scheduler fires them
// again at their due instant.
type Firer interface {
	Fire(ctx context.Context, runs []engine.Due) (later []engine.Due, err error)
	// ResultsLag returns about how long results currently wait to be settled.
	ResultsLag(ctx context.Context) (time.Duration, error)
}

// Config holds the dependencies of a scheduler. All fields but Registry are required.
type Config struct {
	Store    Store
	Firer    Firer
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// The bounds of one scheduler.
const (
	ringLimit   = 400_000 // entries, at some 200 bytes each
	ringCrowded = 300_000 // above this size, only near fire times are planned
	planBatch   = 500     // jobs per transaction
	planRoom    = 10_000  // free entries required before jobs are planned, because one job may have many runs
	claimBatch  = 500     // runs per statement
	fireBatch   = 500     // runs per Fire
	rushBatch   = 1000    // runs per Fire while more than rush are due: each run costs less, but the first ones wait for the last
	rush        = 4000    // entries that are due and not taken yet
	fireWorkers = 4       // concurrent Fires
	fireTries   = 7       // tries per batch, within about a second; runs that still fail are taken over as stranded, 3 s after due
)

// Firing begins a little before due, because routing and binding take time: leadBase plus leadEach for each run.
const (
	leadBase = 20 * time.Millisecond
	leadEach = 60 * time.Microsecond
	leadMax  = 240 * time.Millisecond // an edit is effective up to 250 ms before due
	quantum  = 50 * time.Millisecond  // the longest interval between two checks of a ring that is not empty
	// nearQuantum is that interval while an entry is due within leadMax.
	nearQuantum = 10 * time.Millisecond
)

// While fires or plans are late, jobs are planned no further ahead than necessary. Otherwise runs of one job that were
// planned early would be fired before runs of another job that are due sooner.
//
// When fires are late by lateWait, the next jobs are not planned until all runs that are due before them, or up to
// lateStep after them, are fired. Otherwise their runs would wait in the ring for so long that other schedulers take
// them over as stranded. Fire times that become too late are left to the misfire policies, which cost less than fires.
const (
	lateNear = 250 * time.Millisecond
	lateWait = time.Second
	lateStep = plan.NearStep
	// claimWait is how long the claims of near and stranded runs wait for late fires. After that they are postponed to
	// the next round, a second later. The ring may be full of runs that were planned early, and the planning of jobs must
	// not wait until they are fired.
	claimWait = 250 * time.Millisecond
	// The bounds of the hold, which makes fires wait for late jobs: it ends holdFor after the last planned batch and
	// holdSpan after the jobs became late, which covers all runs that were planned far ahead. holdMost is the misfire
	// tolerance, and no fire is held longer.
	holdFor  = time.Second
	holdSpan = 15 * time.Second
	holdMost = 5 * time.Second
)

// While results wait for lagHigh or longer to be settled, the scheduler fires more slowly, so that finished runs are
// settled before more are started: both use the same database, and instances can keep only a limited number of unsettled
// results. Each run then takes at least the pace. The pace is at most paceMost, so that a wrong lag delays only a load that
// is too high for most machines anyway.
const (
	lagHigh   = 2 * time.Second
	lagLow    = time.Second
	paceLeast = 4 * time.Microsecond
	paceMost  = 100 * time.Microsecond
)

// planRound is how long one round plans due jobs before the other planning steps run.
const planRound = time.Second

// Scheduler plans runs and fires them. Create one with New and call Run.
type Scheduler struct {
	cfg     Config
	metrics metrics
	wake    chan struct{} // capacity 1: pre-read now
	rung    chan struct{} // capacity 1: the ring has a new entry
	pace    atomic.Int64  // minimum nanoseconds per fired run

	// Used only by planLoop:
	from        time.Time // the earliest due instant of a job that is not planned yet, from the last batch
	behindSince time.Time // when the unplanned jobs became late; zero if they are not late
	rested      bool      // the last pre-read found nothing

	mu        sync.Mutex
	ring      *ring     // guarded by mu
	holdUntil time.Time // guarded by mu; when the ring's hold ends if no further batch is planned
	firing    int       // guarded by mu; batches that were taken out of the ring and are not fired yet
}

// New returns a scheduler. It does nothing until Run is called.
func New(cfg Config) *Scheduler {
	s := &Scheduler{cfg: cfg, wake: make(chan struct{}, 1), rung: make(chan struct{}, 1)}
	s.ring = newRing(cfg.Store.Now(), ringLimit)
	s.metrics = newMetrics(cfg.Registry, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.ring.size)
	})
	return s
}

// Wake triggers a pre-read at once.
func (s *Scheduler) Wake() { lifecycle.Signal(s.wake) }

// listen triggers a pre-read at each notification. While it is disconnected, the pre-read of every second replaces it.
func (s *Scheduler) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.cfg.Store.Listen(ctx, s.Wake); err != nil {
			s.cfg.Log.WarnContext(ctx, "cannot listen for changed jobs, retrying", "err", err)
			lifecycle.Pause(ctx, time.Second)
		}
	}
}

// planLoop pre-reads once a second, and whenever it is woken. It does so in the middle of the second, because most jobs
// are due on whole seconds, and their fires would otherwise share the database with the next plans.
func (s *Scheduler) planLoop(ctx context.Context) {
	const slowest = 5 * time.Second
	backoff := time.Duration(0)
	// If a step that has committed lost its answer, its runs would be in no ring.
	work, cancel := outlasting(ctx, planEnd)
	defer cancel()
	for {
		more, err := s.plan(ctx, work)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			backoff = min(max(2*backoff, 100*time.Millisecond), slowest)
			s.cfg.Log.WarnContext(ctx, "cannot pre-read due jobs, retrying", "err", err, "after", backoff.String())
			if !lifecycle.Pause(ctx, backoff) {
				return
			}
			continue
		}
		backoff = 0
		if more {
			continue
		}
		now := s.cfg.Store.Now()
		timer := time.NewTimer(untilPreRead(now))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.wake:
		}
		timer.Stop()
	}
}

// untilPreRead returns the time from now to the next middle of a second.
func untilPreRead(now time.Time) time.Duration {
	const phase = 500 * time.Millisecond
	return now.Add(phase).Truncate(time.Second).Add(time.Second - phase).Sub(now)
}

// plan runs one pre-read. It plans due jobs in batches until none are left or planRound is over, then claims near runs
// that others planned, then takes over runs that dead schedulers left behind. more is true if jobs are left. When ctx
// ends, it begins no more transactions; work is the context of the current one. After a pre-read that found nothing, one statement
// says whether there is something now.
func (s *Scheduler) plan(ctx, work context.Context) (more bool, err error) {
	if s.rested {
		quiet, err := s.cfg.Store.Quiet(work)
		if err != nil {
			return false, err
		}
		if quiet {
			s.noteNext(time.Time{})
			return false, nil
		}
	}
	found := 0
	defer func() { s.rested = err == nil && !more && found == 0 }()
	for tend := true; tend && ctx.Err() == nil; {
		if tend, err = s.cfg.Store.TendPauses(work, planBatch); err != nil {
			return false, err
		}
	}
	for begun, first := time.Now(), true; first || more && time.Since(begun) < planRound; first = false {
		if !s.waitForRoom(ctx, planRoom) {
			return false, nil
		}
		planned, err := s.cfg.Store.PlanDue(work, planBatch, s.crowded())
		if err != nil {
			return false, err
		}
		s.noteNext(planned.Next)
		s.metrics.missed.Add(float64(planned.Missed))
		s.add(planned.Runs)
		found += planned.Jobs
		more = planned.Jobs == planBatch || planned.More
	}
	for full := true; full; {
		if !s.inTime(ctx, claimBatch) {
			return more, nil
		}
		runs, stranded, err := s.cfg.Store.ClaimNear(work, claimBatch)
		if err != nil {
			return false, err
		}
		s.metrics.stranded.Add(float64(stranded))
		s.add(runs)
		found += len(runs)
		full = len(runs) == claimBatch
	}
	//sim:seam plan-stranded
	for stranded := true; stranded; {
		if !s.inTime(ctx, planRoom) {
			return more, nil
		}
		planned, err := s.cfg.Store.PlanStranded(work, planBatch)
		if err != nil {
			return false, err
		}
		s.metrics.missed.Add(float64(planned.Missed))
		s.metrics.misfired.Add(float64(len(planned.Runs)))
		s.add(planned.Runs)
		found += planned.Jobs
		stranded = planned.More
		more = more || planned.More
	}
	return more, nil
}

// noteNext records the earliest due instant of the jobs that a batch left unplanned; zero means that none are left.
// While those jobs are late, the ring holds entries that are due after them, so that fires stay in due order although
// other jobs were planned far ahead before the overload.
func (s *Scheduler) noteNext(next time.Time) {
	now := s.cfg.Store.Now()
	switch {
	case next.IsZero():
		s.from, s.behindSince = now, time.Time{}
	case now.Sub(next) <= lateNear:
		s.from, s.behindSince = next, time.Time{}
	default:
		s.from = next
		if s.behindSince.IsZero() {
			s.behindSince = now
		}
	}
	hold := !s.behindSince.IsZero() && now.Sub(s.behindSince) < holdSpan
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.hold = time.Time{}
	if hold && s.ring.room() > planRoom {
		s.ring.hold, s.holdUntil = later(next, now.Add(-holdMost)).Add(lateStep), now.Add(holdFor)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// crowded reports whether only near fire times should be planned.
func (s *Scheduler) crowded() bool {
	now := s.cfg.Store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.size > ringCrowded || s.ring.late(now) > lateNear || !s.behindSince.IsZero()
}

// waitForRoom waits until n more entries fit and no late entry is due before the jobs that are planned next. It returns
// false if ctx ended. A full ring slows the pre-read down; it never drops runs.
func (s *Scheduler) waitForRoom(ctx context.Context, n int) bool {
	for !s.room(n, s.from.Add(lateStep)) {
		if !lifecycle.Pause(ctx, nearQuantum) {
			return false
		}
	}
	return ctx.Err() == nil
}

// inTime is like waitForRoom, for claims that are not made in due order, and waits for claimWait at most. It also
// returns false if fires are still late then.
func (s *Scheduler) inTime(ctx context.Context, n int) bool {
	for begun := time.Now(); !s.room(n, s.cfg.Store.Now()); {
		if time.Since(begun) > claimWait || !lifecycle.Pause(ctx, nearQuantum) {
			return false
		}
	}
	return ctx.Err() == nil
}

// room reports whether n more entries fit and no entry that is due up to until is late by more than lateWait.
func (s *Scheduler) room(n int, until time.Time) bool {
	now := s.cfg.Store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.ring.late(now)
	return s.ring.room() >= n && (late <= lateWait || now.Add(-late).After(until))
}

func (s *Scheduler) add(runs []engine.Due) {
	if len(runs) == 0 {
		return
	}
	s.mu.Lock()
	for _, d := range runs {
		if !s.ring.add(d) {
			// One job may plan several runs, so a batch can exceed the awaited room. Refused runs stay planned in
			// Postgres and are taken over as stranded.
			s.metrics.refused.Inc()
		}
	}
	s.mu.Unlock()
	lifecycle.Signal(s.rung)
}

// ringLoop fires due runs.
func (s *Scheduler) ringLoop(ctx context.Context) {
	var fires sync.WaitGroup
	defer fires.Wait()
	workers := make(chan struct{}, fireWorkers)
	for {
		batch, wait := s.due()
		if len(batch) == 0 {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			case <-s.rung:
			}
			timer.Stop()
			continue
		}
		select {
		case <-ctx.Done():
			s.add(batch) // it is handed back
			s.fired()
			return
		case workers <- struct{}{}:
		}
		fires.Go(func() {
			defer func() { <-workers }()
			s.fire(ctx, batch)
			s.fired()
		})
		if pace := time.Duration(s.pace.Load()); pace > 0 && !lifecycle.Pause(ctx, time.Duration(len(batch))*pace) {
			return
		}
	}
}

// fired notes that the entries of a batch are fired or are in the ring again.
func (s *Scheduler) fired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.firing--
}

// paceLoop fires more slowly while results wait to be settled, and faster again afterwards.
func (s *Scheduler) paceLoop(ctx context.Context) {
	var last time.Duration
	for lifecycle.Rest(ctx, time.Second) {
		lag, err := s.cfg.Firer.ResultsLag(ctx)
		if err != nil {
			continue // NATS is not reachable
		}
		before := time.Duration(s.pace.Load())
		pace := paced(before, lag, lag < last)
		s.pace.Store(int64(pace))
		last = lag
		switch {
		case before == 0 && pace > 0:
			s.cfg.Log.WarnContext(ctx, "results wait too long to be settled, slowing fires down", "lag", lag.Round(time.Millisecond).String())
		case before > 0 && pace == 0:
			s.cfg.Log.InfoContext(ctx, "results are settled in time again, firing at full speed")
		}
	}
}

// paced returns the new minimum time per run for the measured lag. falling is true if the previous lag was higher.
func paced(pace, lag time.Duration, falling bool) time.Duration {
	switch {
	case lag > lagHigh && !falling:
		return min(max(pace*3/2, paceLeast), paceMost)
	case lag > lagLow:
		return pace
	case pace*3/4 < paceLeast:
		return 0
	}
	return pace * 3 / 4
}

// due takes the next batch out of the ring, or returns how long to wait. The caller calls fired for a batch.
func (s *Scheduler) due() ([]engine.Due, time.Duration) {
	now := s.cfg.Store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.holdUntil) {
		s.ring.hold = time.Time{}
	}
	lead := min(leadBase+time.Duration(s.ring.near(now.Add(leadMax)))*leadEach, leadMax)
	limit := fireBatch
	if len(s.ring.ready) > rush {
		limit = rushBatch
	}
	if batch := s.ring.take(now, lead, limit); len(batch) > 0 {
		s.firing++
		return batch, 0
	}
	if s.ring.held() {
		return nil, nearQuantum // a held entry is already due, so its due instant is no basis for the wait
	}
	window, ok := s.ring.next(leadMax)
	switch wait := window.Sub(now); {
	case !ok:
		return nil, time.Second
	case wait > 0:
		return nil, min(wait, quantum)
	}
	// An entry is due within leadMax. The current batch is too small to be fired yet, but more entries may be added to it,
	// and a larger batch is fired earlier. Therefore the wait is short.
	return nil, min(max(window.Add(leadMax-lead).Sub(now), time.Millisecond), nearQuantum)
}

// fire hands a batch to Fire. The end of ctx means "take no more work", so the batch has its own deadline. fire
// retries for about a second, which is long enough to replace a pool full of broken connections. If it gave up at once,
// a run that was already late because its first scheduler died would be found again only after the tolerance.
func (s *Scheduler) fire(ctx context.Context, batch []engine.Due) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for try := 1; ; try++ {
		later, err := s.cfg.Firer.Fire(ctx, batch)
		if err == nil {
			s.metrics.fires.Add(float64(len(batch) - len(later)))
			s.add(later)
			return
		}
		if try == fireTries || !lifecycle.Pause(ctx, time.Duration(try)*50*time.Millisecond) {
			s.cfg.Log.WarnContext(ctx, "cannot fire runs, they stay planned and are taken over as stranded", "runs", len(batch), "err", err)
			return
		}
	}
}
