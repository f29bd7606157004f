package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// tracker remembers accepted attempts for a second, so that those which last longer are written as running, in
// batches, and short ones cost nothing. It is a hint: what it forgets, the reconciler asks about.
type tracker struct {
	mu   sync.Mutex
	runs map[domain.RunID]domain.Started // guarded by mu
}

const (
	trackedMax  = 100_000
	longRun     = time.Second // from then on `running` is written
	markEvery   = 200 * time.Millisecond
	markBatch   = 1000
	markTimeout = 5 * time.Second
)

func newTracker() *tracker { return &tracker{runs: make(map[domain.RunID]domain.Started)} }

// accepted notes that an attempt starts at its due instant, or now if that is past.
func (t *tracker) accepted(r *domain.LiveRun, now time.Time) {
	at := r.DueAt
	if now.After(at) {
		at = now
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.runs) < trackedMax {
		t.runs[r.ID] = domain.Started{RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, StartedAt: at}
	}
}

// forget drops runs that have ended.
func (t *tracker) forget(ended []domain.Ended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range ended {
		if s, ok := t.runs[e.RunID]; ok && s.Attempt == e.Attempt {
			delete(t.runs, e.RunID)
		}
	}
}

// long takes out at most limit attempts that have run for a second.
func (t *tracker) long(now time.Time, limit int) []domain.Started {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []domain.Started
	for id, s := range t.runs {
		if len(out) == limit {
			break
		}
		if now.Sub(s.StartedAt) >= longRun {
			out = append(out, s)
			delete(t.runs, id)
		}
	}
	return out
}

func (d *Dispatcher) markLoop(ctx context.Context) {
	for pause(ctx, markEvery) {
		for full := true; full; {
			long := d.started.long(d.store.Now(), markBatch)
			full = len(long) == markBatch
			if len(long) > 0 {
				d.markRunning(ctx, long)
			}
		}
	}
}

func (d *Dispatcher) markRunning(ctx context.Context, started []domain.Started) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	changes, err := d.store.MarkRunning(ctx, started)
	if err != nil {
		d.logUnlessDone(ctx, "writing which runs run; the reconciler does", err)
		return
	}
	d.tell(changes)
}
