package outbound

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience ends a test that hangs.
const patience = 3 * time.Minute

// world is a database with the open group g, a NATS server, an executor, and a stand-in for a dispatcher.
type world struct {
	t       *testing.T
	pg      *store.Store
	pool    *pgxpool.Pool
	sends   *gateway.Store
	nc      *nats.Conn
	js      jetstream.JetStream
	natsURL string
	exec    *executor
	kind    string // of the executor

	mu      sync.Mutex
	beats   map[string]wire.Heartbeat // by instance
	results []wire.Result
	lines   []wire.LogLine
	linesOf map[string][]wire.LogLine // by run
	settles bool                      // the dispatcher settles results

	// Of processes that are started later; 0: as in the product.
	takeEvery time.Duration
	mostTails int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pg, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	w := &world{t: t, pg: pg, pool: pg.Pool(), sends: gateway.New(pg.Pool(), ""), exec: newExecutor(t), kind: "java", beats: map[string]wire.Heartbeat{}, linesOf: map[string][]wire.LogLine{}, settles: true}
	if _, _, err := group.New(pg.Pool()).CreateGroup(t.Context(), "g", ""); err != nil {
		t.Fatal(err)
	}
	if err := w.sends.OpenGroup(t.Context(), w.group()); err != nil {
		t.Fatal(err)
	}
	w.startNATS()
	return w
}

func (w *world) group() gateway.Group {
	return gateway.Group{Name: "g", App: "g", Capacity: 16, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
}

// Group implements Groups.
func (w *world) Group(name string) (gateway.Group, bool) { return w.group(), name == "g" }

func (w *world) startNATS() {
	w.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: w.t.TempDir(), NoSigs: true, NoLog: true, JetStreamMaxStore: natsinfra.StorageBytes})
	if err != nil {
		w.t.Fatal(err)
	}
	s.Start()
	w.t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		w.t.Fatal("NATS does not start")
	}
	w.natsURL = s.ClientURL()
	w.nc = w.connect()
	if w.js, err = jetstream.New(w.nc); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the streams exist", func() bool { return natsinfra.Ensure(w.t.Context(), w.js, 1) == nil })
	for subject, take := range map[string]func(*nats.Msg){
		wire.InstanceSubject(wire.InstanceKey("g", "*")): w.beat, wire.ResultSubject("g"): w.result, wire.LogSubject("g"): w.line,
	} {
		if _, err := w.nc.Subscribe(subject, take); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) connect() *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.natsURL, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

func (w *world) beat(m *nats.Msg) {
	var h wire.Heartbeat
	if wire.Decode(m.Data, &h) == nil && h.Instance != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.beats[h.Instance] = h
	}
}

// result takes results as a dispatcher does, and settles them.
func (w *world) result(m *nats.Msg) {
	var r wire.Results
	if err := wire.Decode(m.Data, &r); err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results = append(w.results, r.Results...)
	if !w.settles {
		return
	}
	for _, one := range r.Results {
		refs := []wire.Ref{{RunID: one.RunID, Attempt: one.Attempt, BootID: one.BootID}}
		_ = w.nc.Publish(wire.ControlSubject("g", one.Instance), wire.EncodeSettled(refs)) // a lost message is sent again with the result
	}
}

