package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/wire"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("BELFRY_TEST_CHILD_SPOOL"); dir != "" {
		childMain(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 5 * time.Minute

// world is a NATS server with Belfry's streams, and a client that acts as the dispatcher.
type world struct {
	t    *testing.T
	dir  string
	port int
	srv  *server.Server
	nc   *nats.Conn
	js   jetstream.JetStream

	refuse atomic.Bool // log-ins of executors

	mu      sync.Mutex
	results []wire.Results
	logs    []wire.Logs
	news    chan struct{} // closed and replaced at each message
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), port: -1, news: make(chan struct{})}
	w.startServer()
	var err error
	w.nc, err = nats.Connect(w.srv.ClientURL(), nats.Token("system"), nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	must(t, err)
	t.Cleanup(w.nc.Close)
	w.js, err = jetstream.New(w.nc)
	must(t, err)
	ctx := t.Context()
	for name, subject := range map[string]string{wire.StreamResults: "belfry.v1.result.*", wire.StreamLogs: "belfry.v1.log.*"} {
		_, err = w.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage})
		must(t, err)
	}
	_, err = w.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: wire.BucketInstances, TTL: wire.LeaseTTL, Storage: jetstream.FileStorage})
	must(t, err)
	w.watch("belfry.v1.result.*", func(data []byte) {
		var m wire.Results
		must(t, wire.Decode(data, &m))
		w.results = append(w.results, m)
	})
	w.watch("belfry.v1.log.*", func(data []byte) {
		var m wire.Logs
		must(t, wire.Decode(data, &m))
		w.logs = append(w.logs, m)
	})
	return w
}

func (w *world) startServer() {
	w.t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: w.port, JetStream: true, StoreDir: w.dir, NoSigs: true, NoLog: true, CustomClientAuthentication: tokens{&w.refuse},
	})
	must(w.t, err)
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		w.t.Fatal("the NATS server does not start")
	}
	if w.port == -1 {
		w.port = mustPort(w.t, srv)
	}
	w.srv = srv
	w.t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
}

// tokens grants a dispatcher all permissions, and an executor of group g those of executors.
type tokens struct{ refuse *atomic.Bool }

// Check implements server.Authentication.
func (a tokens) Check(c server.ClientAuthentication) bool {
	switch c.GetOpts().Token {
	case "system":
		c.RegisterUser(&server.User{Username: "system"})
		return true
	case "secret":
		if a.refuse.Load() {
			return false
		}
		c.RegisterUser(&server.User{Username: "g", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"belfry.v1.result.g", "belfry.v1.log.g", "$KV.belfry_instances.g.*"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"belfry.v1.trigger.g.>", "belfry.v1.control.g.>", "_INBOX_g.>"}},
			Response:  &server.ResponsePermission{MaxMsgs: 1, Expires: 30 * time.Second},
		}})
		return true
	}
	return false
}

func (w *world) stopServer() { w.srv.Shutdown(); w.srv.WaitForShutdown() }

func (w *world) watch(subject string, take func([]byte)) {
	_, err := w.nc.Subscribe(subject, func(m *nats.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		take(m.Data)
		w.wakeLocked()
	})
	must(w.t, err)
	must(w.t, w.nc.Flush())
}

// wake makes await look again.
func (w *world) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked()
}

func (w *world) wakeLocked() {
	close(w.news)
	w.news = make(chan struct{})
}

// await waits until look is true; it is called with the mutex held, after every message.
func (w *world) await(what string, look func() bool) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		w.mu.Lock()
		ok, news := look(), w.news
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-deadline:
			w.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func (w *world) result(runID string) (res wire.Result) {
	w.t.Helper()
	w.await("the result of "+runID, func() bool {
		for _, m := range w.results {
			for _, r := range m.Results {
				if r.RunID == runID {
					res = r
					return true
				}
			}
		}
		return false
	})
	return res
}

