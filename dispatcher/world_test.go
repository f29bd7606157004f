package dispatcher

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

func TestMain(m *testing.M) {
	// These tests mostly wait for seconds to pass and use little CPU.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}

// world is a dispatcher with its own Postgres database and NATS server, and a minimal scheduler that only fires due runs.
type world struct {
	*Firing
	role   *Role
	reg    *prometheus.Registry
	t      *testing.T
	pg     *store.Store
	dir    string
	server *server.Server
	nc     *nats.Conn // the dispatcher's connection
	admin  *nats.Conn // the test's connection
	js     jetstream.JetStream
	ups    *followUps
	stop   func() // stops the dispatcher and waits for its end
}

// followUps records follow-ups instead of inserting River jobs. The reconciler plans the retries.
type followUps struct {
	mu  sync.Mutex
	all []engine.FollowUp
}

func (f *followUps) InsertTx(_ context.Context, _ pgx.Tx, ups []engine.FollowUp) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, ups...)
	return nil
}

// children returns the requested child jobs.
func (f *followUps) children() []domain.JobID {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []domain.JobID
	for _, u := range f.all {
		if !u.Retry {
			out = append(out, u.ChildJob)
		}
	}
	return out
}

// option changes the world that newWorld creates.
type option struct {
	wrap  func(*stores) // replaces stores, for example by ones that fail
	quiet bool          // only watch: fire and offer, but do not settle, assign or reconcile
	still bool          // do not fire due runs
	alone bool          // not in parallel with other tests
	after time.Duration // how long NATS must have been available for verdicts and deadlines
	room  intake.Bounds // bounds of the results that the dispatcher holds
	link  *link         // the dispatcher's link to NATS, if the test manipulates it
}

// stores are all methods that the dispatcher needs from Postgres.
type stores struct {
	Stores
	RoleStores
	pg *store.Store // which implements them
}

func storesOf(pg *store.Store) stores {
	return stores{
		Stores:     Stores{Announce: pg, Settle: pg, Offer: pg, Kill: pg, Fire: pg},
		RoleStores: RoleStores{Assign: pg, Verdict: pg, Reconcile: pg, Upkeep: pg, Glance: pg},
		pg:         pg,
	}
}

func newWorld(t *testing.T, o option) *world {
	t.Helper()
	if !o.alone {
		t.Parallel()
	}
	w := &world{t: t, dir: t.TempDir(), ups: &followUps{}}
	var err error
	w.pg, err = store.Open(context.Background(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pg.Close)
	w.pg.UseFollowUps(w.ups)
	w.exec(`INSERT INTO groups (name, token_sha256) VALUES ('g', 'g'), ('h', 'h')`)
	w.serve(freeport.Take(t))
	t.Cleanup(func() { w.stopServer() })
	of := []nats.Option{nats.ReconnectBufSize(-1)}
	if o.link != nil {
		of = append(of, nats.SetCustomDialer(o.link))
	}
	w.nc = w.connect(of...)
	w.admin = w.connect()
	if w.js, err = jetstream.New(w.admin); err != nil {
		t.Fatal(err)
	}
	w.ensure()
	s := storesOf(w.pg)
	if o.wrap != nil {
		o.wrap(&s)
	}
	if o.after == 0 {
		o.after = 300 * time.Millisecond
	}
	w.create(s, o)
	w.begin(o)
	return w
}

// create creates the dispatcher.
func (w *world) create(s stores, o option) {
	w.t.Helper()
	w.reg = prometheus.NewRegistry()
	var err error
	w.Firing, err = NewFiring(Config{Stores: s.Stores, Conn: w.nc, Log: slog.New(slog.DiscardHandler), Registry: w.reg, HeardFor: o.after, Bounds: o.room})
	if err != nil {
		w.t.Fatal(err)
	}
	w.role = NewRole(w.Firing, s.RoleStores)
}

// restart stops the dispatcher and starts another one on the same connection.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.create(storesOf(w.pg), option{})
	w.begin(option{})
}

// begin runs the dispatcher, and fires due runs for it, until the test ends.
func (w *world) begin(o option) {
	watching, stopWatching := context.WithCancel(context.Background())
	working, stopWorking := context.WithCancel(context.Background())
	var watch, work sync.WaitGroup
	watch.Go(func() {
		if err := w.Watch(watching); err != nil {
			w.t.Error(err)
		}
	})
	if !o.quiet {
		work.Go(func() {
			if err := w.role.Run(working); err != nil {
				w.t.Error(err)
			}
		})
	}
	if !o.still {
		work.Go(func() { w.ring(working) })
	}
	w.stop = sync.OnceFunc(func() {
		stopWorking()
		work.Wait()
		stopWatching()
		watch.Wait()
	})
	w.t.Cleanup(w.stop)
}

// ring fires the due runs, as a scheduler does.
func (w *world) ring(ctx context.Context) {
	var later []engine.Due
	for lifecycle.Pause(ctx, 10*time.Millisecond) {
		runs, _, err := w.pg.ClaimNear(ctx, 1000)
		if err != nil {
			continue
		}
		now := w.pg.Now()
		later = append(later, runs...)
		due := slices.DeleteFunc(slices.Clone(later), func(d engine.Due) bool { return d.DueAt.After(now) })
		later = slices.DeleteFunc(later, func(d engine.Due) bool { return !d.DueAt.After(now) })
		if len(due) == 0 {
			continue
		}
		back, err := w.Fire(context.WithoutCancel(ctx), due)
		if err != nil {
			back = due
		}
		later = append(later, back...)
	}
}