func (w *world) line(m *nats.Msg) {
	var l wire.Logs
	if err := wire.Decode(m.Data, &l); err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, l.Lines...)
	w.linesOf[l.RunID] = append(w.linesOf[l.RunID], l.Lines...)
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-deadline:
			w.t.Fatalf("not within %v: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// process is a gateway process.
type process struct {
	*Fleet
	stop func() // in order
}

// start starts a gateway. With a gate, it uses its store through the gate.
func (w *world) start(owner string, wrap *gate, p address.Patience) *process {
	w.t.Helper()
	g := &gate{Store: w.sends}
	if wrap != nil {
		g = wrap
		g.Store = w.sends
	}
	f := New(Config{Addresses: g, Sends: g, Records: g, WireIDs: group.New(w.pool), Groups: w, Conn: w.connect(), Owner: owner, Log: slog.New(slog.DiscardHandler), Patience: p})
	if w.takeEvery > 0 {
		f.takeEvery = w.takeEvery
	}
	if w.mostTails > 0 {
		f.mostTails = w.mostTails
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx) // it returns nil
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	w.t.Cleanup(stop)
	return &process{f, stop}
}

// register registers the executor at a gateway.
func (w *world) register(p *process) string {
	w.t.Helper()
	return w.registerAt(p, w.exec.URL)
}

func (w *world) registerAt(p *process, url string) string {
	w.t.Helper()
	a, err := protocol.ParseAddress(url)
	if err != nil {
		w.t.Fatal(err)
	}
	r := gateway.Registration{Group: "g", Instance: a.Instance(), URL: a.String(), Source: netip.MustParseAddr("127.0.0.1"), Kind: w.kind, Agent: "Java/17", BootID: "boot"}
	if err := p.Register(w.t.Context(), r); err != nil {
		w.t.Fatal(err)
	}
	return a.Instance()
}

// ready waits for a heartbeat of the instance that fulfils ok, and returns it.
func (w *world) ready(instance string, ok func(wire.Heartbeat) bool) (h wire.Heartbeat) {
	w.t.Helper()
	w.eventually("a heartbeat of "+instance, func() bool {
		w.set(func() { h = w.beats[instance] })
		return h.Instance != "" && ok(h)
	})
	return h
}

func anyBeat(wire.Heartbeat) bool { return true }

// offerOf returns an offer of a new run.
func offerOf(job int64) wire.Offer {
	now := wire.Time{Time: time.Now()}
	return wire.Offer{RunID: domain.NewRunID(time.Now()).String(), Attempt: 1, Bind: 1, JobID: job, JobName: "j", Group: "g", Handler: "demo", Param: "p", DueAt: now, Now: now, BoundAt: now}
}

// ask offers runs, and returns the answer.
func (w *world) ask(instance string, beat int64, offers ...wire.Offer) (a wire.Answer, err error) {
	w.t.Helper()
	reply, err := w.nc.Request(wire.TriggerSubject("g", instance), wire.Encode(wire.Offers{V: 1, BootID: "boot", Beat: beat, Offers: offers}), 5*time.Second)
	if err != nil {
		return a, err
	}
	if err := wire.Decode(reply.Data, &a); err != nil {
		w.t.Fatal(err)
	}
	return a, nil
}

// offer offers runs, and returns the verdicts in words.
func (w *world) offer(instance string, beat int64, offers ...wire.Offer) []string {
	w.t.Helper()
	a, err := w.ask(instance, beat, offers...)
	if err != nil {
		return []string{err.Error()}
	}
	var said []string
	for _, v := range a.Verdicts {
		said = append(said, v.Verdict+v.Reason+v.Outcome)
	}
	return said
}

// accepted offers a run and waits until it is accepted.
func (w *world) accepted(instance string, o wire.Offer) {
	w.t.Helper()
	w.eventually("the run is accepted", func() bool {
		h := w.ready(instance, anyBeat)
		said := w.offer(instance, h.Beat, o)
		o.Bind++
		return len(said) == 1 && said[0] == wire.Accepted
	})
}

// callback ends the run that the executor received last.
func (w *world) callback(p *process, logID int64, killed bool) {
	w.t.Helper()
	if killed {
		w.store(p, gateway.End{LogID: logID, Killed: true, Result: gateway.Result{Outcome: wire.Failed, Reason: "lost"}})
		return
	}
	w.store(p, gateway.End{LogID: logID, Result: gateway.Result{Outcome: wire.Succeeded, Output: "done"}})
}

// end ends a run.
func (w *world) end(p *process, logID int64, outcome string) {
	w.t.Helper()
	w.store(p, gateway.End{LogID: logID, Result: gateway.Result{Outcome: outcome}})
}

// store stores the end of a run, as the callback does.
func (w *world) store(p *process, end gateway.End) {
	w.t.Helper()
	if _, err := w.sends.Finish(w.t.Context(), []string{"g"}, []gateway.End{end}); err != nil {
		w.t.Fatal(err)
	}
	p.Stored([]int64{end.LogID})
}

// received waits until the executor has received n runs, and returns the last one.
func (w *world) received(n int) (last protocol.Run) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("the executor has %d runs", n), func() bool { return w.exec.requests() >= n })
	w.exec.set(func() { last = w.exec.sent[n-1] })
	return last
}

// resultOf waits for a result of a run.
func (w *world) resultOf(o wire.Offer) (r wire.Result) {
	w.t.Helper()
	w.eventually("the result of the run", func() bool {
		found := false
		w.set(func() {
			for _, one := range w.results {
				if one.RunID == o.RunID {
					r, found = one, true
				}
			}
		})
		return found
	})
	return r
}

// endOf waits for the result of a run that has started. On a busy machine, earlier rounds of the offer may have gone back.
func (w *world) endOf(o wire.Offer) (r wire.Result) {
	w.t.Helper()
	w.eventually("the end of the run", func() bool {
		r = w.resultOf(o)
		return r.Outcome != wire.Unstarted
	})
	return r
}

// state returns the state of the newest send of a run.
func (w *world) state(o wire.Offer) (state string) {
	w.t.Helper()
	err := w.pool.QueryRow(w.t.Context(), `SELECT COALESCE((SELECT state FROM gateway_sends WHERE run_id = $1 ORDER BY log_id DESC LIMIT 1), '')`, o.RunID).Scan(&state)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

// gate is a store that can be closed for the statements that keep an address, and that calls sent after a Send.
type gate struct {
	*gateway.Store
	mu     sync.Mutex
	closed bool
	sent   func()
	sends  []int         // how many sends each statement recorded
	read   map[int64]int // how often each result was read by its log id
}

var errClosedGate = domain.NewError(domain.Unavailable, "the gate is closed")

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) Renew(ctx context.Context, owner string, holds []gateway.Hold, lease time.Duration) ([]gateway.Address, error) {
	if g.isClosed() {
		return nil, errClosedGate
	}
	return g.Store.Renew(ctx, owner, holds, lease)
}

func (g *gate) TakeOver(ctx context.Context, owner string, limit int, lease time.Duration) ([]gateway.Address, error) {
	if g.isClosed() {
		return nil, errClosedGate
	}
	return g.Store.TakeOver(ctx, owner, limit, lease)
}

func (g *gate) Send(ctx context.Context, owner string, holds []gateway.Hold, ids []int64) (map[int64]time.Time, []time.Duration, error) {
	at, left, err := g.Store.Send(ctx, owner, holds, ids)
	g.mu.Lock()
	g.sends = append(g.sends, len(ids))
	g.mu.Unlock()
	if g.sent != nil {
		g.sent()
	}
	return at, left, err
}

func (g *gate) Results(ctx context.Context, logIDs []int64) ([]gateway.Send, error) {
	sends, err := g.Store.Results(ctx, logIDs)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read == nil {
		g.read = make(map[int64]int)
	}
	for _, s := range sends {
		g.read[s.LogID]++
	}
	return sends, err
}

// resultsRead returns how often the result was read that was read most often.
func (g *gate) resultsRead() (most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.read {
		most = max(most, n)
	}
	return most
}

// statements returns how many statements recorded sends.
func (g *gate) statements() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sends)
}

// recorded returns how many sends they recorded.
func (g *gate) recorded() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, sends := range g.sends {
		n += sends
	}
	return n
}