// instance is a running executor.
type instance struct {
	w    *world
	e    *executor.Executor // nil if it is another process
	name string
	boot string
	stop context.CancelFunc
	done chan error
}

func (w *world) config() executor.Config {
	return executor.Config{
		NATSURL: w.srv.ClientURL(), Token: "secret", Group: "g", Instance: "i1", SpoolDir: w.t.TempDir(), Capacity: 4,
		Logger: quietLogger(), DrainTimeout: 200 * time.Millisecond, SettleTimeout: -1, // most tests settle no results
	}
}

func (w *world) start(c executor.Config, handlers map[string]executor.HandlerFunc) *instance {
	w.t.Helper()
	e, err := executor.New(c)
	must(w.t, err)
	for name, h := range handlers {
		e.HandleFunc(name, h)
	}
	return w.run(e)
}

func (w *world) run(e *executor.Executor) *instance {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{w: w, e: e, stop: cancel, done: make(chan error, 1)}
	go func() { i.done <- e.Run(ctx) }()
	w.t.Cleanup(cancel)
	select {
	case <-e.Ready():
	case err := <-i.done:
		w.t.Fatalf("Run ended early: %v", err)
	case <-time.After(patience):
		w.t.Fatal("the executor does not become ready")
	}
	i.name = e.Instance()
	i.boot = i.control(wire.Control{Op: wire.OpPing}).BootID
	return i
}

// end stops the executor and returns the result of Run.
func (i *instance) end() error {
	i.stop()
	select {
	case err := <-i.done:
		return err
	case <-time.After(patience):
		i.w.t.Fatal("Run does not return")
		return nil
	}
}

func (i *instance) control(m wire.Control) (rep wire.ControlReply) {
	i.w.t.Helper()
	m.V = wire.Version
	msg, err := i.w.nc.Request(wire.ControlSubject("g", i.name), wire.Encode(m), patience)
	must(i.w.t, err)
	must(i.w.t, wire.Decode(msg.Data, &rep))
	return rep
}

func (i *instance) offer(offers ...wire.Offer) wire.Answer {
	i.w.t.Helper()
	return i.offerTo(i.boot, offers...)
}

func (i *instance) offerTo(boot string, offers ...wire.Offer) (ans wire.Answer) {
	i.w.t.Helper()
	msg, err := i.w.nc.Request(wire.TriggerSubject("g", i.name), wire.Encode(wire.Offers{V: wire.Version, BootID: boot, Offers: offers}), patience)
	must(i.w.t, err)
	must(i.w.t, wire.Decode(msg.Data, &ans))
	return ans
}

func (i *instance) status(runID string) wire.Status {
	i.w.t.Helper()
	return i.control(wire.Control{Op: wire.OpStatus, Runs: []wire.Ref{{RunID: runID, Attempt: 1}}}).Statuses[0]
}

// newOffer is an offer of the run's first attempt, due now.
func newOffer(runID, handler string) wire.Offer {
	now := wire.Time{Time: time.Now()}
	return wire.Offer{
		RunID: runID, Attempt: 1, Bind: 1, BoundAt: now, JobID: 7, JobName: "job", Group: "g", Handler: handler,
		Cause: "manual", FireTime: now, DueAt: now, Now: now, Shard: wire.Shard{Total: 1},
	}
}

func wantVerdict(t *testing.T, ans wire.Answer, verdict, reason string) {
	t.Helper()
	if len(ans.Verdicts) != 1 || ans.Verdicts[0].Verdict != verdict || ans.Verdicts[0].Reason != reason {
		t.Fatalf("answered %+v, want %s %s", ans.Verdicts, verdict, reason)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustPort(t *testing.T, srv *server.Server) int {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(srv.Addr().String(), "127.0.0.1:%d", &port); err != nil {
		t.Fatalf("the server's address is %v: %v", srv.Addr(), err)
	}
	return port
}

func quietLogger() *slog.Logger {
	if os.Getenv("BELFRY_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
