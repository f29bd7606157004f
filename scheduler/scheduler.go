package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
)

// Store is what the scheduler asks of Postgres.
type Store interface {
	PlanDue(ctx context.Context, batch int) (domain.Planned, error)
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
	ringLimit   = 200_000 // entries, at some 200 bytes each
	planBatch   = 500     // jobs a transaction
	claimBatch  = 500     // runs a statement
	fireBatch   = 500     // runs a Fire
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

// Scheduler plans and rings. Make one with New and Run it.
type Scheduler struct {
	cfg     Config
	metrics metrics
	wake    chan struct{} // capacity 1: pre-read now
	rung    chan struct{} // capacity 1: the ring has a new entry

	mu   sync.Mutex
	ring *ring // guarded by mu
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
	for _, part := range []func(context.Context){s.listen, s.planLoop, s.ringLoop, s.clockLoop} {
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
		err := s.plan(ctx)
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

// plan runs one pre-read: due jobs in batches until there are no more, then what others planned, then what dead
// schedulers left behind.
func (s *Scheduler) plan(ctx context.Context) error {
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = s.cfg.Store.TendPauses(ctx, planBatch); err != nil {
			return err
		}
	}
	for full := true; full; {
		if !s.waitForRoom(ctx, planBatch) {
			return nil
		}
		planned, err := s.cfg.Store.PlanDue(ctx, planBatch)
		if err != nil {
			return err
		}
		s.metrics.missed.Add(float64(planned.Missed))
		s.add(planned.Runs)
		full = planned.Jobs == planBatch || planned.More
	}
	for full := true; full; {
		if !s.waitForRoom(ctx, claimBatch) {
			return nil
		}
		runs, stranded, err := s.cfg.Store.ClaimNear(ctx, claimBatch)
		if err != nil {
			return err
		}
		s.metrics.stranded.Add(float64(stranded))
		s.add(runs)
		full = len(runs) == claimBatch
	}
	for more := true; more; {
		if !s.waitForRoom(ctx, planBatch) {
			return nil
		}
		planned, err := s.cfg.Store.PlanStranded(ctx, planBatch)
		if err != nil {
			return err
		}
		s.metrics.missed.Add(float64(planned.Missed))
		s.metrics.misfired.Add(float64(len(planned.Runs)))
		s.add(planned.Runs)
		more = planned.More
	}
	return nil
}

// waitForRoom waits until the ring takes n entries more, and reports whether ctx goes on. A full ring slows the
// pre-read down; it never drops.
func (s *Scheduler) waitForRoom(ctx context.Context, n int) bool {
	for {
		s.mu.Lock()
		room := s.ring.room()
		s.mu.Unlock()
		if room >= n {
			return ctx.Err() == nil
		}
		if !pause(ctx, quantum) {
			return false
		}
	}
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
	}
}

// due takes the next batch out of the ring, or says how long to wait.
func (s *Scheduler) due() ([]domain.Due, time.Duration) {
	now := s.cfg.Store.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	lead := min(leadBase+time.Duration(s.ring.near(now.Add(leadMax)))*leadEach, leadMax)
	if batch := s.ring.take(now, lead, fireBatch); len(batch) > 0 {
		return batch, 0
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
