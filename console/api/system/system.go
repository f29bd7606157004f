// Package system is the REST API of the state of the engine, and the readiness probe.
package system

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves the state of the engine.
type API struct {
	Store     Store
	Checks    []Check    // the parts that /readyz reports
	Build     build.Info // of this process
	Executors Executors
}

// Executors says how executors reach NATS.
type Executors struct {
	URL string `json:"url" example:"tls://nats.example.com:4222" doc:"The NATS servers as executors reach them, separated by commas: the setting executor-url, otherwise the servers that the console uses. Without user and password. Empty if it is not known. A loopback address is that of the console's host"`
	TLS bool   `json:"tls" doc:"Whether the URL requires TLS"`
}

// ExecutorsAt returns how executors reach the NATS servers at url, which has no user and no password.
func ExecutorsAt(url string) Executors {
	if !strings.Contains(url, "://") {
		return Executors{} // none, or a redacted one
	}
	return Executors{URL: url, TLS: strings.HasPrefix(url, "tls://") || strings.HasPrefix(url, "wss://")}
}

// Store reads the state of the engine.
type Store interface {
	System(ctx context.Context) (view.System, error)
}

// Check probes a part that Belfry needs. The name is postgres, nats or jetstream. /readyz answers 503 while a part is unavailable that
// is not optional.
type Check struct {
	Name     string
	Optional bool
	Probe    func(ctx context.Context) error
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	rest.Register(r, rest.Operation{Method: "GET", Path: "/system", Tag: "System", Summary: "Show the state of the engine", Needs: account.Admin,
		Description: "The connected processes, late runs, and the progress of the periodic work. If Postgres is unavailable, the answer is 503, as for every operation. /readyz names the unavailable part."}, a.show)
}

type systemCheck struct {
	Name   string `json:"name" example:"postgres"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty" doc:"The error of the check"`
}

type systemProcess struct {
	Role        string         `json:"role" doc:"scheduler, dispatcher, console or standalone"`
	Name        string         `json:"name" doc:"Host and process; a long host name is cut at the front"`
	Version     string         `json:"version"`
	Address     string         `json:"address" doc:"The address that Postgres sees; empty for a local socket"`
	Connections int            `json:"connections" doc:"The number of connections to Postgres"`
	Since       domain.Instant `json:"since" doc:"When the oldest of its connections was made"`
}

type systemInfo struct {
	Version         string          `json:"version" doc:"The version of the console that answers"`
	Commit          string          `json:"commit" doc:"The commit of its sources; empty if it is not known"`
	CommitDate      string          `json:"commit_date" doc:"The date of that commit, RFC 3339; empty if it is not known"`
	GoVersion       string          `json:"go_version"`
	Schema          int64           `json:"schema" doc:"The number of the newest migration that it contains"`
	Wire            int             `json:"wire" doc:"The version of the wire protocol that it uses"`
	Now             domain.Instant  `json:"now" doc:"The time of the database's clock"`
	Checks          []systemCheck   `json:"checks" nullable:"false" doc:"The checks of /readyz"`
	Processes       []systemProcess `json:"processes" nullable:"false" doc:"The processes that are connected to Postgres. Executors do not connect to Postgres"`
	SchedulerSeenAt *domain.Instant `json:"scheduler_seen_at" doc:"When a scheduler was last active. Each scheduler records this every two seconds"`
	Unfired         int64           `json:"unfired" doc:"Runs that are over two seconds past due and not fired yet; at most 10,000 are counted"`
	UnfiredDueAt    *domain.Instant `json:"unfired_due_at" doc:"The due instant of the oldest run that unfired counts"`
	Waiting         int64           `json:"waiting" doc:"Due runs that wait for an instance; at most 10,000 are counted"`
	WaitingDueAt    *domain.Instant `json:"waiting_due_at" doc:"The due instant of the oldest run that waiting counts"`
	AuditedThrough  domain.Instant  `json:"audited_through" doc:"The fire check has covered all fire times that were due by this instant"`
	CountedThrough  domain.Instant  `json:"counted_through" doc:"The run statistics include all runs that were settled by this instant"`
	Executors       Executors       `json:"executors"`
	PostgresVersion string          `json:"postgres_version"`
	DatabaseBytes   int64           `json:"database_bytes"`
}

