package dispatcher

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// longRun is from when on a run is written as running: short ones go straight from queued to final and cost nothing. Who
// fires does not hear of ends, so what has lasted is asked of its instance, like what was never answered.
const longRun = 500 * time.Millisecond

// behindFor is how long settling counts as behind after results were seen to wait: a batch that waits for Postgres takes
// about a second.
const behindFor = 2 * time.Second

// backlogMax bounds the patience with a backlog of results, so that what else is silent is found in it.
const backlogMax = 5 * time.Second

// backlog is what was last seen of results that wait to be settled.
type backlog struct {
	seen time.Time
	age  time.Duration // of the newest result that was settled, at most backlogMax
}

// lasting is after what time nothing is known of an attempt: longRun; but while results wait to be settled, which say it
// of most, only what was not answered before those came is asked about. Others would be asked about for nothing, when there
// is the least room for it.
func (d *Dispatcher) lasting() time.Duration {
	if b := d.behind.Load(); b != nil && time.Since(b.seen) < behindFor {
		return silentAfter + b.age
	}
	return longRun
}

// noteBacklog notes how many messages of results wait behind those that were just settled, the newest of which came to the
// stream at the given instant.
func (d *Dispatcher) noteBacklog(waiting uint64, came time.Time) {
	if waiting > settlers*settleMessages {
		d.behind.Store(&backlog{seen: time.Now(), age: min(max(time.Since(came), 0), backlogMax)})
	}
}

// markTimeout bounds the write.
const markTimeout = 5 * time.Second

func (d *Dispatcher) markRunning(ctx context.Context, started []domain.Started) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	changes, err := d.store.MarkRunning(ctx, started)
	if err != nil {
		d.logUnlessDone(ctx, "writing which runs run; trying again", err)
		return
	}
	d.tell(changes)
}

// startedOf makes a start of what an instance says of an attempt that it runs.
func (d *Dispatcher) startedOf(r *domain.LiveRun, st wire.Status) domain.Started {
	at := st.StartedAt.Time
	if at.IsZero() {
		at = d.store.Now()
	}
	return domain.Started{RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: at}
}

// bound is what the last look at all live runs has found. Several reconcilers start from it, and each may wait long for
// answers. Who asks about silent runs looks anew each time; the others use that look while it is young.
type bound struct {
	turn  chan struct{} // holds one while nobody looks; the rest is guarded by having it
	boots []domain.BoundBoot
	at    time.Time
}

func newBound() bound {
	b := bound{turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

// lookOld is when a look is too old: a little more than the period of those who look anew.
const lookOld = 1200 * time.Millisecond

// boundBoots returns the boots that runs are bound to, as they were less than old ago.
func (d *Dispatcher) boundBoots(ctx context.Context, old time.Duration) ([]domain.BoundBoot, error) {
	select {
	case <-d.bound.turn:
		defer func() { d.bound.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if time.Since(d.bound.at) < old {
		return d.bound.boots, nil
	}
	boots, err := d.store.BoundBoots(ctx, d.lasting())
	if err == nil {
		d.bound.boots, d.bound.at = boots, time.Now()
	}
	return boots, err
}

// anyBound reports whether any boot has runs of the kind that count counts.
func (d *Dispatcher) anyBound(ctx context.Context, old time.Duration, count func(domain.BoundBoot) int) (bool, error) {
	boots, err := d.boundBoots(ctx, old)
	for _, b := range boots {
		if count(b) > 0 {
			return true, err
		}
	}
	return false, err
}
