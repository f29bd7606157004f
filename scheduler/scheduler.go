package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/plan"
)

// Store is what the scheduler asks of Postgres.
type Store interface {
	PlanDue(ctx context.Context, batch int, near bool) (domain.Planned, error)
	PlanStranded(ctx context.Context, batch int) (domain.Planned, error)
	ClaimNear(ctx context.Context, batch int) (runs []domain.Due, stranded int, err error)
	// TendPauses takes back what is planned of paused groups, and has their jobs looked at afterwards.
	TendPauses(ctx context.Context, batch int) (more bool, err error)
	Listen(ctx context.Context, wake func()) error
	SyncClock(ctx context.Context) error
	Now() time.Time // the database's clock
}

// Firer fires runs. Those whose block slot is taken and that are not yet due come back, to be fired at due.
type Firer interface {
	Fire(ctx context.Context, runs []domain.Due) (later []domain.Due, err error)
	// ResultsLag is about how long results wait to be settled.
	ResultsLag(ctx context.Context) (time.Duration, error)
}

// Config says what a scheduler works with. All fields but Registry are required.
type Config struct {
	Store    Store
	Firer    Firer
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// The bounds of one scheduler.
const (
	ringLimit   = 400_000 // entries, at some 200 bytes each
	ringCrowded = 300_000 // from then on no more is planned than is near
	planBatch   = 500     // jobs a transaction
	planRoom    = 10_000  // entries that there is room for before jobs are planned: one may have many runs
	claimBatch  = 500     // runs a statement
	fireBatch   = 500     // runs a Fire
	rushBatch   = 1000    // runs a Fire while more than rush are due: it costs less a run, but the first ones wait for the last
	rush        = 4000    // entries that are due and not taken yet
	fireWorkers = 4       // Fires at a time
	fireTries   = 7       // of one batch, within a second or so; what then fails is found as stranded, 3 s after due
)

// Firing begins a little before due, as routing and binding take time: leadBase, and leadEach a run.
const (
	leadBase = 20 * time.Millisecond
	leadEach = 60 * time.Microsecond
	leadMax  = 240 * time.Millisecond // an edit counts up to 250 ms before due
	quantum  = 50 * time.Millisecond  // the longest the ring goes unlooked-at while it holds something
	// nearQuantum is the same while something is due within leadMax.
	nearQuantum = 10 * time.Millisecond
)

// While fires or plans are late, planning is no further ahead than it must be, or what was planned early of one job would be
// fired before what is due earlier of another. When fires are late by lateWait, it waits for those that are due no later than
// lateStep after what it would plan: in the ring, other schedulers would soon take runs for stranded. What then gets too late
// is for the misfire policies, which cost less than fires do.
const (
	lateNear = 250 * time.Millisecond
	lateWait = time.Second
	lateStep = plan.NearStep
	// claimWait is how long looking for what others planned, or left behind, waits for late fires. It is done a second later
	// then: beside a ring full of what was planned early, jobs must go on being planned, or they fall behind it.
	claimWait = 250 * time.Millisecond
	// Fires are held for the sake of late jobs as long as these are being planned, for no longer than what was planned far
	// ahead can last, and never by more than the misfire policies leave.
	holdFor  = time.Second
	holdSpan = 15 * time.Second
	holdMost = 5 * time.Second
)

// While results wait for lagHigh or longer to be settled, fires are made slower, so that what has run is settled before more
// is begun: they share a database, and instances can keep so many results. Each run takes its time then, paceMost at most: a
// mistake about the lag keeps no more from being in time than would be too many for most machines.
const (
	lagHigh   = 2 * time.Second
	lagLow    = time.Second
	paceLeast = 4 * time.Microsecond
	paceMost  = 100 * time.Microsecond
)

// planRound is how long one round plans due jobs, so that what else is to be planned has its turn.
const planRound = time.Second

// Scheduler plans and rings. Make one with New and Run it.
type Scheduler struct {
	cfg     Config
	metrics metrics
	wake    chan struct{} // capacity 1: pre-read now
	rung    chan struct{} // capacity 1: the ring has a new entry
	pace    atomic.Int64  // nanoseconds that each run takes to be fired at least

	// planLoop's:
	from        time.Time // jobs that are not planned are due then or later, as the last batch told
	behindSince time.Time // since when they have been late; zero if they are not

	mu        sync.Mutex
	ring      *ring     // guarded by mu
	holdUntil time.Time // guarded by mu; when the ring's hold ends if no batch is planned
}

// New returns a scheduler that does nothing until Run.
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

// Wake makes the scheduler pre-read at once.
func (s *Scheduler) Wake() { signal(s.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run plans and fires until ctx ends, and returns when the Fires under way have ended. What the ring still holds
// is left to the other schedulers.
func (s *Scheduler) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, part := range []func(context.Context){s.listen, s.planLoop, s.ringLoop, s.clockLoop, s.paceLoop} {
		parts.Go(func() { part(ctx) })
	}
	parts.Wait()
	return nil
}

// listen turns notifications into pre-reads. While it is disconnected the pre-read of every second does.
func (s *Scheduler) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.cfg.Store.Listen(ctx, s.Wake); err != nil {
			s.cfg.Log.WarnContext(ctx, "listening for changed jobs ended; trying again", "err", err)
			pause(ctx, time.Second)
		}
	}
}