// serve starts a NATS server without authentication on a fixed port, so that it can be restarted under its clients.
func (w *world) serve(port int) {
	w.t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: w.dir, NoSigs: true, NoLog: true, JetStreamMaxStore: natsinfra.StorageBytes,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(patience) {
		w.t.Fatal("NATS does not start")
	}
	w.server = s
}

func (w *world) stopServer() {
	w.server.Shutdown()
	w.server.WaitForShutdown()
}

func (w *world) port() int { return w.server.Addr().(*net.TCPAddr).Port }

func (w *world) connect(more ...nats.Option) *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.server.ClientURL(), append([]nats.Option{
		nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}, more...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

func (w *world) ensure() {
	w.t.Helper()
	w.eventually("the streams are there", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return natsinfra.Ensure(ctx, w.js, 1) == nil
	})
}

// patience bounds each wait. The machine may be busy with other tests.
const patience = 5 * time.Minute

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(10 * time.Millisecond); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// holds checks that a condition stays true for a while.
func (w *world) holds(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	end := time.After(d)
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		if !ok() {
			w.t.Fatalf("does not hold: %s", what)
		}
		select {
		case <-end:
			return
		case <-tick.C:
		}
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pg.Pool().Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) count(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.pg.Pool().QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// job stores a job of group g with handler echo.
func (w *world) job(name string, edit ...func(*domain.JobSpec)) domain.JobID {
	w.t.Helper()
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler, sp.Block = "g", name, "echo", domain.BlockParallel
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	sp.RetryBackoff.Initial = domain.Duration(10 * time.Millisecond)
	for _, e := range edit {
		e(&sp)
	}
	job, err := w.pg.CreateJob(context.Background(), sp, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	return job.ID
}

func (w *world) trigger(job domain.JobID) domain.RunID {
	w.t.Helper()
	ids, err := w.pg.Trigger(context.Background(), job, domain.Trigger{Cause: domain.CauseManual})
	if err != nil {
		w.t.Fatal(err)
	}
	return ids[0]
}

// offered triggers n runs of a new job and returns them with the offers that the instance got.
func (w *world) offered(p *puppet, n int) (ids []domain.RunID, offers []wire.Offer) {
	w.t.Helper()
	job := w.job("j")
	for range n {
		ids = append(ids, w.trigger(job))
	}
	for _, id := range ids {
		offers = append(offers, p.got(id, 1))
	}
	return ids, offers
}

// row is the record of a run in Postgres, live or final.
type row struct {
	State, Reason, Instance, Boot, Waiting, Message, Output string
	Attempt, Bind                                           int
	Notes                                                   explain.Notes // of the message
}

// codes returns the codes of the parts of the message, none if the message is the handler's.
func (r *row) codes() (codes []explain.Code) {
	for _, p := range r.Notes.Parts(r.Message) {
		codes = append(codes, p.Code)
	}
	return codes
}

func (w *world) run(id domain.RunID) row {
	w.t.Helper()
	rows, err := w.pg.Pool().Query(context.Background(), `
		SELECT state, reason, COALESCE(instance, ''), COALESCE(boot_id, ''), COALESCE(waiting, ''), message, '', attempt, bind, COALESCE(message_notes, '') FROM runs_live WHERE id = $1
		UNION ALL
		SELECT state, reason, COALESCE(instance, ''), COALESCE(boot_id, ''), '', message, output, attempt, 0, COALESCE(message_notes, '') FROM runs_history WHERE id = $1`, id)
	if err != nil {
		w.t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		w.t.Fatal(err)
	}
	if len(got) != 1 {
		w.t.Fatalf("run %s is there %d times: %+v", id, len(got), got)
	}
	return got[0]
}

// becomes waits until a run has a state. The form "failed/lost" includes the reason. If only the engine can give the reason, the
// message must have a code.
func (w *world) becomes(id domain.RunID, want string) row {
	w.t.Helper()
	var last row
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		last = w.run(id)
		if got := last.State; got == want || got+"/"+last.Reason == want {
			switch domain.Reason(last.Reason) { //nolint:exhaustive // executors report the others
			case domain.ReasonLost, domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonKilled, domain.ReasonDiscarded,
				domain.ReasonCovered, domain.ReasonJobDeleted:
				if len(last.codes()) == 0 {
					w.t.Errorf("the message has no code: %+v", last)
				}
			}
			return last
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("run %s is not %s, but %+v", id, want, last)
		}
	}
}

// letters returns the reasons of the messages that were set aside.
func (w *world) letters(kind string) []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := w.js.Stream(ctx, wire.StreamDead)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.HasPrefix(m.Subject, wire.DeadSubject(kind, "")+".") {
			out = append(out, string(m.Data))
		}
	}
	return out
}

// unsettled returns the number of unacknowledged result messages.
func (w *world) unsettled() int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := w.js.Stream(ctx, wire.StreamResults)
	if err != nil {
		w.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

func (w *world) publish(subject string, data []byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := w.js.Publish(ctx, subject, data); err != nil {
		w.t.Fatal(err)
	}
}
