// Package api assembles the REST API of Belfry: the router, the checks before every operation, and the contract that
// describes the operations (OpenAPI 3.1). Each resource is a package below this one.
//
// # Every request
//
// A request is authenticated before it is routed, except for the open paths. Each operation names the least role that it
// needs where it is registered. Package visible checks whether the caller may see a resource. A resource that the caller may
// not see gets the same answer as one that does not exist.
//
// # Bodies
//
// Package strict decodes bodies. huma routes requests, reads parameters and generates the contract. Every error answer is a
// problem.Problem. Locations of errors are plain paths: a field of the body ("schedule.expr"), a parameter ("limit"), a header
// ("If-Match"); "body" is the whole body.
//
// # Changes
//
// Each change is written to the audit log after it is committed. A POST with an Idempotency-Key takes effect once (type once). The
// version of a job is its ETag, and a change that names another version is refused with 409.
package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api/alerts"
	"github.com/belfryhq/belfry/console/api/attention"
	"github.com/belfryhq/belfry/console/api/bulk"
	"github.com/belfryhq/belfry/console/api/calendars"
	"github.com/belfryhq/belfry/console/api/deadletters"
	"github.com/belfryhq/belfry/console/api/events"
	"github.com/belfryhq/belfry/console/api/find"
	"github.com/belfryhq/belfry/console/api/fires"
	"github.com/belfryhq/belfry/console/api/groups"
	"github.com/belfryhq/belfry/console/api/history"
	"github.com/belfryhq/belfry/console/api/jobs"
	"github.com/belfryhq/belfry/console/api/login"
	"github.com/belfryhq/belfry/console/api/logs"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/reports"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/runs"
	"github.com/belfryhq/belfry/console/api/schedules"
	"github.com/belfryhq/belfry/console/api/scripts"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/console/api/tokens"
	"github.com/belfryhq/belfry/console/api/transfer"
	"github.com/belfryhq/belfry/console/api/triggers"
	"github.com/belfryhq/belfry/console/api/users"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/console/live"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// Jobs changes and reads jobs, and plans runs. The packages jobs, runs and visible document the methods.
type Jobs interface {
	jobs.Store
	runs.Jobs
}

// Pauses pauses the schedules of groups and of jobs.
type Pauses interface {
	groups.Pauses
	jobs.Pauses
}

// Groups keeps executor groups.
type Groups interface {
	groups.Store
	visible.Groups
}

// Events accepts events, and keeps event triggers.
type Events interface {
	events.Store
	triggers.Store
}

// Letters keeps dead letters.
type Letters interface {
	deadletters.Store
	attention.Letters
}

// Gateways keeps what gateways to executors of XXL-JOB share.
type Gateways interface {
	groups.Gateways
	runs.Sends
}

// Fleet knows the live instances, and reaches them.
type Fleet interface {
	runs.Fleet
	groups.Fleet
}

// Config holds the stores and settings of the API. Fields without a default must be set.
type Config struct {
	Jobs      Jobs
	Calendars calendars.Store
	Pauses    Pauses
	Fleet     Fleet

	Authenticator auth.Accounts
	Users         users.Store
	Sessions      login.Store
	Tokens        tokens.Store
	Groups        Groups
	Gateways      Gateways
	AuditLog      *auditlog.Store
	Idempotency   *idempotency.Store

	Bulk    bulk.Store
	Views   *view.Store
	Fires   fires.Store
	Reports *statstore.Store
	Events  Events
	Letters Letters
	// Attention reads what needs attention.
	Attention attention.Store
	// Outages names the servers and roles that are missing. If it is nil, none are named.
	Outages attention.Outages
	Alerts  alerts.Store
	Changes live.Source

	Ready      []system.Check // the parts that /readyz reports
	Executors  system.Executors
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer // of /metrics
	Log        *slog.Logger
	Zone       *time.Location // of schedules that name none; nil: UTC
	Build      build.Info     // of this process
	// SecureCookies marks session cookies as Secure even if the connection has no TLS. Set it for a console behind a TLS proxy.
	SecureCookies bool
	// OIDC is the identity provider through which users can log in. If it is nil, there is none.
	OIDC *auth.Provider
	// StreamCheck is the time between two checks of the rights of a stream's caller; 0: 3 s.
	StreamCheck time.Duration
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

	attention *attention.API
}

// Prefix is the prefix of the path of every operation.
const Prefix = rest.Prefix

// open lists the only paths that need no credentials: the probes for load balancers, and the log-in.
var open = []string{"/healthz", "/readyz", rest.Prefix + "/auth/login", rest.Prefix + "/auth/methods", login.OIDCLogin, login.OIDCCallback}

