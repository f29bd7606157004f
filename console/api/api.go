// Package api is the REST API of Belfry: handlers, what they demand of the caller, and the contract that describes
// them, OpenAPI 3.1.
//
// # Every request
//
// It is authenticated before it is routed; open says what is not. An operation names the least role it needs, in
// the one place where it is registered, and handlers ask the one function may whether a thing's group exists for
// the caller: what one may not see does not exist, and is answered as such.
//
// # Bodies
//
// Bodies are decoded strictly by this package (decodeStrict), not by huma, whose part is parameters, routing and the
// description. All errors, wherever they come from, leave as Problem. Locations of errors are plain paths: a field
// of the body ("schedule.expr"), a parameter ("limit"), a header ("If-Match"); "body" is the body as a whole.
//
// # Changes
//
// Each change is written to the audit log after it is committed. A POST with an Idempotency-Key takes effect once.
// A job's version is its ETag; a change that names another version is refused with 409.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api/alerts"
	"github.com/belfryhq/belfry/console/api/calendars"
	"github.com/belfryhq/belfry/console/api/deadletters"
	"github.com/belfryhq/belfry/console/api/events"
	"github.com/belfryhq/belfry/console/api/fires"
	"github.com/belfryhq/belfry/console/api/history"
	"github.com/belfryhq/belfry/console/api/login"
	"github.com/belfryhq/belfry/console/api/logs"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/scripts"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/api/tokens"
	"github.com/belfryhq/belfry/console/api/triggers"
	"github.com/belfryhq/belfry/console/api/users"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/report"
	"github.com/belfryhq/belfry/internal/store/view"
)

// Engine changes and reads jobs, and plans runs. Errors are domain errors: Invalid names the faulty fields,
// Conflict says that the version is stale or the name is taken.
type Engine interface {
	CreateJob(ctx context.Context, spec domain.JobSpec, by string) (domain.Job, error)
	// EditJob lets edit change the spec under the job's lock. Version 0 is any version.
	EditJob(ctx context.Context, id domain.JobID, version int, by string, edit func(*domain.JobSpec) error) (before, after domain.Job, err error)
	SetEnabled(ctx context.Context, id domain.JobID, enabled bool, version int, by string) (before, after domain.Job, err error)
	DeleteJob(ctx context.Context, id domain.JobID, version int, by string) (domain.Job, error)
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
	Trigger(ctx context.Context, id domain.JobID, t domain.Trigger) ([]domain.RunID, error)
	// RetryRun makes a new run of a final one.
	RetryRun(ctx context.Context, id domain.RunID, by string) (domain.RunID, error)
	// Backfill plans a run for each fire time of a range.
	Backfill(ctx context.Context, id domain.JobID, b domain.Backfill) (domain.Backfilled, error)
	// PauseGroup pauses the schedules of a group's jobs; a pause that lasts gets the new reason and end.
	PauseGroup(ctx context.Context, group, reason string, until *time.Time, by string) (domain.Pause, error)
	// ResumeGroup ends a pause. Conflict: the group is not paused.
	ResumeGroup(ctx context.Context, group, by string) (domain.Pause, error)
	calendars.Store
}

// Dispatcher knows the instances, and reaches them.
type Dispatcher interface {
	// Kill asks for the end of an unfinished run. Conflict: it is final. NotFound: there is none.
	Kill(ctx context.Context, id domain.RunID, by string) error
	Instances(group string) []domain.Instance
	Drain(ctx context.Context, group, instance string) error
}

// Accounts keeps users, tokens, groups, the audit log and idempotency keys.
type Accounts interface {
	auth.Accounts
	LogIn(ctx context.Context, name, password string, from account.Origin) (account.Ticket, error)
	LogInOIDC(ctx context.Context, c account.Claimed, lifetime time.Duration, from account.Origin) (account.OIDCLogIn, error)
	LogOut(ctx context.Context, token string) error
	LogOutEverywhere(ctx context.Context, userID int64) (int64, error)
	ChangePassword(ctx context.Context, p account.Principal, current, next string, from account.Origin) (account.Ticket, error)
	Sessions(ctx context.Context, userID, after int64, limit int) ([]account.Session, error)
	EndSession(ctx context.Context, userID, id int64) error
	Users(ctx context.Context, after int64, limit int) ([]account.User, error)
	CreateUser(ctx context.Context, n account.NewUser) (account.User, error)
	User(ctx context.Context, name string) (account.User, error)
	EditUser(ctx context.Context, name, password string, edit func(*account.User)) (before, after account.User, err error)
	DeleteUser(ctx context.Context, name string) (account.User, error)
	CreateToken(ctx context.Context, owner account.Principal, name string, role account.Role, groups []string, scope account.Scope, expiresAt *time.Time) (account.Token, string, error)
	Tokens(ctx context.Context, userID, after int64, limit int) ([]account.Token, error)
	DeleteToken(ctx context.Context, userID, id int64) (account.Token, error)
	CreateGroup(ctx context.Context, name, description string) (domain.Group, string, error)
	Group(ctx context.Context, name string) (domain.Group, error)
	Groups(ctx context.Context, only []string, after string, limit int) ([]domain.Group, error)
	DescribeGroup(ctx context.Context, name, description string) error
	DeleteGroup(ctx context.Context, name string) error
	RotateGroupToken(ctx context.Context, name string) (string, error)
	Record(ctx context.Context, actor, remote, action, object string, before, after any) error
	Audit(ctx context.Context, f account.AuditFilter, limit int) ([]account.Change, error)
	Begin(ctx context.Context, k account.Key) (*account.Answer, error)
	Finish(ctx context.Context, k account.Key, a account.Answer) error
	Forget(ctx context.Context, k account.Key) error
}

