package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// Store is what the dispatcher asks of Postgres.
type Store interface {
	Now() time.Time // the database's clock
	Definitions(ctx context.Context, runs []domain.Due) (domain.Definitions, error)
	CountRoutes(ctx context.Context, n map[domain.JobID]int) (map[domain.JobID]int64, error)
	TakeTurns(ctx context.Context, turns map[domain.JobID]domain.Turns) (map[domain.JobID]map[string]int64, error)
	ParentOutputs(ctx context.Context, parents []domain.RunID) (map[domain.RunID]string, error)
	ScriptCode(ctx context.Context, job domain.JobID, version int) (string, error)

	Admit(ctx context.Context, in []domain.Admission) (domain.Admitted, error)
	ExpandBroadcast(ctx context.Context, run domain.Due, def *domain.Definition, to []domain.ShardBinding) (domain.Admitted, error)
	WaitingKeys(ctx context.Context) ([]domain.WaitingKey, error)
	LongWaiting(ctx context.Context, d time.Duration) ([]domain.WaitingKey, error)
	WaitingCounts(ctx context.Context) (map[string]int, error)
	AssignWaiting(ctx context.Context, key domain.WaitingKey, limit int, choose func([]domain.WaitingRun) []domain.Binding) (bound []domain.LiveRun, others domain.Unassigned, err error)
	Unbind(ctx context.Context, refused []domain.Refusal) (waiting, killed []domain.LiveRun, err error)
	RaiseBinds(ctx context.Context, runs []domain.LiveRun) ([]domain.LiveRun, error)
	MarkRunning(ctx context.Context, started []domain.Started) ([]domain.Change, error)
	Settle(ctx context.Context, ended []domain.Ended) (domain.SettleResult, error)
	RequestKill(ctx context.Context, id domain.RunID, reason domain.Reason, by string) (domain.KillResult, error)

	Silent(ctx context.Context, after time.Duration, limit int) ([]domain.LiveRun, error)
	BoundBoots(ctx context.Context, silentAfter time.Duration) ([]domain.BoundBoot, error)
	RunsOf(ctx context.Context, b domain.BoundBoot, after domain.RunID, limit int) ([]domain.LiveRun, error)
	PastDeadline(ctx context.Context, limit int) ([]domain.LiveRun, error)
	PastGiveUp(ctx context.Context, limit int) ([]domain.LiveRun, error)
	UnconfirmedKills(ctx context.Context, after time.Duration, limit int) ([]domain.LiveRun, error)
	ReplanOverdue(ctx context.Context, limit int) (int, error)
	GoOnChains(ctx context.Context, limit int) (int, error)
	ReleaseOrphans(ctx context.Context, limit int) ([]domain.Due, error)
	ReturnStrays(ctx context.Context, limit int) (int, error)

	SyncClock(ctx context.Context) error
	MakeDays(ctx context.Context, days []time.Time) error
	Vacuum(ctx context.Context) error
}

// Config says what a dispatcher works with. All fields but Registry are required.
type Config struct {
	Store    Store
	Conn     *nats.Conn // without a reconnect buffer: an offer is sent now or not at all
	Log      *slog.Logger
	Registry prometheus.Registerer
	// LostAfter is within which time of an instance's death its attempts are named lost, give or take its lease:
	// 15 s at least, which 0 means.
	LostAfter time.Duration
	// Trace, if set, is called at named points, so that a test can end the process there: "bound" when bindings
	// are committed and nothing is offered yet, "offered" when an answer has come and nothing was done about it.
	Trace func(point string)
}

// Dispatcher fires, offers and kills in every process that does so, and with Run does a dispatcher's whole work.
type Dispatcher struct {
	store   Store
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	metrics metrics
	trace   func(point string)
	roster  *roster.Roster
	steady  *steadiness
	bound   bound
	behind  atomic.Pointer[backlog]        // nil: results were never seen to wait
	missing map[domain.BoundBoot]time.Time // since when a boot with runs is gone; judgeDeaths alone uses it
	lag     lagMeter                       // ResultsLag alone uses it
	patient time.Duration                  // how long it is waited for beyond what a verdict needs anyway

	offers   sync.WaitGroup // offers whose answer is awaited, and the work of the slow lane
	fastLane lane
	slowLane lane
	slow     *pool
	late     lateness

	hearers hearers // the groups whose changes somebody listens to

	mu      sync.Mutex
	waits   map[domain.WaitingKey]bool    // kinds of room that runs wait for; a hint, guarded by mu
	asks    map[domain.WaitingKey]*asking // whose instances are asked; guarded by mu
	waiting chan struct{}                 // capacity 1: somebody began to wait
}

