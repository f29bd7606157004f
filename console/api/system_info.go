package api

import (
	"context"
	"runtime"
	"time"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

type systemCheck struct {
	Name   string `json:"name" example:"postgres"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty" doc:"What is wrong"`
}

type systemProcess struct {
	Role        string         `json:"role" doc:"scheduler, dispatcher, console or standalone"`
	Name        string         `json:"name" doc:"Host and process; of a long host name the end"`
	Version     string         `json:"version"`
	Address     string         `json:"address" doc:"As Postgres sees it; empty over a socket"`
	Connections int            `json:"connections" doc:"To Postgres"`
	Since       domain.Instant `json:"since" doc:"When its oldest connection was made"`
}

type systemInfo struct {
	Version         string          `json:"version" doc:"Of the console that answers"`
	GoVersion       string          `json:"go_version"`
	Now             domain.Instant  `json:"now" doc:"By the database's clock"`
	Checks          []systemCheck   `json:"checks" nullable:"false" doc:"What /readyz asks"`
	Processes       []systemProcess `json:"processes" nullable:"false" doc:"Those that are connected to Postgres; executors are not"`
	SchedulerSeenAt *domain.Instant `json:"scheduler_seen_at" doc:"The last sign of life of any scheduler, which give one every two seconds"`
	Unfired         int64           `json:"unfired" doc:"Runs over two seconds past due that nobody has fired; 10,000 at most"`
	UnfiredDueAt    *domain.Instant `json:"unfired_due_at" doc:"The due instant of the oldest of them"`
	Waiting         int64           `json:"waiting" doc:"Runs that no instance could take yet; 10,000 at most"`
	WaitingDueAt    *domain.Instant `json:"waiting_due_at" doc:"The due instant of the oldest of them"`
	AuditedThrough  domain.Instant  `json:"audited_through" doc:"All that was due by then has been audited"`
	CountedThrough  domain.Instant  `json:"counted_through" doc:"All that was settled by then is in the reports"`
	PostgresVersion string          `json:"postgres_version"`
	DatabaseBytes   int64           `json:"database_bytes"`
}

func (a *API) registerSystemInfo() {
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/system", Tag: "System", Summary: "See how the engine stands", Needs: account.Admin,
		Description: "Which processes are there, what is late, how far the periodic work has come. While Postgres is away this answers 503, as all does; /readyz says which part it is."}, a.systemInfo)
}

func (a *API) systemInfo(ctx context.Context, _ auth.Identity, _ *struct{}) (*rest.Output[systemInfo], error) {
	s, err := a.Views.System(ctx)
	if err != nil {
		return nil, err
	}
	out := systemInfo{
		Version: a.Version, GoVersion: runtime.Version(), Now: domain.At(s.Now), Checks: a.checks(ctx), Processes: []systemProcess{},
		SchedulerSeenAt: instantOrNull(s.SchedulerSeen), Unfired: s.Unfired, UnfiredDueAt: instantOrNull(s.UnfiredDue),
		Waiting: s.Waiting, WaitingDueAt: instantOrNull(s.WaitDue), AuditedThrough: domain.At(s.Audited), CountedThrough: domain.At(s.Counted),
		PostgresVersion: s.Postgres, DatabaseBytes: s.Bytes,
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

// checks asks each part that Belfry needs.
func (a *API) checks(ctx context.Context) []systemCheck {
	out := []systemCheck{}
	for i, err := range a.probe(ctx) {
		c := systemCheck{Name: a.Ready[i].Name, OK: err == nil}
		if err != nil {
			c.Detail = problem.Clip(err.Error())
		}
		out = append(out, c)
	}
	return out
}
