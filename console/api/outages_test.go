package api_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/internal/outage"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/attention"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	"github.com/belfryhq/belfry/internal/store/view"
)

// missing names servers and roles, as a console sees them.
type missing struct{ troubles []outage.Trouble }

func (m *missing) Troubles() []outage.Trouble { return m.troubles }

func noDispatcher() outage.Trouble {
	var w outage.Watch
	for _, after := range []time.Duration{0, time.Minute} {
		w.State(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC).Add(after), outage.State{Processes: []outage.Process{{Role: outage.Scheduler, Name: "a"}}})
	}
	return w.Troubles()[0]
}

// The list begins with the servers and roles that are missing. Only admins see the names of hosts, and acknowledge these items.
func TestAttentionNamesWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	away := outage.Away(outage.NATS, "", "dial nats-1.internal: refused")
	away.Since = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	w.outages.troubles = []outage.Trouble{away, noDispatcher()}
	viewer := w.confined("vera", "viewer", "default")
	w.job(`{"group":"default","name":"report","handler":"echo","schedule":{"kind":"none"}}`)
	w.fares(1, true, "handler_error", "", time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), 90)
	w.rows([]row{{"the list", "GET", "/api/v1/attention", "", 200, map[string]any{
		"items.0.id": "server_unavailable:nats", "items.0.group": "", "items.0.job_id": nil, "items.0.since": "2026-03-01T03:00:00.000Z", "items.0.count": 1.0,
		"items.0.runbook_url":      "https://github.com/belfryhq/belfry/blob/main/docs/operations.md#postgres-or-nats-is-unavailable",
		"items.0.explanation.code": "server_unavailable", "items.0.explanation.args.server": "nats", "items.0.detail": "dial nats-1.internal: refused",
		"items.1.explanation.code": "role_missing", "items.1.explanation.args.role": "dispatcher", "items.1.detail": nil,
		"items.1.explanation.text": "No dispatcher is up. Results are not settled, waiting runs and retries do not start, and executors cannot reconnect.",
		"items.1.id":               "role_missing:dispatcher", "items.2.id": "job_failing:1"}, nil}})
	if a := w.must(200, "GET", "/api/v1/attention", ""); !strings.Contains(a.body, "nats-1.internal") || !strings.Contains(a.body, "No dispatcher is up. Results are not settled") {
		t.Errorf("an admin sees %s", a.body)
	}
	if a := w.do(viewer, "GET", "/api/v1/attention", ""); strings.Contains(a.body, "internal") || !strings.Contains(a.body, "nats is unavailable. Without") {
		t.Errorf("a viewer sees %s", a.body)
	}
	w.checkAttention("to a viewer", viewer, "server_unavailable:nats 1", "role_missing:dispatcher 1", "job_failing:1 3")
	if a := w.do(viewer, "POST", "/api/v1/attention/role_missing:dispatcher/acknowledge", "{}"); a.status == 200 {
		t.Error("a viewer has acknowledged a missing role")
	}
	operator := w.confined("olga", "operator", "default")
	if a := w.do(operator, "POST", "/api/v1/attention/role_missing:dispatcher/acknowledge", "{}"); a.status != 404 {
		t.Errorf("an operator of one group: %d", a.status)
	}
	w.must(200, "POST", "/api/v1/attention/role_missing:dispatcher/acknowledge", `{"note":"it is being moved"}`)
	w.checkAttention("acknowledged", w.admin, "server_unavailable:nats 1", "role_missing:dispatcher 1 (admin: it is being moved)", "job_failing:1 3")
	if err := attention.New(w.pool).Ended(t.Context(), []string{"role_missing:dispatcher"}); err != nil {
		t.Fatal(err)
	}
	w.checkAttention("it was over, and came again", w.admin, "server_unavailable:nats 1", "role_missing:dispatcher 1", "job_failing:1 3")
	w.outages.troubles = nil
	w.checkAttention("all is well", w.admin, "job_failing:1 3")
}

// While Postgres is unavailable, no token can be verified. The list then has what /readyz tells all callers.
func TestAttentionWhilePostgresIsAway(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://belfry:hunter22@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	accounts, metrics, m := account.New(pool), prometheus.NewRegistry(), &missing{}
	w := &world{t: t, admin: "bfs_" + strings.Repeat("A", 43)}
	w.api = api.New(api.Config{Jobs: away{}, Calendars: away{}, Pauses: away{}, Fleet: &fleet{}, Views: view.New(pool),
		Authenticator: accounts, Users: accounts.Users, Sessions: accounts.Sessions, Tokens: accounts.Tokens,
		Groups: group.New(pool), AuditLog: auditlog.New(pool), Idempotency: idempotency.New(pool, ""), Attention: attention.New(pool), Outages: m,
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.DiscardHandler)})
	if a := w.do(w.admin, "GET", "/api/v1/attention", ""); a.status != 503 {
		t.Errorf("before the console has noticed it: %d", a.status)
	}
	m.troubles = []outage.Trouble{outage.Away(outage.Postgres, "", "dial 127.0.0.1:1: refused"), noDispatcher()}
	a := w.do(w.admin, "GET", "/api/v1/attention", "")
	if a.status != 200 || a.field("items.0.id") != "server_unavailable:postgres" || strings.Contains(a.body, "role_missing") ||
		!strings.Contains(a.body, "#postgres-or-nats-is-unavailable") || strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("the answer is %d %s", a.status, a.body)
	}
	if unread := a.field("unavailable").([]any); len(unread) != len(attention.Kinds()) {
		t.Errorf("not read: %v", unread)
	}
	for _, path := range []string{"/api/v1/jobs", "/api/v1/overview"} {
		if a := w.do(w.admin, "GET", path, ""); a.status != 503 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := w.do("", "GET", "/api/v1/attention", ""); a.status != 401 {
		t.Errorf("without a token: %d", a.status)
	}
}
