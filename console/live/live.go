// Package live sends changed runs to watchers.
//
// A Source reports, as best effort, that a run changed its state. The Hub then reads the run from Postgres, once for all
// watchers, and each watcher gets the row. So a report can arrive twice, late or out of order without harm. The filter decides
// by the row whether a watcher may see the run.
//
// Everything is bounded. If a watcher would get too many runs, or takes them too slowly, it gets a gap and must read its
// whole list again.
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
	maxRead    = 1000                   // runs read in one round for all watchers
	maxKept    = 300                    // events kept for a watcher that has not taken them
	readTime   = 5 * time.Second
)

// Source reports which runs changed, in any process.
type Source interface {
	// Hear subscribes. Until stop is called, it calls changed with changes, and missed after changes may have been lost, one
	// call at a time. Unavailable: no subscription is possible now.
	Hear(changed func([]engine.Change), missed func()) (stop func(), err error)
}

// Reader reads runs in the form that lists show. It leaves out runs that do not exist.
type Reader func(ctx context.Context, ids []domain.RunID) ([]domain.Run, error)

// Filter selects the changes for a watcher.
type Filter struct {
	// Wants reports whether a change may concern the watcher. It must not block.
	Wants func(*engine.Change) bool
	// Judge decides from the present row of a run what the watcher gets. Nil: the watcher gets no runs, and each change
	// only wakes it.
	Judge func(*domain.Run) Verdict
}

// Verdict is a Filter's decision about a changed run.
type Verdict int

// The possible verdicts of a Filter.
const (
	Nothing Verdict = iota
	Show            // the run matches the filter
	Gone            // the run may have matched before, and does not match now
)

// Event is a run that changed.
type Event struct {
	Run  domain.Run
	Gone bool
}

// Hub distributes changes to watchers. It is subscribed to the source while there are watchers. Safe for concurrent use.
type Hub struct {
	source Source
	read   Reader
	log    *slog.Logger

	dirty chan struct{} // signals that changed runs must be read

	turn  sync.Mutex // held while a watcher is added or removed
	leave func()     // guarded by turn: ends the subscription and the reading

	mu       sync.Mutex
	watchers map[*Watcher]struct{} // mu also guards their fields
}

// NewHub makes a Hub. It subscribes to the source with the first Watch.
func NewHub(source Source, read Reader, log *slog.Logger) *Hub {
	return &Hub{source: source, read: read, log: log, dirty: make(chan struct{}, 1), watchers: make(map[*Watcher]struct{})}
}

// Watcher gets the changes that pass its filter, after Watch has returned. It is used by one goroutine.
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

// Watch adds a watcher. The caller must Close it. The error is the source's.
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

// Wake receives a value when Take has something to return. For a watcher without Judge, it receives one after each change.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Take returns the changed runs since the last call, each once and in its latest state. If gap is true, changes are missing.
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

// hear records a changed run, which the next round reads.
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
				w.gap = true // round reports it
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

// portion holds the changed runs of one watcher in a round.
type portion struct {
	w   *Watcher
	ids []domain.RunID
}

// round reads the changed runs and distributes them.
func (h *Hub) round(ctx context.Context) {
	portions, ids := h.collect()
	if len(portions) == 0 {
		return
	}
	readCtx, cancel := context.WithTimeout(ctx, readTime)
	runs, err := h.read(readCtx, ids)
	cancel()
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "cannot read changed runs, reporting a gap to their watchers", "err", err)
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

// collect takes the changed runs of all watchers, up to the limit of one round. The order of watchers is random, so that the
// limit does not hit the same watcher each time.
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

// keep applies the filter to a run and stores the resulting event. It replaces an earlier event of the run. The caller holds
// the hub's mu.
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
