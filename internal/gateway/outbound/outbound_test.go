package outbound

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
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
	"github.com/belfryhq/belfry/internal/lifecycle"
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

// executor stands for an executor of XXL-JOB. It takes every run, unless answer says otherwise.
type executor struct {
	*httptest.Server
	mu    sync.Mutex
	runs  map[int64]int // how often each log id was sent
	kills map[int64]int // by job id
	sent  []protocol.Run
	// answer returns the answer to a request, or "" for the usual one. It is called without the lock.
	answer func(path string, body []byte) string
	log    string
	idle   bool // it denies having runs
}

func newExecutor(t *testing.T) *executor {
	t.Helper()
	e := &executor{runs: map[int64]int{}, kills: map[int64]int{}, log: "one\ntwo\nthree"}
	e.Server = httptest.NewServer(e)
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// ServeHTTP implements http.Handler.
func (e *executor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		protocol.Run
		From int `json:"fromLineNum"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		panic(err)
	}
	e.mu.Lock()
	answer, reply := e.answer, `{"code":200}`
	switch r.URL.Path {
	case "/run":
		e.runs[body.LogID]++
		e.sent = append(e.sent, body.Run)
	case "/kill":
		e.kills[body.JobID]++
	case "/idleBeat":
		if !e.idle {
			reply = `{"code":500,"msg":"job thread is running or has trigger queue."}`
		}
	case "/log":
		lines := strings.Split(e.log, "\n")
		content := strings.Join(lines[min(body.From-1, len(lines)):], "\n")
		data, err := json.Marshal(map[string]any{"fromLineNum": body.From, "toLineNum": len(lines), "logContent": content, "isEnd": false})
		if err != nil {
			panic(err)
		}
		reply = fmt.Sprintf(`{"code":200,"data":%s}`, data)
	}
	e.mu.Unlock()
	if answer != nil {
		encoded, err := json.Marshal(body.Run)
		if err != nil {
			panic(err)
		}
		if other := answer(r.URL.Path, encoded); other != "" {
			reply = other
		}
	}
	fmt.Fprint(w, reply)
}

func (e *executor) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *executor) count(f func() int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return f()
}

// requests returns how many runs the executor received.
func (e *executor) requests() int { return e.count(func() int { return len(e.sent) }) }

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
	settles bool // the dispatcher settles results
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pg, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.Close)
	w := &world{t: t, pg: pg, pool: pg.Pool(), sends: gateway.New(pg.Pool(), ""), exec: newExecutor(t), kind: "java", beats: map[string]wire.Heartbeat{}, settles: true}
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
	a, err := protocol.ParseAddress(w.exec.URL)
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

// offer offers runs, and returns the verdicts in words.
func (w *world) offer(instance string, beat int64, offers ...wire.Offer) []string {
	w.t.Helper()
	reply, err := w.nc.Request(wire.TriggerSubject("g", instance), wire.Encode(wire.Offers{V: 1, BootID: "boot", Beat: beat, Offers: offers}), 5*time.Second)
	if err != nil {
		return []string{err.Error()}
	}
	var a wire.Answer
	if err := wire.Decode(reply.Data, &a); err != nil {
		w.t.Fatal(err)
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
	end := gateway.End{LogID: logID, Result: gateway.Result{Outcome: wire.Succeeded, Output: "done"}}
	if killed {
		end = gateway.End{LogID: logID, Killed: true, Result: gateway.Result{Outcome: wire.Failed, Reason: "lost"}}
	}
	if _, err := w.sends.Finish(w.t.Context(), []string{"g"}, []gateway.End{end}); err != nil {
		w.t.Fatal(err)
	}
	p.Stored([]int64{logID})
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

// An accepted run is sent once, with what the offer says. Its callback becomes its result, and its log lines arrive. A repeated offer does not start it again.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	h := w.ready(instance, anyBeat)
	if len(h.Handlers) != 1 || h.Handlers[0] != wire.AnyHandler || h.Beat>>32 != 1 || h.Capacity != 16 {
		t.Errorf("the heartbeat: %+v", h)
	}
	o := offerOf(7)
	o.TimeoutMS, o.Shard = 1500, wire.Shard{Index: 2, Total: 3}
	w.accepted(instance, o)
	run := w.received(1)
	if run.Handler != "demo" || run.Param != "p" || run.TimeoutS != 2 || run.Block != "SERIAL_EXECUTION" || run.ShardIndex != 2 || run.ShardTotal != 3 || run.JobID < 1e9 || run.LogID < 1<<40 {
		t.Errorf("the request: %+v", run)
	}
	if said := w.offer(instance, h.Beat, o); len(said) != 1 || said[0] != wire.Accepted {
		t.Errorf("offered again: %v", said)
	}
	w.eventually("the first lines of the log", func() bool {
		n := 0
		w.set(func() { n = len(w.lines) })
		return n >= 2
	})
	w.callback(p, run.LogID, false)
	if r := w.endOf(o); r.Outcome != wire.Succeeded || r.Output != "done" || r.LastLine < 2 || r.StartedAt.IsZero() || r.BootID != "boot" {
		t.Errorf("the result: %+v", r)
	}
	w.eventually("the result is settled", func() bool {
		said := w.offer(instance, w.ready(instance, anyBeat).Beat, o)
		return len(said) == 1 && said[0] == wire.Ended+wire.Succeeded
	})
	if n := w.exec.requests(); n != 1 {
		t.Errorf("the executor received %d runs", n)
	}
}

// The executor gets one run of a job at a time. Another one waits until the first has ended or until its offer is too old, and a kill ends its wait.
func TestOneRunOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	first, second, third, other := offerOf(7), offerOf(7), offerOf(7), offerOf(8)
	w.accepted(instance, first)
	run := w.received(1)
	w.accepted(instance, second)
	w.accepted(instance, third)
	w.accepted(instance, other)
	if other := w.received(2); other.JobID == run.JobID {
		t.Error("two runs of a job were sent")
	}
	if _, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpKill, Reason: "killed", Runs: []wire.Ref{{RunID: third.RunID, Attempt: 1}}}), 5*time.Second); err != nil {
		t.Error(err)
	}
	if r := w.resultOf(third); r.Outcome != wire.Unstarted {
		t.Errorf("the killed run: %+v", r)
	}
	w.callback(p, run.LogID, false)
	w.eventually("the second run is sent, or goes back", func() bool { return w.state(second) != "accepted" })
	if state := w.state(second); state != "unstarted" {
		w.received(3)
	}
}

// A kill of a run at the executor is sent, and confirmed by the callback.
func TestKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	w.eventually("the run is running", func() bool { return w.state(o) == "taken" })
	if _, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpKill, Reason: "covered", Runs: []wire.Ref{{RunID: o.RunID, Attempt: 1}}}), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	w.eventually("the executor gets the kill", func() bool { return w.exec.count(func() int { return w.exec.kills[run.JobID] }) > 0 })
	w.callback(p, run.LogID, true)
	if r := w.endOf(o); r.Outcome != wire.Cancelled || r.Reason != "covered" {
		t.Errorf("the result: %+v", r)
	}
}

// A request without an answer counts as running, and is not sent again.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/run" {
			return "no JSON"
		}
		return ""
	}
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	w.eventually("the answer is unknown", func() bool { return w.state(o) == "unknown" })
	reply, err := w.nc.Request(wire.ControlSubject("g", instance), wire.Encode(wire.Control{V: 1, Op: wire.OpStatus, Runs: []wire.Ref{{RunID: o.RunID, Attempt: 1}}}), 5*time.Second)
	if err != nil || !strings.Contains(string(reply.Data), `"running"`) {
		t.Errorf("the status: %s, %v", reply.Data, err)
	}
	w.callback(p, w.received(1).LogID, false)
	if r := w.endOf(o); r.Outcome != wire.Succeeded || w.exec.requests() != 1 {
		t.Errorf("the result after %d requests: %+v", w.exec.requests(), r)
	}
}

// A refused run is routed again, or fails if no executor can run it. An address that refuses a handler says so in its heartbeat.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, outcome, reason string
		unfit                   string
		lacks                   bool
	}{
		"no handler":  {`{"code":500,"msg":"job handler [demo] not found."}`, wire.Failed, "handler_not_found", "", true},
		"wrong token": {`{"code":500,"msg":"The access token is wrong."}`, wire.Unstarted, "", "wrong_token", false},
		"no path":     {`{"code":500,"msg":"invalid request, uri-mapping(/run) not found."}`, wire.Unstarted, "", "no_executor", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.exec.answer = func(path string, _ []byte) string {
				if path == "/run" || path == "/trigger" || path == "/beat" {
					return c.answer
				}
				return ""
			}
			p := w.start("p", nil, address.Patience{})
			instance := w.register(p)
			o := offerOf(7)
			w.accepted(instance, o)
			if r := w.resultOf(o); r.Outcome != c.outcome || r.Reason != c.reason {
				t.Errorf("the result: %+v", r)
			}
			w.ready(instance, func(h wire.Heartbeat) bool {
				return (h.Unfit == nil && c.unfit == "" || h.Unfit != nil && h.Unfit.Reason == c.unfit) && (len(h.Lacks) == 1) == c.lacks
			})
			if c.unfit != "" {
				w.exec.set(func() { w.exec.answer = nil })
				w.ready(instance, func(h wire.Heartbeat) bool { return h.Unfit == nil })
			}
		})
	}
}

// A run that an executor is too busy for is asked for again, and routed again in the end.
func TestBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec.answer = func(path string, _ []byte) string {
		if path == "/run" {
			return `{"code":500,"msg":"There are tasks running"}`
		}
		return ""
	}
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted || w.exec.requests() < 2 {
		t.Errorf("after %d requests: %+v", w.exec.requests(), r)
	}
}

// An executor that cannot be reached gets no runs until it answers.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	w.ready(instance, anyBeat)
	w.exec.CloseClientConnections()
	w.exec.Close()
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted {
		t.Errorf("the result: %+v", r)
	}
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Unfit != nil && h.Unfit.Reason == "unreachable" })
	if said := w.offer(instance, h.Beat, offerOf(7)); len(said) != 1 || said[0] != "refusedfull" {
		t.Errorf("a run for it: %v", said)
	}
}

// Only addresses in the networks of the group are called, and never those on which Belfry itself listens.
func TestForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	for _, to := range []string{"10.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fe80::1]:80", "0.0.0.0:80"} {
		if err := p.Check("g", netip.MustParseAddrPort(to)); domain.CodeOf(err) != domain.Forbidden {
			t.Errorf("%s: %v", to, err)
		}
	}
	if err := p.Check("g", netip.MustParseAddrPort("127.0.0.1:80")); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
	if err := p.Check("h", netip.MustParseAddrPort("127.0.0.1:80")); domain.CodeOf(err) != domain.NotFound {
		t.Errorf("a group that is not open: %v", err)
	}
	own := netip.MustParseAddrPort(strings.TrimPrefix(w.exec.URL, "http://"))
	p.Own = func() []netip.AddrPort { return []netip.AddrPort{own} } // before the first call
	if err := p.Check("g", own); domain.CodeOf(err) != domain.Forbidden {
		t.Errorf("an address of Belfry: %v", err)
	}
	instance := w.register(p) // as an address with a name would pass
	o := offerOf(7)
	w.accepted(instance, o)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted || w.exec.requests() != 0 {
		t.Errorf("after %d requests to an address of Belfry: %+v", w.exec.requests(), r)
	}
}

// short is a patience for tests.
var short = address.Patience{Silent: 4 * time.Second, Lost: 2 * time.Second, Check: 200 * time.Millisecond}

// A run that the executor denies to have is lost, and is not tried again. A callback that comes later is reported as well.
func TestLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kind = "other" // of which any number of registrations is normal
	p := w.start("p", nil, short)
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	w.exec.set(func() { w.exec.idle = true })
	w.eventually("the run is lost", func() bool {
		w.register(p)
		lifecycle.Pause(t.Context(), 100*time.Millisecond)
		return w.state(o) == "lost"
	})
	if r := w.endOf(o); r.Outcome != wire.Failed || r.Reason != "lost" || !r.Permanent || !strings.Contains(r.Message, "does not have the run") {
		t.Errorf("the result: %+v", r)
	}
	w.callback(p, run.LogID, false)
	w.eventually("the late result", func() bool { return w.endOf(o).Outcome == wire.Succeeded })
}

// An executor that registers no more gets no runs, and then its runs are lost and its address is removed.
func TestGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, short)
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	w.received(1)
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Draining })
	if r := w.endOf(o); r.Reason != "lost" || !strings.Contains(r.Message, "no registration") {
		t.Errorf("the result: %+v", r)
	}
	w.eventually("the address is removed", func() bool {
		var n int
		if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM gateway_addresses`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// An executor that says that it stops gets no runs, and its address is removed after its last run. It can come back.
func TestLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("p", nil, address.Patience{})
	instance := w.register(p)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	if err := p.Leave(t.Context(), "g", instance); err != nil {
		t.Fatal(err)
	}
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Draining })
	if said := w.offer(instance, h.Beat, offerOf(7)); len(said) != 1 || said[0] != "refuseddraining" {
		t.Errorf("a run for it: %v", said)
	}
	w.callback(p, run.LogID, false)
	w.resultOf(o)
	w.eventually("the address is removed", func() bool { return p.find(place{"g", instance}) == nil })
	w.register(p)
	w.accepted(instance, offerOf(7))
	w.received(2)
}