// offersInFlight bounds the offers whose answer is awaited. Past it, bound runs are left to the reconciler that
// asks about silent ones.
const offersInFlight = 1024

// New returns a dispatcher that can Fire and Kill once Watch runs.
func New(cfg Config) (*Dispatcher, error) {
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "use JetStream", err)
	}
	d := &Dispatcher{
		store: cfg.Store, nc: cfg.Conn, js: js, log: cfg.Log, metrics: newMetrics(cfg.Registry),
		roster: roster.New(js, cfg.Log), waits: make(map[domain.WaitingKey]bool),
		asks: make(map[domain.WaitingKey]*asking), waiting: make(chan struct{}, 1), trace: cfg.Trace,
	}
	d.fastLane = lane{inFlight: make(chan struct{}, offersInFlight), took: d.metrics.dispatch.WithLabelValues("fast")}
	d.slowLane = lane{inFlight: make(chan struct{}, slowOffers), patient: true, took: d.metrics.dispatch.WithLabelValues("slow")}
	d.slow = newPool(slowWorkers, slowLine, &d.offers)
	if d.trace == nil {
		d.trace = func(string) {}
	}
	d.steady = newSteadiness(cfg.Conn, d.roster.Reconnected)
	d.bound = newBound()
	d.missing = make(map[domain.BoundBoot]time.Time)
	d.patient = max(cfg.LostAfter-lostSoonest, 0)
	return d, nil
}

// Watch keeps the roster and the state of the connection, which Fire, Kill and Instances need, and writes which
// accepted attempts run. It blocks until ctx ends and the answers to all offers are in.
func (d *Dispatcher) Watch(ctx context.Context) error {
	d.together(ctx, d.watchRoster, d.strangeLoop, d.steady.run, d.waitsLoop)
	d.offers.Wait()
	return nil
}

func (d *Dispatcher) watchRoster(ctx context.Context) {
	if err := d.roster.Run(ctx); err != nil {
		d.log.ErrorContext(ctx, "the roster ended", "err", err)
	}
}

// strangeLoop sets aside what is no heartbeat. All who watch the bucket do, and JetStream keeps the first one's letter.
func (d *Dispatcher) strangeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-d.roster.Strange():
			letter := wire.DeadLetter{Subject: wire.InstanceSubject(s.Key), Data: s.Value}
			if err := d.setAside(ctx, "heartbeat", letter, s.Reason, jetstream.WithMsgID("heartbeat "+s.Key)); err != nil {
				d.logUnlessDone(ctx, "setting aside what is no heartbeat", err)
			}
		}
	}
}

// Run does the work of the dispatcher role beside Watch: results, waiting runs, reconcilers. It blocks until ctx
// ends and what was taken is done.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.together(ctx, d.resultLoops, d.assignLoop, d.reconcileLoops, d.upkeepLoop, d.vacuumLoop)
	return nil
}

func (d *Dispatcher) together(ctx context.Context, parts ...func(context.Context)) {
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
}

// Instances lists the live instances of a group; of all groups where it is "".
func (d *Dispatcher) Instances(group string) []domain.Instance { return d.roster.Instances(group) }

// CheckNATS reports whether NATS is there.
func (d *Dispatcher) CheckNATS(context.Context) error {
	if s := d.nc.Status(); s != nats.CONNECTED {
		return domain.NewError(domain.Unavailable, "NATS cannot be reached: the connection is "+s.String())
	}
	return nil
}

// upkeepLoop keeps the database fit: partitions for the days to come; vacuumLoop keeps the hot tables small.
func (d *Dispatcher) upkeepLoop(ctx context.Context) {
	const period = 10 * time.Second
	var days time.Time
	for pause(ctx, period) {
		if err := d.store.SyncClock(ctx); err != nil {
			d.logUnlessDone(ctx, "reading the database's clock", err)
			continue
		}
		if now := d.store.Now(); now.Sub(days) > time.Hour {
			var ahead []time.Time
			for i := range 4 {
				ahead = append(ahead, now.AddDate(0, 0, i))
			}
			if err := d.store.MakeDays(ctx, ahead); err != nil {
				d.logUnlessDone(ctx, "making the partitions of the next days", err)
				continue
			}
			days = now
		}
	}
}

func (d *Dispatcher) vacuumLoop(ctx context.Context) {
	for pause(ctx, 2*time.Second) {
		if err := d.store.Vacuum(ctx); err != nil {
			d.logUnlessDone(ctx, "vacuuming the hot tables", err)
		}
	}
}

func (d *Dispatcher) logUnlessDone(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		d.log.WarnContext(ctx, what, "err", err)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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