// New makes the API. It panics if metrics with the same names are already registered.
func New(c Config) *API {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	m := newMetrics(c.Registerer)
	a := &API{
		Config: c, router: chi.NewMux(), metrics: m,
		audit:   &rest.Audit{Store: c.AuditLog, Failures: m.auditFailures, Log: c.Log},
		visible: &visible.Reader{Groups: c.Groups, Jobs: c.Jobs, Runs: c.Views},
		streams: stream.New(c.Authenticator, c.StreamCheck, m.streams),
	}
	a.router.Use(a.observe, a.recoverPanics, secureHeaders, a.authenticate, bound, headAsGet)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, problem.New(http.StatusNotFound, "there is no resource at this path"))
	})
	a.router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", a.allowed(r.URL.Path))
		problem.Write(w, problem.New(http.StatusMethodNotAllowed, "this path does not support "+r.Method))
	})
	a.attention = &attention.API{Store: a.Attention, Letters: a.Letters, Instances: a.Fleet, Outages: a.Outages, Audit: a.audit, Log: a.Log}
	a.rest = &rest.Router{API: humachi.New(a.router, a.humaConfig()), Once: (&once{c.Idempotency, c.Log}).middleware, Log: c.Log}
	state := a.registerResources()
	a.finishContract()
	a.mountSystem(state)
	return a
}

// resource is a part of the API with its own operations.
type resource interface{ Register(*rest.Router) }

// registerResources gives each resource the store methods that it needs. It returns the one that also answers /readyz.
func (a *API) registerResources() *system.API {
	hub := live.NewHub(a.Changes, a.Views.RunsByID, a.Log)
	logins := &login.API{Store: a.Sessions, Guesses: auth.NewLimiter(), OIDC: a.OIDC, Audit: a.audit, Log: a.Log, SecureCookies: a.SecureCookies}
	logins.Mount(a.router)
	counted := &groups.API{Store: a.Groups, Pauses: a.Pauses, Counts: a.Reports, Fleet: a.Fleet, Gateways: a.Gateways, Visible: a.visible, Audit: a.audit}
	state := &system.API{Store: a.Views, Checks: a.Ready, Build: a.Build, Executors: a.Executors}
	for _, r := range []resource{
		logins,
		&users.API{Store: a.Users, Sessions: a.Sessions, Groups: a.Groups, Audit: a.audit},
		&tokens.API{Store: a.Tokens, Groups: a.Groups, Audit: a.audit},
		&history.API{Store: a.AuditLog},
		counted,
		&jobs.API{Store: a.Jobs, Pauses: a.Pauses, Lists: a.Views, Instances: a.Fleet, Channels: a.Alerts, Visible: a.visible, Audit: a.audit, Zone: a.Zone},
		&find.API{Lists: a.Views, Instances: a.Fleet, Visible: a.visible},
		&scripts.API{Jobs: a.Jobs, Store: a.Views, Visible: a.visible, Audit: a.audit},
		&fires.API{Store: a.Fires},
		&schedules.API{Calendars: a.Calendars, Lists: a.Views, Reports: a.Reports, Visible: a.visible, Zone: a.Zone},
		&calendars.API{Store: a.Calendars, Audit: a.audit},
		&runs.API{Views: a.Views, Jobs: a.Jobs, Fleet: a.Fleet, Instances: a.Fleet, Sends: a.Gateways, Hub: hub, Streams: a.streams, Visible: a.visible, Audit: a.audit},
		&bulk.API{Store: a.Bulk, Views: a.Views, Jobs: a.Jobs, Fleet: a.Fleet, Visible: a.visible, Audit: a.audit},
		&logs.API{Store: a.Views, Streams: a.streams, Log: a.Log},
		&events.API{Store: a.Events},
		&triggers.API{Store: a.Events, Visible: a.visible, Audit: a.audit},
		&alerts.API{Store: a.Alerts, Visible: a.visible, Audit: a.audit},
		&reports.API{Store: a.Reports, Lists: a.Views, Groups: a.Groups, Instances: a.Fleet, Hub: hub, Streams: a.streams,
			Visible: a.visible, Log: a.Log},
		&transfer.API{Jobs: a.Jobs, Lists: a.Views, Groups: a.Groups, Counted: counted, Calendars: a.Calendars, Triggers: a.Events,
			Channels: a.Alerts, Visible: a.visible, Audit: a.audit, Log: a.Log, Zone: a.Zone},
		&deadletters.API{Store: a.Letters, Audit: a.audit},
		a.attention,
		state,
	} {
		r.Register(a.rest)
	}
	return state
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// CloseStreams ends all streams, so that a server can shut down. It must be called at most once.
func (a *API) CloseStreams() { a.streams.Close() }

// Routes returns every route. Tests use it to cover all of them.
func (a *API) Routes() chi.Routes { return a.router }