// gate is a store that can be closed for the statements that keep an address, and that calls sent after a Send.
type gate struct {
	*gateway.Store
	mu     sync.Mutex
	closed bool
	sent   func()
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

func (g *gate) Send(ctx context.Context, owner string, h gateway.Hold, ids []int64) (map[int64]time.Time, time.Duration, error) {
	at, left, err := g.Store.Send(ctx, owner, h, ids)
	if g.sent != nil {
		g.sent()
	}
	return at, left, err
}

// If a gateway dies while a run is at the executor, another one takes the address over with the same boot. The run goes on, is not sent again, and
// its callback is its result, whichever gateway receives it.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := &gate{}
	first := w.start("first", g, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	run := w.received(1)
	w.eventually("the run is running", func() bool { return w.state(o) == "taken" })
	old := w.ready(instance, anyBeat)
	second := w.start("second", nil, address.Patience{})
	g.close() // the first one cannot keep the address any more
	h := w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 == 2 })
	if h.BootID != "boot" || h.Running != 1 {
		t.Errorf("the heartbeat of the new owner: %+v", h)
	}
	if said := w.offer(instance, old.Beat, offerOf(8)); len(said) != 1 || said[0] != "refusedstale" {
		t.Errorf("an offer that relies on a heartbeat of the old owner: %v", said)
	}
	if said := w.offer(instance, h.Beat, o); len(said) != 1 || said[0] != wire.Accepted {
		t.Errorf("the run is offered again: %v", said)
	}
	w.callback(first, run.LogID, false)
	if r := w.endOf(o); r.Outcome != wire.Succeeded {
		t.Errorf("the result: %+v", r)
	}
	w.eventually("the new owner knows the end", func() bool {
		return w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 == 2 }).Running == 0
	})
	if n := w.exec.requests(); n != 1 {
		t.Errorf("the run was sent %d times", n)
	}
	_ = second
}

