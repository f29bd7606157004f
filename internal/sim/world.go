package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/sim/memstore"
	"github.com/belfryhq/belfry/internal/sim/simnats"
)

// World is one simulated cluster and what is known of its life.
type World struct {
	seed  uint64
	plan  plan
	dir   string // of the spools
	began time.Time
	db    *memstore.DB
	hands *memstore.Store // of whoever edits, triggers and looks
	nats  *simnats.Server
	nodes []*node

	faults  faults
	helpers sync.WaitGroup // steps under way
	working atomic.Int64   // follow-ups that a worker has
	healed  atomic.Bool    // no step may break anything any more
	skewed  atomic.Bool    // some process had the database's clock wrong
	// healedAt is when all was mended for good.
	healedAt time.Time

	mu       sync.Mutex
	rng      *rand.Rand
	events   []event
	messages []simnats.Message
	faulty   []fault // whoever found them
	starts   map[attempt]*start
	kills    map[domain.RunID]bool
	jobs     []domain.JobID
	wipes    []time.Time // of NATS's storage
}

// fault is something that must not be.
type fault struct {
	run  domain.RunID // if it is about one
	text string
}

// event is something that happened, for the trace of a failure.
type event struct {
	at   time.Time
	who  string
	what string
}

// faults is what is wrong at the moment.
type faults struct {
	loss, spikes, fails, unknown atomic.Int64 // in millionths
	awayUntil                    atomic.Int64 // Postgres, in nanoseconds
}

func (f *faults) databaseAway() bool    { return time.Now().UnixNano() < f.awayUntil.Load() }
func (f *faults) storeFails() float64   { return float64(f.fails.Load()) / 1e6 }
func (f *faults) storeUnknown() float64 { return float64(f.unknown.Load()) / 1e6 }

// newWorld makes a cluster that has not begun. Its files go below dir.
func newWorld(seed uint64, dir string) *World {
	w := &World{
		seed: seed, plan: newPlan(seed), dir: dir, began: time.Now(), db: memstore.New(), rng: rand.New(rand.NewPCG(seed, 2)),
		starts: make(map[attempt]*start), kills: make(map[domain.RunID]bool),
	}
	w.hands = w.db.Store()
	w.nats = simnats.New(w, w.observe)
	for _, n := range w.plan.nodes {
		w.nodes = append(w.nodes, &node{w: w, name: n.name, role: n.role, group: n.group})
	}
	return w
}

// Delay implements simnats.Faults.
func (w *World) Delay(string) time.Duration {
	if w.chance(float64(w.faults.spikes.Load()) / 1e6) {
		return w.between(0, 800*time.Millisecond)
	}
	return w.between(50*time.Microsecond, time.Millisecond)
}

// Lose implements simnats.Faults.
func (w *World) Lose(string, string) bool { return w.chance(float64(w.faults.loss.Load()) / 1e6) }

// chance draws whether something of a probability happens.
func (w *World) chance(p float64) bool {
	if p <= 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

func (w *World) between(lo, hi time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

func (w *World) event(who, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event{time.Now(), who, what})
}

// fault notes something that must not be.
func (w *World) fault(format string, args ...any) { w.faultOf(domain.NilRunID, format, args...) }

// faultOf notes something about a run that must not be.
func (w *World) faultOf(run domain.RunID, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = append(w.faulty, fault{run, fmt.Sprintf(format, args...)})
}

// observe keeps messages for the trace, and springs traps that wait for one.
func (w *World) observe(m simnats.Message) {
	w.mu.Lock()
	w.messages = append(w.messages, m)
	w.mu.Unlock()
	for _, n := range w.nodes {
		if n.trapped.Load() == nil {
			continue
		}
		p := n.trapped.Load()
		t := p.trap.Load()
		if t == nil || (m.From != p.name && m.To != p.name) {
			continue
		}
		verb := "sends "
		if m.To == p.name {
			verb = "hears "
		}
		if subject, ok := strings.CutPrefix(t.point, verb); ok && strings.HasPrefix(m.Subject, subject) {
			go p.passes(t.point) // not here, under the server's lock
		}
	}
}

// log is a process's logger: warnings become events.
func (w *World) log(p *process) *slog.Logger { return slog.New(&eventHandler{w: w, who: p.title}) }

type eventHandler struct {
	w   *World
	who string
}

func (h *eventHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h *eventHandler) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *eventHandler) WithGroup(string) slog.Handler                { return h }

func (h *eventHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Level.String() + " " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.w.event(h.who, b.String())
	return nil
}

// node returns the node of a name.
func (w *World) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	panic("sim: no node " + name)
}

// life returns the process that fills the node at the moment, nil while it is down.
func (n *node) life() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current
}

// Run lives the world's life: it starts the cluster, loads it and breaks it, heals it, and waits until it is quiet.
func (w *World) Run() {
	for _, n := range w.nodes {
		n.start()
	}
	w.createJobs()
	for _, s := range w.plan.steps {
		w.helpers.Go(func() {
			time.Sleep(time.Until(w.began.Add(s.at)))
			s.do(w)
		})
	}
	time.Sleep(loadFor)
	w.heal()
	w.helpers.Wait()
	w.heal() // what a step did while it ended
	w.healedAt = time.Now()
	time.Sleep(recoverFor)
	w.disableAll()
	w.awaitQuiet()
	w.checkLoads()
	w.end()
	w.check()
}

// heal mends everything, for good.
func (w *World) heal() {
	w.healed.Store(true)
	w.event("nemesis", "all is healed")
	for _, p := range []*atomic.Int64{&w.faults.loss, &w.faults.spikes, &w.faults.fails, &w.faults.unknown, &w.faults.awayUntil} {
		p.Store(0)
	}
	w.nats.Start(false)
	for _, n := range w.nodes {
		n.trapped.Store(nil)
		if p := n.life(); p != nil {
			p.trap.Store(nil)
			p.frozen.Store(0)
			p.link.Freeze(false)
			n.mu.Lock()
			n.settleTrouble("cut off")
			n.settleTrouble("frozen")
			n.mu.Unlock()
		}
		n.start()
	}
}

// The limits of a world's life.
const (
	loadFor    = 40 * time.Second
	recoverFor = 10 * time.Second // from the healing to the end of the load: all goes well again
	quietFor   = 3 * time.Second
	quietMax   = 5 * time.Minute
)

// awaitQuiet waits until nothing is left to do.
func (w *World) awaitQuiet() {
	quiet := time.Time{}
	for deadline := time.Now().Add(quietMax); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
		if w.db.Unfinished() > 0 || w.db.FollowUps() > 0 || w.working.Load() > 0 || w.nats.Stored("BELFRY_RESULTS") > 0 || w.handling() > 0 {
			quiet = time.Time{}
			continue
		}
		if quiet.IsZero() {
			quiet = time.Now()
		}
		if time.Since(quiet) >= quietFor {
			return
		}
	}
}

// end stops every process, in order, and waits until the dead are gone too.
func (w *World) end() {
	for _, n := range w.nodes {
		if p := n.life(); p != nil {
			p.leave()
		}
	}
	for _, n := range w.nodes {
		for _, p := range n.lives {
			<-p.done
		}
	}
	w.nats.Close()
}