// Events accepts events, and keeps event triggers.
type Events interface {
	events.Store
	triggers.Store
}

// Config is what the API is made of. Engine to Changes, Registerer, Gatherer and Log must be set.
type Config struct {
	Engine     Engine
	Dispatcher Dispatcher
	Accounts   Accounts
	Views      *view.Store
	Fires      fires.Store
	Reports    *report.Store
	Events     Events
	Letters    deadletters.Store
	Alerts     alerts.Store
	Changes    live.Source
	Ready      []Check // what must answer for /readyz to be well
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer // of /metrics
	Log        *slog.Logger
	Zone       *time.Location // of schedules that name none; nil: UTC
	Version    string         // of Belfry, in the contract
	// SecureCookies marks session cookies as Secure also where this process does not speak TLS itself: behind a
	// proxy that does.
	SecureCookies bool
	// OIDC is an identity provider through which users may log in, too; nil: none.
	OIDC *auth.Provider
	// StreamCheck is how often a stream looks whether its caller still has the rights that it began with; 0: 10 s.
	StreamCheck time.Duration
}

// Check asks whether a part that Belfry needs is there. Name is postgres or nats.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
}

// API is the REST API, an http.Handler.
type API struct {
	Config
	router  *chi.Mux
	rest    *rest.Router
	audit   *rest.Audit
	visible *visible.Reader
	streams *stream.Streams
	metrics *metrics
	hub     *live.Hub
	gauges  *gauges
}

// Prefix begins the path of every operation.
const Prefix = rest.Prefix

// open lists the only paths that need no credentials: health for load balancers, and the way in.
var open = []string{"/healthz", "/readyz", rest.Prefix + "/auth/login", rest.Prefix + "/auth/methods", login.OIDCLogin, login.OIDCCallback}

// New makes the API. It panics if metrics of its names are registered already.
func New(c Config) *API {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	m := newMetrics(c.Registerer)
	a := &API{
		Config: c, router: chi.NewMux(), metrics: m,
		audit:   &rest.Audit{Store: c.Accounts, Failures: m.auditFailures, Log: c.Log},
		visible: &visible.Reader{Groups: c.Accounts, Jobs: c.Engine, Runs: c.Views},
		streams: stream.New(c.Accounts, c.StreamCheck, m.streams),
		hub:     live.NewHub(c.Changes, c.Views.RunsByID, c.Log), gauges: newGauges(),
	}
	a.router.Use(a.observe, a.recoverPanics, secureHeaders, a.authenticate, bound, headAsGet, a.onceOnly)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.New(http.StatusNotFound, "there is nothing at this path"))
	})
	a.router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", a.allowed(r.URL.Path))
		problem.Write(w, problem.New(http.StatusMethodNotAllowed, "this path does not know "+r.Method))
	})
	a.rest = &rest.Router{API: humachi.New(a.router, a.humaConfig()), Log: c.Log}
	a.registerGroups()
	a.registerPauses()
	a.registerBackfill()
	a.registerJobs()
	a.registerSchedules()
	a.registerUpcoming()
	a.registerSystemInfo()
	a.registerCalendarJobs()
	a.registerCalendar()
	a.registerRuns()
	a.registerLive()
	a.registerFamily()
	a.registerBulk()
	a.registerReports()
	a.registerExport()
	a.registerResources()
	a.finishContract()
	a.mountSystem()
	return a
}

// resource is a part of the API with its own operations.
type resource interface{ Register(*rest.Router) }

// registerResources gives each resource the store methods that it needs.
func (a *API) registerResources() {
	logins := &login.API{Store: a.Accounts, Guesses: auth.NewLimiter(), OIDC: a.OIDC, Audit: a.audit, Log: a.Log, SecureCookies: a.SecureCookies}
	logins.Mount(a.router)
	for _, r := range []resource{
		logins,
		&users.API{Store: a.Accounts, Audit: a.audit},
		&tokens.API{Store: a.Accounts, Groups: a.Accounts, Audit: a.audit},
		&history.API{Store: a.Accounts},
		&scripts.API{Jobs: a.Engine, Store: a.Views, Visible: a.visible, Audit: a.audit},
		&fires.API{Store: a.Fires},
		&calendars.API{Store: a.Engine, Audit: a.audit},
		&logs.API{Store: a.Views, Streams: a.streams, Log: a.Log},
		&events.API{Store: a.Events},
		&triggers.API{Store: a.Events, Visible: a.visible, Audit: a.audit},
		&alerts.API{Store: a.Alerts, Visible: a.visible, Audit: a.audit},
		&deadletters.API{Store: a.Letters, Audit: a.audit},
	} {
		r.Register(a.rest)
	}
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// CloseStreams ends all streams, so that a server can shut down. It must be called at most once.
func (a *API) CloseStreams() { a.streams.Close() }

// Routes returns every route, for tests that must not miss one.
func (a *API) Routes() chi.Routes { return a.router }
