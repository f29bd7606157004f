package api_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/api/calendars"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	"github.com/belfryhq/belfry/internal/store/view"
)

func TestHealth(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := w.do("", "GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	w.ready["nats"] = errors.New("nats://secret@host: connection refused")
	a := w.do("", "GET", "/readyz", "")
	if a.status != 503 || a.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(a.body, "unavailable: nats\"") {
		t.Errorf("without NATS: %d %s", a.status, a.body)
	}
	w.ready["postgres"] = errors.New("away")
	if a := w.do("", "GET", "/readyz", ""); !strings.Contains(a.body, "postgres, nats") {
		t.Errorf("without both: %s", a.body)
	}
	clear(w.ready)
	w.ready["jetstream"] = errors.New("nats://secret@host: no quorum") // optional here
	if a := w.do("", "GET", "/readyz", ""); a.status != 200 || strings.TrimSpace(a.body) != `{"status":"ready","checks":{"jetstream":false,"nats":true,"postgres":true}}` {
		t.Errorf("without JetStream: %d %s", a.status, a.body)
	}
	if a := w.do("", "GET", "/healthz", ""); a.status != 200 {
		t.Errorf("health must not follow readiness: %d", a.status)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	w.must(404, "GET", "/api/v1/jobs/77", "")
	w.must(404, "GET", "/api/v1/made/up", "")
	w.do(w.admin, "BREW", "/api/v1/jobs", "")
	body := w.must(200, "GET", "/metrics", "").body
	for _, want := range []string{
		`belfry_http_requests_total{method="POST",route="/api/v1/jobs",status="201"} 1`,
		`belfry_http_requests_total{method="GET",route="/api/v1/jobs/{id}",status="404"} 1`,
		`belfry_http_requests_total{method="GET",route="none",status="404"} 1`,
		`belfry_http_request_seconds_count{method="POST",route="/api/v1/auth/login"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, bad := range []string{"/77", "made", "BREW"} {
		if strings.Contains(body, bad) {
			t.Errorf("a label has text that a client sent: %s", bad)
		}
	}
}

// The metrics reveal a group only to callers who may see it, and to programs with a token of an admin.
func TestMetricsOfGroups(t *testing.T) {
	w := newWorld(t)
	jobs := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "jobs_of", Help: "Jobs."}, []string{"group"})
	hidden := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hidden_of", Help: "Hidden."}, []string{"group"})
	w.metrics.MustRegister(jobs, hidden)
	for _, group := range []string{"mine", "other"} {
		w.must(201, "POST", "/api/v1/groups", `{"name":"`+group+`"}`)
		jobs.WithLabelValues(group).Set(1)
	}
	hidden.WithLabelValues("other").Set(1)
	jobs.WithLabelValues("").Set(1)
	w.must(201, "POST", "/api/v1/users", `{"username":"vera","password":"`+adminPassword+`","role":"viewer","groups":["mine"]}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"nina","password":"`+adminPassword+`","role":"viewer","groups":[]}`)
	token := func(body string) string { return w.must(201, "POST", "/api/v1/tokens", body).field("token").(string) }
	for name, c := range map[string]struct {
		token string
		sees  string
	}{
		"an admin": {w.admin, "jobs_of mine other hidden_of"}, "an admin's token of a program": {token(`{"name":"scrapes","role":"viewer"}`), "jobs_of mine other hidden_of"},
		"an admin's token of a group": {token(`{"name":"reads","role":"viewer","groups":["mine"]}`), "jobs_of mine"},
		"a viewer":                    {w.logIn("vera", adminPassword), "jobs_of mine"}, "a viewer without groups": {w.logIn("nina", adminPassword), "jobs_of"},
	} {
		a := w.do(c.token, "GET", "/metrics", "")
		if a.status != 200 || !strings.Contains(a.body, `jobs_of{group=""} 1`) || !strings.Contains(a.body, "belfry_http_requests_total") {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		for word, text := range map[string]string{"mine": `group="mine"`, "other": `group="other"`, "hidden_of": "hidden_of"} {
			if strings.Contains(a.body, text) != strings.Contains(c.sees, word) {
				t.Errorf("%s: %s is shown: %v", name, text, !strings.Contains(c.sees, word))
			}
		}
	}
}

// If Postgres is unavailable, every answer is a 503 problem that reveals no internals.
func TestPostgresAway(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://belfry:hunter22@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	accounts, metrics := account.New(pool), prometheus.NewRegistry()
	w := &world{t: t, admin: "bfs_" + strings.Repeat("A", 43)}
	w.api = api.New(api.Config{Jobs: away{}, Calendars: away{}, Pauses: away{}, Fleet: &fleet{}, Views: view.New(pool),
		Authenticator: accounts, Users: accounts.Users, Sessions: accounts.Sessions, Tokens: accounts.Tokens,
		Groups: group.New(pool), AuditLog: auditlog.New(pool), Idempotency: idempotency.New(pool, ""),
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.DiscardHandler)})
	for _, a := range []answer{
		w.do(w.admin, "GET", "/api/v1/jobs", ""),
		w.do(w.admin, "POST", "/api/v1/jobs", simpleJob),
		w.do("", "POST", "/api/v1/auth/login", `{"username":"admin","password":"whatever it is"}`),
	} {
		if a.status != 503 || a.header.Get("Retry-After") == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("the answer is %d %v %s", a.status, a.header, a.body)
		}
		if strings.Contains(a.body, "hunter22") || strings.Contains(a.body, "127.0.0.1") {
			t.Errorf("the answer reveals internals: %s", a.body)
		}
	}
}

// An internal error is logged, and the answer does not reveal it.
func TestInternalErrors(t *testing.T) {
	w := newWorld(t)
	w.exec(`UPDATE users SET password_hash = 'damaged'`)
	a := w.do("", "POST", "/api/v1/auth/login", `{"username":"admin","password":"`+adminPassword+`"}`)
	if a.status != 500 || strings.Contains(a.body, "damaged") || !strings.Contains(w.log.String(), "damaged") {
		t.Errorf("the answer is %d %s, the log %s", a.status, a.body, w.log)
	}
}

// away replaces the store while Postgres is unavailable. Its embedded interfaces are nil, so every other call panics.
type away struct {
	api.Jobs
	calendars.Store
	api.Pauses
}

func (away) Job(context.Context, domain.JobID) (domain.Job, error) {
	return domain.Job{}, domain.NewError(domain.Unavailable, "away")
}