// A gateway that is frozen between the permission to send a run and the request makes no request after another gateway has taken the address over.
func TestFrozenBeforeTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	thaw, frozen := make(chan struct{}), make(chan struct{})
	var once sync.Once
	g := &gate{sent: func() {
		once.Do(func() { close(frozen) })
		<-thaw
	}}
	first := w.start("first", g, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	<-frozen
	g.close()
	w.start("second", nil, address.Patience{})
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 == 2 })
	if state := w.state(o); state != "unknown" {
		t.Errorf("after the take-over, the send is %s", state)
	}
	close(thaw)
	if r := w.resultOf(o); r.Outcome != wire.Unstarted {
		t.Errorf("the result: %+v", r)
	}
	if n := w.exec.requests(); n != 0 {
		t.Errorf("the executor received %d runs", n)
	}
}

// A gateway that stops in order gives back what it has not sent, and leaves the address to another one at once.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("first", nil, address.Patience{})
	instance := w.register(first)
	sent, waiting := offerOf(7), offerOf(7)
	w.accepted(instance, sent)
	run := w.received(1)
	w.accepted(instance, waiting)
	first.stop()
	second := w.start("second", nil, address.Patience{})
	w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 == 2 })
	if r := w.resultOf(waiting); r.Outcome != wire.Unstarted {
		t.Errorf("the run that waited: %+v", r)
	}
	w.callback(second, run.LogID, false)
	if r := w.endOf(sent); r.Outcome != wire.Succeeded || w.exec.requests() != 1 {
		t.Errorf("after %d requests: %+v", w.exec.requests(), r)
	}
}

