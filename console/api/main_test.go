package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/alerts"
	"github.com/belfryhq/belfry/internal/store/attention"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/bulk"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
	"github.com/belfryhq/belfry/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const adminPassword = "a-good-password"

// world is an API on a real database, with an admin logged in and the group default.
type world struct {
	t        *testing.T
	api      *api.API
	store    *store.Store
	pool     *pgxpool.Pool
	accounts account.Stores
	groups   *group.Store
	fleet    *fleet
	ready    map[string]error // the results of the readiness checks, by name
	admin    string           // the admin's session token
	alerts   *channels
	log      *syncBuffer
	letters  *letters
	changes  *changes
	metrics  prometheus.Registerer
	bulk     *bulk.Store
	outages  *missing
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w := &world{t: t, store: s, pool: s.Pool(), accounts: account.New(s.Pool()), groups: group.New(s.Pool()), fleet: &fleet{store: s},
		ready: map[string]error{}, log: &syncBuffer{}, letters: &letters{}, changes: &changes{}, outages: &missing{}}
	w.accounts.Weaken()
	// The database is a copy of one that the first test made, so its statistics can be over ten minutes behind.
	w.exec(`UPDATE run_stats_mark SET through = now(), missed_through = now(), health_through = now()`)
	w.alerts = &channels{alerts.New(s.Pool(), alerts.Config{Key: "a key of the tests, which is long"}), alert.NewSender(alert.Config{})}
	metrics := prometheus.NewRegistry()
	w.metrics = metrics
	probe := func(name string, optional bool) system.Check {
		return system.Check{Name: name, Optional: optional, Probe: func(context.Context) error { return w.ready[name] }}
	}
	queue, err := followup.NewQueue(s.Pool(), migrations.RiverSchema, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.bulk = bulk.New(s.Pool(), queue)
	events, err := storeevent.New(s)
	if err != nil {
		t.Fatal(err)
	}
	w.api = api.New(api.Config{
		Jobs: s, Calendars: s, Pauses: s, Fleet: w.fleet, Views: view.New(s.Pool()), Bulk: w.bulk,
		Authenticator: w.accounts, Users: w.accounts.Users, Sessions: w.accounts.Sessions, Tokens: w.accounts.Tokens,
		Groups: w.groups, Gateways: gateway.New(s.Pool(), strings.Repeat("k", 32)), AuditLog: auditlog.New(s.Pool()), Idempotency: idempotency.New(s.Pool(), ""),
		Fires:   view.NewFireCheck(s.Pool(), s.Zone(), s.Settings().Tolerance),
		Reports: statstore.New(s.Pool()),
		Events:  events,
		Letters: w.letters, Attention: attention.New(s.Pool()), Outages: w.outages,
		Alerts:  w.alerts,
		Changes: w.changes, StreamCheck: 50 * time.Millisecond,
		Ready: []system.Check{probe("postgres", false), probe("nats", false), probe("jetstream", true)}, Executors: system.ExecutorsAt("tls://nats.example.com:4222"),
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if _, _, err := w.accounts.Users.EnsureAdmin(t.Context(), adminPassword); err != nil {
		t.Fatal(err)
	}
	if _, err := w.groups.EnsureGroup(t.Context(), "default", ""); err != nil {
		t.Fatal(err)
	}
	w.admin = w.logIn("admin", adminPassword)
	return w
}

// channels tests alert channels as the console does.
type channels struct {
	*alerts.Store
	sender *alert.Sender
}

func (c *channels) Test(ctx context.Context, ch alert.Channel) (string, error) {
	return c.sender.Send(ctx, &ch, alert.Test("test", time.Now(), ""))
}

// changes replaces NATS as the source of changes.
type changes struct {
	mu      sync.Mutex
	changed func([]engine.Change)
	missed  func()
}

func (c *changes) Hear(changed func([]engine.Change), missed func()) (stop func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed, c.missed = changed, missed
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed, c.missed = nil, nil
	}, nil
}

// report reports a changed run, as dispatchers do.
func (c *changes) report(id domain.RunID, group string, state domain.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		c.changed([]engine.Change{{RunID: id, JobID: 1, Group: group, State: state, Cause: domain.CauseManual, Attempt: 1}})
	}
}

// fleet replaces the dispatcher.
type fleet struct {
	store *store.Store
	mu    sync.Mutex
	ended []domain.RunID
	live  []string // instances of the group default; nil: one
	kills func()   // called at each kill

	others []domain.Instance // of other groups
}

func (f *fleet) Kill(ctx context.Context, id domain.RunID, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f.ended = append(f.ended, id)
	if f.kills != nil {
		f.kills()
	}
	return nil
}

func (f *fleet) Instances(group string) []domain.Instance {
	var live []domain.Instance
	for _, i := range f.others {
		if group == "" || group == i.Group {
			live = append(live, i)
		}
	}
	if group != "default" {
		return live
	}
	for _, id := range f.live {
		live = append(live, domain.Instance{ID: id, Group: group, Capacity: 4, Handlers: []string{"echo"}, Draining: id == "drains"})
	}
	if f.live == nil {
		live = []domain.Instance{{ID: "one", Group: group, Capacity: 4, Handlers: []string{"echo"}}}
	}
	return live
}

func (f *fleet) Drain(_ context.Context, _, instance string) error {
	if instance != "one" {
		return domain.NewError(domain.NotFound, "there is no such instance")
	}
	return nil
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// field returns a value of the JSON body by a path such as items.0.name, nil if there is none.
func (a answer) field(path string) any {
	var v any
	if json.Unmarshal([]byte(a.body), &v) != nil {
		return nil
	}
	for _, step := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[step]
		case []any:
			i := int(step[0] - '0')
			if i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// locations returns the locations that a problem names.
func (a answer) locations() []string {
	var p problem.Problem
	json.Unmarshal([]byte(a.body), &p)
	out := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		out[i] = e.Location
	}
	return out
}

// do sends a request with the bearer token, "" for none. Headers come in pairs.
func (w *world) do(token, method, path, body string, headers ...string) answer {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	return answer{rec.Code, rec.Result().Header, rec.Body.String()}
}

// must sends a request as the admin, and fails the test if the status differs.
func (w *world) must(status int, method, path, body string, headers ...string) answer {
	w.t.Helper()
	a := w.do(w.admin, method, path, body, headers...)
	if a.status != status {
		w.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	return a
}

func (w *world) logIn(name, password string) string {
	w.t.Helper()
	a := w.do("", "POST", "/api/v1/auth/login", `{"username":"`+name+`","password":"`+password+`"}`)
	token, _ := a.field("token").(string)
	if a.status != http.StatusOK || token == "" {
		w.t.Fatalf("cannot log in as %s: %d %s", name, a.status, a.body)
	}
	return token
}

const simpleJob = `{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *"}}`

// job creates a job from a JSON object and returns its path.
func (w *world) job(spec string) string {
	w.t.Helper()
	a := w.must(201, "POST", "/api/v1/jobs", spec)
	id, _ := json.Marshal(a.field("id"))
	return "/api/v1/jobs/" + string(id)
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// patience bounds each wait. It is long, because a busy machine is slow, and is no assertion about speed.
const patience = 5 * time.Minute

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if ok() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("timed out waiting for %s", what)
}