// clockLoop keeps the measured offset to the database's clock true.
func (s *Scheduler) clockLoop(ctx context.Context) {
	for pause(ctx, 10*time.Second) {
		if err := s.cfg.Store.SyncClock(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, "reading the database's clock", "err", err)
		}
	}
}

// pause waits for d or the end of ctx, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// planLoop pre-reads once a second, and whenever it is woken. It does so in the middle of the second: most jobs are due on
// whole seconds, and their fires would have to share the database with the plans of the next ones.
func (s *Scheduler) planLoop(ctx context.Context) {
	const slowest = 5 * time.Second
	backoff := time.Duration(0)
	for {
		more, err := s.plan(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			backoff = min(max(2*backoff, 100*time.Millisecond), slowest)
			s.cfg.Log.WarnContext(ctx, "pre-reading due jobs; trying again", "err", err, "after", backoff.String())
			if !pause(ctx, backoff) {
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

// untilPreRead is how long it is from now to the next middle of a second.
func untilPreRead(now time.Time) time.Duration {
	const phase = 500 * time.Millisecond
	return now.Add(phase).Truncate(time.Second).Add(time.Second - phase).Sub(now)
}

// plan runs one pre-read: due jobs in batches until there are no more or planRound is over, then what others planned,
// then what dead schedulers left behind. More says that jobs are left.
func (s *Scheduler) plan(ctx context.Context) (more bool, err error) {
	for tend := true; tend && ctx.Err() == nil; {
		if tend, err = s.cfg.Store.TendPauses(ctx, planBatch); err != nil {
			return false, err
		}
	}
	for begun, first := time.Now(), true; first || more && time.Since(begun) < planRound; first = false {
		if !s.waitForRoom(ctx, planRoom) {
			return false, nil
		}
		planned, err := s.cfg.Store.PlanDue(ctx, planBatch, s.crowded())
		if err != nil {
			return false, err
		}
		s.noteNext(planned.Next)
		s.metrics.missed.Add(float64(planned.Missed))
		s.add(planned.Runs)
		more = planned.Jobs == planBatch || planned.More
	}
	for full := true; full; {
		if !s.inTime(ctx, claimBatch) {
			return more, nil
		}
		runs, stranded, err := s.cfg.Store.ClaimNear(ctx, claimBatch)
		if err != nil {
			return false, err
		}
		s.metrics.stranded.Add(float64(stranded))
		s.add(runs)
		full = len(runs) == claimBatch
	}
	for stranded := true; stranded; {
		if !s.inTime(ctx, planRoom) {
			return more, nil
		}
		planned, err := s.cfg.Store.PlanStranded(ctx, planBatch)
		if err != nil {
			return false, err
		}
		s.metrics.missed.Add(float64(planned.Missed))
		s.metrics.misfired.Add(float64(len(planned.Runs)))
		s.add(planned.Runs)
		stranded = planned.More
		more = more || planned.More
	}
	return more, nil
}

// noteNext notes from when on jobs are left after a batch; zero says that none are. While they are late, what is due after
// them is held, so that fires stay in due order although other jobs were planned far ahead, before there was too much.
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

// crowded reports whether no more is to be planned than is near.
func (s *Scheduler) crowded() bool {
	now := s.cfg.Store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring.size > ringCrowded || s.ring.late(now) > lateNear || !s.behindSince.IsZero()
}

// waitForRoom waits until the ring takes n entries more and none of them is late that are to be fired before what is planned
// next, and reports whether ctx goes on. A full ring slows the pre-read down; it never drops.
func (s *Scheduler) waitForRoom(ctx context.Context, n int) bool {
	for !s.room(n, s.from.Add(lateStep)) {
		if !pause(ctx, nearQuantum) {
			return false
		}
	}
	return ctx.Err() == nil
}

// inTime is waitForRoom for what is not planned in due order, and does not wait for long. False also says that fires are late.
func (s *Scheduler) inTime(ctx context.Context, n int) bool {
	for begun := time.Now(); !s.room(n, s.cfg.Store.Now()); {
		if time.Since(begun) > claimWait || !pause(ctx, nearQuantum) {
			return false
		}
	}
	return ctx.Err() == nil
}

// room reports whether the ring takes n entries more and has none that is late and due up to until.
func (s *Scheduler) room(n int, until time.Time) bool {
	now := s.cfg.Store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.ring.late(now)
	return s.ring.room() >= n && (late <= lateWait || now.Add(-late).After(until))
}

func (s *Scheduler) add(runs []domain.Due) {
	if len(runs) == 0 {
		return
	}
	s.mu.Lock()
	for _, d := range runs {
		if !s.ring.add(d) {
			// One job may plan several runs, so that a batch can exceed the room that was waited for. What does
			// not fit stays planned in Postgres, where it is found as stranded.
			s.metrics.refused.Inc()
		}
	}
	s.mu.Unlock()
	signal(s.rung)
}

// ringLoop fires what is due.
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
			return
		case workers <- struct{}{}:
		}
		fires.Go(func() {
			defer func() { <-workers }()
			s.fire(ctx, batch)
		})
		if pace := time.Duration(s.pace.Load()); pace > 0 && !pause(ctx, time.Duration(len(batch))*pace) {
			return
		}
	}
}

// paceLoop makes fires slower while results wait to be settled, and faster again afterwards.
func (s *Scheduler) paceLoop(ctx context.Context) {
	var last time.Duration
	for pause(ctx, time.Second) {
		lag, err := s.cfg.Firer.ResultsLag(ctx)
		if err != nil {
			continue // NATS is away
		}
		before := time.Duration(s.pace.Load())
		pace := paced(before, lag, lag < last)
		s.pace.Store(int64(pace))
		last = lag
		switch {
		case before == 0 && pace > 0:
			s.cfg.Log.WarnContext(ctx, "fires are slowed down, as results wait to be settled", "lag", lag.Round(time.Millisecond).String())
		case before > 0 && pace == 0:
			s.cfg.Log.InfoContext(ctx, "fires are not slowed down any more")
		}
	}
}

// paced is how long each run is to take after results were seen to lag; falling says that they lagged more before.
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

// due takes the next batch out of the ring, or says how long to wait.
func (s *Scheduler) due() ([]domain.Due, time.Duration) {
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
		return batch, 0
	}
	if s.ring.held() {
		return nil, nearQuantum // and not as soon as it is due, which it is
	}
	window, ok := s.ring.next(leadMax)
	switch wait := window.Sub(now); {
	case !ok:
		return nil, time.Second
	case wait > 0:
		return nil, min(wait, quantum)
	}
	// Something is so near that a larger batch with it would be fired by now; how large the batch is shows as time goes on.
	return nil, min(max(window.Add(leadMax-lead).Sub(now), time.Millisecond), nearQuantum)
}

// fire hands a batch to Fire. The work outlives the end of ctx, which means to take no more, by its own deadline. It is
// tried for about a second, which mends a pool full of broken connections: a run that was late already, as its first
// scheduler died, would else be given up to be found again past the tolerance.
func (s *Scheduler) fire(ctx context.Context, batch []domain.Due) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for try := 1; ; try++ {
		later, err := s.cfg.Firer.Fire(ctx, batch)
		if err == nil {
			s.metrics.fires.Add(float64(len(batch) - len(later)))
			s.add(later)
			return
		}
		if try == fireTries || !pause(ctx, time.Duration(try)*50*time.Millisecond) {
			s.cfg.Log.WarnContext(ctx, "firing runs; they stay planned and are taken again", "runs", len(batch), "err", err)
			return
		}
	}
}
