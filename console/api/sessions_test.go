package api_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// another returns a second console on the same database.
func (w *world) another() *world {
	metrics := prometheus.NewRegistry()
	other := *w
	other.accounts = account.New(w.pool)
	other.accounts.Weaken()
	other.api = api.New(api.Config{Jobs: w.store, Calendars: w.store, Pauses: w.store, Fleet: w.fleet, Views: view.New(w.pool),
		Authenticator: other.accounts, Users: other.accounts.Users, Sessions: other.accounts.Sessions, Tokens: other.accounts.Tokens,
		Groups: w.groups, AuditLog: auditlog.New(w.pool), Idempotency: idempotency.New(w.pool, ""),
		Reports: statstore.New(w.pool), Events: nil,
		Letters: w.letters, Alerts: w.alerts, Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.NewTextHandler(w.log, nil))})
	return &other
}

// session logs in without the API, because the API limits log-in attempts.
func (w *world) session(name, password string) string {
	w.t.Helper()
	ticket, err := w.accounts.Sessions.LogIn(w.t.Context(), name, password, account.Origin{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ticket.Token
}

const otherPassword = "another-good-one"

func (w *world) user(name, role, more string) {
	w.t.Helper()
	groups := map[bool]string{true: `[]`, false: `["default"]`}[role == "admin"]
	w.must(201, "POST", "/api/v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"role":%q,"groups":%s%s}`, name, adminPassword, role, groups, more))
}

// A stolen session token stops working on every console as soon as the session ends, for each way in which it can end.
func TestStolenTokens(t *testing.T) {
	w := newWorld(t)
	other := w.another()
	w.user("ann", "operator", "")
	alive := func(token string) (here, there int) {
		return w.do(token, "GET", "/api/v1/auth/me", "").status, other.do(token, "GET", "/api/v1/auth/me", "").status
	}
	const path = "/api/v1/users/ann"
	for _, end := range []struct {
		how string
		do  func(token string) answer
	}{
		{"log-out", func(token string) answer { return w.do(token, "POST", "/api/v1/auth/logout", "") }},
		{"log-out on the other console", func(token string) answer { return other.do(token, "POST", "/api/v1/auth/logout", "") }},
		{"log-out everywhere, from another browser", func(string) answer {
			return w.do(w.session("ann", adminPassword), "POST", "/api/v1/auth/logout-everywhere", "")
		}},
		{"log-out everywhere by an admin", func(string) answer { return w.do(w.admin, "POST", path+"/logout", "") }},
		{"another log-in with it", func(token string) answer {
			return w.do("", "POST", "/api/v1/auth/login", `{"username":"ann","password":"`+adminPassword+`"}`, "Cookie", "belfry_session="+token)
		}},
		{"own change of the password, in another browser", func(string) answer {
			a := w.do(w.session("ann", adminPassword), "POST", "/api/v1/auth/password", `{"current_password":"`+adminPassword+`","new_password":"`+otherPassword+`"}`)
			w.must(200, "PATCH", path, `{"password":"`+adminPassword+`"}`)
			return a
		}},
		{"another password", func(string) answer { return w.do(w.admin, "PATCH", path, `{"password":"`+adminPassword+`"}`) }},
		{"another role", func(string) answer { return w.do(w.admin, "PATCH", path, `{"role":"viewer"}`) }},
		{"disabling", func(string) answer { return w.do(w.admin, "PATCH", path, `{"disabled":true}`) }},
		{"disabling and enabling", func(string) answer {
			w.must(200, "PATCH", path, `{"disabled":true}`)
			return w.do(w.admin, "PATCH", path, `{"disabled":false}`)
		}},
		{"deleting", func(string) answer { return w.do(w.admin, "DELETE", path, "") }},
	} {
		w.must(200, "PATCH", path, `{"disabled":false}`) // as the case before may have left it
		token := w.session("ann", adminPassword)
		if here, there := alive(token); here != 200 || there != 200 {
			t.Fatalf("before the %s the token gets %d and %d", end.how, here, there)
		}
		if a := end.do(token); a.status >= 300 {
			t.Fatalf("%s: %d %s", end.how, a.status, a.body)
		}
		if here, there := alive(token); here != 401 || there != 401 {
			t.Errorf("after the %s the token gets %d and %d", end.how, here, there)
		}
	}
}

// New groups of a user take effect at once, without a new log-in, because each request reads them.
func TestNewGroupsTakeEffectAtOnce(t *testing.T) {
	w := newWorld(t)
	w.user("ann", "viewer", "")
	job := w.job(simpleJob)
	ann := w.logIn("ann", adminPassword)
	for groups, want := range map[string]int{`[]`: 404, `["default"]`: 200} {
		w.must(200, "PATCH", "/api/v1/users/ann", `{"groups":`+groups+`}`)
		if a := w.do(ann, "GET", job, ""); a.status != want {
			t.Errorf("with the groups %s: %d", groups, a.status)
		}
	}
}

func TestOwnSessions(t *testing.T) {
	w := newWorld(t)
	w.user("ann", "viewer", "")
	const sessions = "/api/v1/auth/sessions"
	first := w.do("", "POST", "/api/v1/auth/login", `{"username":"ann","password":"`+adminPassword+`"}`, "User-Agent", "old \xff browser "+strings.Repeat("x", 1000)).field("token").(string)
	second := w.logIn("ann", adminPassword)
	list := w.do(second, "GET", sessions, "")
	agent, _ := list.field("items.0.user_agent").(string)
	if len(list.field("items").([]any)) != 2 || fmt.Sprint(list.field("items.0.current")) != "false" || fmt.Sprint(list.field("items.1.current")) != "true" ||
		!strings.HasPrefix(agent, "old  browser") || len(agent) > 256 || list.field("items.0.remote") == "" {
		t.Errorf("the log-ins are %s", list.body)
	}
	if strings.Contains(list.body, first) || strings.Contains(list.body, second) {
		t.Error("a token is shown a second time")
	}
	if page := w.do(second, "GET", sessions+"?limit=1", ""); page.field("next_cursor") == "" || page.field("items.1") != nil {
		t.Errorf("a page of one is %s", page.body)
	}
	id := fmt.Sprint(list.field("items.0.id"))
	if a := w.do(w.admin, "DELETE", sessions+"/"+id, ""); a.status != 404 {
		t.Errorf("ending another user's log-in: %d %s", a.status, a.body)
	}
	if a := w.do(second, "DELETE", sessions+"/"+id, ""); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do(first, "GET", "/api/v1/auth/me", ""); a.status != 401 {
		t.Errorf("the ended log-in gets %d", a.status)
	}
	if a := w.do(second, "GET", "/api/v1/auth/me", ""); a.status != 200 {
		t.Errorf("the other one gets %d", a.status)
	}

	// API tokens are for programs. They cannot list or end log-ins, or change the owner's password.
	token := w.do(second, "POST", "/api/v1/tokens", `{"name":"ci"}`).field("token").(string)
	for _, r := range []struct{ method, path, body string }{
		{"GET", sessions, ""}, {"DELETE", sessions + "/1", ""}, {"POST", "/api/v1/auth/logout-everywhere", ""},
		{"POST", "/api/v1/auth/password", `{"current_password":"` + adminPassword + `","new_password":"` + otherPassword + `"}`},
	} {
		if a := w.do(token, r.method, r.path, r.body); a.status != 403 {
			t.Errorf("%s %s with an API token: %d %s", r.method, r.path, a.status, a.body)
		}
	}
	if a := w.do(second, "POST", "/api/v1/auth/logout-everywhere", ""); a.status != 204 || !strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("log-out everywhere: %d %v", a.status, a.header)
	}
	if a := w.do(token, "GET", "/api/v1/auth/me", ""); a.status != 200 {
		t.Errorf("after the end of the log-ins the API token gets %d", a.status)
	}
	if audit := w.must(200, "GET", "/api/v1/audit?object=user/ann", ""); audit.field("items.0.action") != "auth.logout_everywhere" {
		t.Errorf("the audit log has %s", audit.body)
	}
}

func TestChangeOwnPassword(t *testing.T) {
	w := newWorld(t)
	w.user("ann", "viewer", "")
	ann := w.logIn("ann", adminPassword)
	change := func(token, current, next string) answer {
		return w.do(token, "POST", "/api/v1/auth/password", fmt.Sprintf(`{"current_password":%q,"new_password":%q}`, current, next))
	}
	for _, bad := range []struct{ current, next, location string }{
		{"not the password", otherPassword, "current_password"}, {adminPassword, "short", "new_password"}, {adminPassword, adminPassword, "new_password"},
		{strings.Repeat("x", 2000), otherPassword, "current_password"},
	} {
		if a := change(ann, bad.current, bad.next); a.status != 422 || fmt.Sprint(a.locations()) != "["+bad.location+"]" {
			t.Errorf("%v: %d %s", bad, a.status, a.body)
		}
	}
	a := change(ann, adminPassword, otherPassword)
	next, _ := a.field("token").(string)
	if a.status != 200 || !strings.Contains(a.header.Get("Set-Cookie"), "belfry_session="+next) {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	if me := w.do(next, "GET", "/api/v1/auth/me", ""); me.field("username") != "ann" {
		t.Errorf("with the new token the caller is %s", me.body)
	}
	w.logIn("ann", otherPassword)
	if a := w.do("", "POST", "/api/v1/auth/login", `{"username":"ann","password":"`+adminPassword+`"}`); a.status != 401 {
		t.Errorf("the old password: %d", a.status)
	}
	if audit := w.must(200, "GET", "/api/v1/audit?object=user/ann", "").body; !strings.Contains(audit, "auth.password") || strings.Contains(audit, otherPassword) {
		t.Errorf("the audit log has %s", audit)
	}
	// Attempts are limited, so that a stolen session does not help to guess the password.
	var last answer
	for range 12 {
		if last = change(next, "a guess of the password", adminPassword); last.status == 429 {
			break
		}
	}
	if last.status != 429 || last.header.Get("Retry-After") == "" {
		t.Errorf("after many guesses: %d %v", last.status, last.header)
	}
}

// A user whose password was set by an admin can only change it.
func TestPasswordMustBeChanged(t *testing.T) {
	w := newWorld(t)
	w.user("ann", "admin", `,"must_change_password":true`)
	ann := w.logIn("ann", adminPassword)
	if me := w.do(ann, "GET", "/api/v1/auth/me", ""); me.status != 200 || fmt.Sprint(me.field("must_change_password")) != "true" {
		t.Errorf("the caller is %d %s", me.status, me.body)
	}
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/api/v1/jobs", ""}, {"POST", "/api/v1/jobs", simpleJob}, {"POST", "/api/v1/tokens", `{"name":"way-round"}`}, {"GET", "/metrics", ""},
		{"PATCH", "/api/v1/users/ann", `{"must_change_password":false}`}, {"POST", "/api/v1/users/ann/logout", ""}, {"GET", "/api/v1/no/such/path", ""},
		{"GET", "/api/v1/auth/sessions", ""},
	} {
		a := w.do(ann, r.method, r.path, r.body)
		if a.status != 403 || !strings.Contains(a.body, "the password must be changed first") || fmt.Sprint(a.locations()) != "[password]" {
			t.Errorf("%s %s: %d %s", r.method, r.path, a.status, a.body)
		}
	}
	a := w.do(ann, "POST", "/api/v1/auth/password", `{"current_password":"`+adminPassword+`","new_password":"`+otherPassword+`"}`)
	ann, _ = a.field("token").(string)
	if a = w.do(ann, "GET", "/api/v1/jobs", ""); a.status != 200 {
		t.Fatalf("afterwards: %d %s", a.status, a.body)
	}
	token := w.do(ann, "POST", "/api/v1/tokens", `{"name":"ci"}`).field("token").(string)

	// The same holds after a reset of the password. API tokens still work.
	if u := w.must(200, "PATCH", "/api/v1/users/ann", `{"password":"`+adminPassword+`","must_change_password":true}`); fmt.Sprint(u.field("must_change_password")) != "true" {
		t.Errorf("%s", u.body)
	}
	ann = w.logIn("ann", adminPassword)
	if a := w.do(ann, "GET", "/api/v1/jobs", ""); a.status != 403 {
		t.Errorf("after the reset: %d", a.status)
	}
	if a := w.do(token, "GET", "/api/v1/jobs", ""); a.status != 200 {
		t.Errorf("the API token: %d", a.status)
	}
	for _, path := range []string{"logout-everywhere", "logout"} {
		if a := w.do(w.logIn("ann", adminPassword), "POST", "/api/v1/auth/"+path, ""); a.status != 204 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// The first admin, and users who were created without must_change_password, need not change their password.
	if u := w.must(200, "GET", "/api/v1/users/admin", ""); fmt.Sprint(u.field("must_change_password")) != "false" {
		t.Errorf("%s", u.body)
	}
	w.user("bob", "viewer", "")
	if a := w.do(w.logIn("bob", adminPassword), "GET", "/api/v1/jobs", ""); a.status != 200 {
		t.Errorf("bob: %d %s", a.status, a.body)
	}
}