// A result is published until it is settled, also by a later owner.
func TestPublishedUntilSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settles = false
	first := w.start("first", nil, address.Patience{})
	instance := w.register(first)
	o := offerOf(7)
	w.accepted(instance, o)
	w.callback(first, w.received(1).LogID, false)
	w.endOf(o)
	first.stop()
	published := 0
	w.set(func() { w.results, w.settles = nil, true })
	w.start("second", nil, address.Patience{})
	w.endOf(o)
	w.eventually("the result is settled", func() bool {
		if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM gateway_sends WHERE forget_at IS NOT NULL`).Scan(&published); err != nil {
			t.Fatal(err)
		}
		return published == 1
	})
}

// While two gateways lose and take over the address again and again, no run is sent twice, and each run that was accepted ends.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := func(i int) (*process, *gate) {
		g := &gate{}
		return w.start(fmt.Sprintf("p%d", i), g, address.Patience{}), g
	}
	p, g := start(0)
	instance := w.register(p)
	w.exec.answer = func(path string, body []byte) string {
		var run protocol.Run
		if err := json.Unmarshal(body, &run); err != nil {
			panic(err)
		}
		if path == "/run" { // the callback often comes before the answer
			end := gateway.End{LogID: run.LogID, Result: gateway.Result{Outcome: wire.Succeeded}}
			_, _ = w.sends.Finish(context.Background(), []string{"g"}, []gateway.End{end}) // without it, the test hangs
		}
		return ""
	}
	offered := map[string]wire.Offer{}
	for i := 1; i <= 3; i++ {
		epoch := w.ready(instance, anyBeat).Beat >> 32
		for range 10 {
			o := offerOf(int64(1 + len(offered)%3))
			said := w.offer(instance, w.ready(instance, anyBeat).Beat, o)
			if len(said) == 1 && said[0] == wire.Accepted {
				offered[o.RunID] = o
			}
		}
		old := g
		_, g = start(i)
		old.close()
		w.ready(instance, func(h wire.Heartbeat) bool { return h.Beat>>32 > epoch })
	}
	for _, o := range offered {
		w.resultOf(o)
	}
	w.exec.set(func() {
		for id, n := range w.exec.runs {
			if n != 1 {
				t.Errorf("log id %d was sent %d times", id, n)
			}
		}
	})
	var twice int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT FROM gateway_sends WHERE NOT unstarted GROUP BY run_id, attempt HAVING count(*) > 1) x`).Scan(&twice); err != nil {
		t.Fatal(err)
	}
	if twice != 0 {
		t.Errorf("%d attempts have several sends", twice)
	}
}
