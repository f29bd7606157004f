// Package live hands changed runs to whoever watches them.
//
// Changes come from a Source, by best effort, as no more than the news that a run came into a state. What watchers get
// is the run as it stands in Postgres a moment later, which is read once for all of them. So a change that is heard
// twice, late or in the wrong order does no harm, and whether somebody may see a run is judged by its row.
//
// Everything is bounded: a watcher that would get too much, or is too slow to take it, is told that there is a gap, and
// reads its list anew.
package live

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

const (
	pace       = 500 * time.Millisecond // between two rounds of reading
	maxChanged = 100                    // runs that one watcher gets in one round
	maxRead    = 1000                   // runs read in one round, for all
	maxKept    = 300                    // events kept for a watcher that has not taken them
	readTime   = 5 * time.Second
)

// Source tells which runs changed, whichever process changed them.
type Source interface {
	// Hear calls changed with changes, and missed after some may have been lost, one call at a time, until stop is
	// called. Unavailable: there is no way to hear now.
	Hear(changed func([]engine.Change), missed func()) (stop func(), err error)
}

// Reader reads runs as lists show them, and leaves out those that are not there.
type Reader func(ctx context.Context, ids []domain.RunID) ([]domain.Run, error)

// Filter says what is for a watcher.
type Filter struct {
	// Wants reports whether a change may concern the watcher. It must not block.
	Wants func(*engine.Change) bool
	// Judge says of a run, as it stands, what the watcher gets. Nil: it gets nothing, and is woken by changes alone.
	Judge func(*domain.Run) Verdict
}

// Verdict is what a watcher gets of a changed run.
type Verdict int

// The verdicts.
const (
	Nothing Verdict = iota
	Show            // the run fits
	Gone            // it may have fitted, and does no more
)

// Event is a run that changed.
type Event struct {
	Run  domain.Run
	Gone bool
}

// Hub hears of changes while there are watchers. Safe for concurrent use.
type Hub struct {
	source Source
	read   Reader
	log    *slog.Logger

	dirty chan struct{} // some watcher has changed runs to be read

	turn  sync.Mutex // held while the first watcher comes, and while the last one leaves
	leave func()     // guarded by turn: ends hearing and reading

	mu       sync.Mutex
	watchers map[*Watcher]struct{} // and their fields
}

// NewHub makes a Hub. It hears nothing before the first Watch.
func NewHub(source Source, read Reader, log *slog.Logger) *Hub {
	return &Hub{source: source, read: read, log: log, dirty: make(chan struct{}, 1), watchers: make(map[*Watcher]struct{})}
}

// Watcher gets the changes that pass its filter, from the return of Watch on. It is used by one goroutine.
type Watcher struct {
	hub    *Hub
	filter Filter
	wake   chan struct{}

	// Guarded by the hub's mu.
	changed map[domain.RunID]struct{}
	kept    []Event
	at      map[domain.RunID]int // places in kept
	gap     bool
}

// Watch begins to hear. The caller must Close the watcher. The error is the source's.
func (h *Hub) Watch(f Filter) (*Watcher, error) {
	w := &Watcher{hub: h, filter: f, wake: make(chan struct{}, 1), changed: make(map[domain.RunID]struct{}), at: make(map[domain.RunID]int)}
	h.turn.Lock()
	defer h.turn.Unlock()
	if h.leave == nil {
		stop, err := h.source.Hear(h.hear, h.missed)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); h.run(ctx) }()
		h.leave = func() { stop(); cancel(); <-ended }
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[w] = struct{}{}
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() {
	h := w.hub
	h.turn.Lock()
	defer h.turn.Unlock()
	h.mu.Lock()
	delete(h.watchers, w)
	last := len(h.watchers) == 0
	h.mu.Unlock()
	if last && h.leave != nil {
		h.leave()
		h.leave = nil
	}
}

// Wake receives after something came for Take, and, for a watcher without Judge, after a change.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take returns what came since the last call: each run once, as it stood last. gap says that more changed than was kept.
func (w *Watcher) Take() (events []Event, gap bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	events, gap = w.kept, w.gap
	w.kept, w.gap = nil, false
	clear(w.at)
	return events, gap
}

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// hear notes which runs are to be read.
func (h *Hub) hear(changes []engine.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	read := false
	for w := range h.watchers {
		for i := range changes {
			if !w.filter.Wants(&changes[i]) {
				continue
			}
			if w.filter.Judge == nil {
				w.signal()
				break
			}
			read = true
			if _, known := w.changed[changes[i].RunID]; !known && len(w.changed) == maxChanged {
				w.gap = true // it is told with the round
				break
			}
			w.changed[changes[i].RunID] = struct{}{}
		}
	}
	if read {
		select {
		case h.dirty <- struct{}{}:
		default:
		}
	}
}

func (h *Hub) missed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.gap = true
		w.signal()
	}
}

func (h *Hub) run(ctx context.Context) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-h.dirty:
		}
		h.round(ctx)
		tick.Reset(pace)
	}
}

// portion is what one watcher waits for in a round.
type portion struct {
	w   *Watcher
	ids []domain.RunID
}

// round reads what changed and hands it out.
func (h *Hub) round(ctx context.Context) {
	portions, ids := h.collect()
	if len(portions) == 0 {
		return
	}
	readCtx, cancel := context.WithTimeout(ctx, readTime)
	runs, err := h.read(readCtx, ids)
	cancel()
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "reading changed runs; who watches them is told of a gap", "error", err)
	}
	found := make(map[domain.RunID]*domain.Run, len(runs))
	for i := range runs {
		found[runs[i].ID] = &runs[i]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range portions {
		p.w.gap = p.w.gap || err != nil
		for _, id := range p.ids {
			if run := found[id]; run != nil {
				p.w.keep(run)
			}
		}
		if p.w.gap || len(p.w.kept) > 0 {
			p.w.signal()
		}
	}
}

// collect takes what all watchers wait for, as much as is read at once. Their order is by chance, so that nobody is
// always left out.
func (h *Hub) collect() (portions []portion, ids []domain.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := make(map[domain.RunID]struct{})
	for w := range h.watchers {
		if len(w.changed) == 0 {
			continue
		}
		p := portion{w: w, ids: make([]domain.RunID, 0, len(w.changed))}
		for id := range w.changed {
			if _, known := wanted[id]; !known {
				if len(ids) == maxRead {
					w.gap = true
					continue
				}
				wanted[id] = struct{}{}
				ids = append(ids, id)
			}
			p.ids = append(p.ids, id)
		}
		clear(w.changed)
		portions = append(portions, p)
	}
	return portions, ids
}

// keep keeps what the filter makes of a run, in place of what was kept of it before. The caller holds the hub's mu.
func (w *Watcher) keep(run *domain.Run) {
	verdict := w.filter.Judge(run)
	if verdict == Nothing {
		return
	}
	e := Event{Run: *run, Gone: verdict == Gone}
	if i, known := w.at[run.ID]; known {
		w.kept[i] = e
		return
	}
	if len(w.kept) == maxKept {
		w.gap = true
		return
	}
	w.at[run.ID] = len(w.kept)
	w.kept = append(w.kept, e)
}