func (a *API) show(ctx context.Context, _ auth.Identity, _ *struct{}) (*rest.Output[systemInfo], error) {
	s, err := a.Store.System(ctx)
	if err != nil {
		return nil, err
	}
	out := systemInfo{
		Version: a.Build.Version, Commit: a.Build.Commit, CommitDate: a.Build.Date, GoVersion: a.Build.Go, Schema: a.Build.Schema, Wire: a.Build.Wire, Now: domain.At(s.Now), Checks: a.checks(ctx), Processes: []systemProcess{},
		SchedulerSeenAt: instantOrNull(s.SchedulerSeen), Unfired: s.Unfired, UnfiredDueAt: instantOrNull(s.UnfiredDue),
		Waiting: s.Waiting, WaitingDueAt: instantOrNull(s.WaitDue), AuditedThrough: domain.At(s.Audited), CountedThrough: domain.At(s.Counted),
		Executors: a.Executors, PostgresVersion: s.Postgres, DatabaseBytes: s.Bytes,
	}
	for _, p := range s.Processes {
		out.Processes = append(out.Processes, systemProcessOf(p))
	}
	return rest.Answer(out), nil
}

func systemProcessOf(p view.Process) systemProcess {
	return systemProcess{Role: p.Role, Name: p.Name, Version: p.Version, Address: p.Address, Connections: p.Connections, Since: domain.At(p.Since)}
}

func instantOrNull(t time.Time) *domain.Instant {
	if t.IsZero() {
		return nil
	}
	at := domain.At(t)
	return &at
}

// checks returns the result of each check.
func (a *API) checks(ctx context.Context) []systemCheck {
	out := []systemCheck{}
	for i, err := range a.probe(ctx) {
		c := systemCheck{Name: a.Checks[i].Name, OK: err == nil}
		if err != nil {
			c.Detail = problem.Clip(err.Error())
		}
		out = append(out, c)
	}
	return out
}

// Alive answers /healthz of every role. It needs no log-in, so it says no more about the build than version and commit.
func Alive(b build.Info) http.Handler {
	body, err := json.Marshal(struct {
		Status  string `json:"status"`
		Version string `json:"version"`
		Commit  string `json:"commit"`
	}{"ok", b.Version, b.Commit})
	if err != nil {
		panic("system: " + err.Error()) // text and numbers can be encoded
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // the client is gone
	})
}

const probeTimeout = 2 * time.Second

// readiness is the answer of /readyz. It needs no log-in, so it does not show errors.
type readiness struct {
	Status string          `json:"status"` // ready
	Checks map[string]bool `json:"checks"` // the parts and whether they are available
}

// Ready answers 503 while a part is unavailable that the console needs. Each answer names all unavailable parts.
func (a *API) Ready(w http.ResponseWriter, r *http.Request) {
	var unavailable []string
	ready := readiness{"ready", make(map[string]bool)}
	for i, err := range a.probe(r.Context()) {
		c := a.Checks[i]
		ready.Checks[c.Name] = err == nil
		if err != nil {
			unavailable = append(unavailable, c.Name)
			if !c.Optional {
				ready.Status = ""
			}
		}
	}
	if ready.Status == "" {
		problem.Write(w, problem.New(http.StatusServiceUnavailable, "unavailable: "+strings.Join(unavailable, ", ")).RetryAfter(time.Second))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(ready) // the client is gone
}

// probe runs all checks at once. The error of an available part is nil.
func (a *API) probe(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	errs := make([]error, len(a.Checks))
	done := make(chan struct{}, len(a.Checks))
	for i, c := range a.Checks {
		go func() {
			errs[i] = c.Probe(ctx)
			done <- struct{}{}
		}()
	}
	for range a.Checks {
		<-done
	}
	return errs
}
