package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// TestOIDC tries the log-in through an identity provider: a real one, which is built for it once.
func TestOIDC(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "oidcserver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = "testdata/oidcserver"
	build.Env = append(os.Environ(), "GOWORK=off") // it is a module that the workspace does not use
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, *oidcWorld){
		"log-in": tryOIDC, "claims": tryOIDCClaims, "attacks": tryOIDCAttacks, "return": tryOIDCReturn,
	} {
		t.Run(name, func(t *testing.T) { test(t, newOIDCWorld(t, binary)) })
	}
}

// oidcWorld is a world whose API takes log-ins through a provider that runs beside it.
type oidcWorld struct {
	*world
	console string // its address
	issuer  string
	tamper  *tamper
	now     func() time.Time
}

// tamper is the way between console and provider; change may replace the ID token of what passes.
type tamper struct {
	mu     sync.Mutex
	change func(idToken string) string
	last   string // the last ID token that passed
}

func (x *tamper) set(change func(string) string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change = change
}

func (x *tamper) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/token") || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	defer answer.Body.Close()
	var fields map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&fields); err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.last, _ = fields["id_token"].(string)
	if x.change != nil {
		fields["id_token"] = x.change(x.last)
	}
	x.mu.Unlock()
	changed, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(changed))
	answer.ContentLength = int64(len(changed))
	answer.Header.Del("Content-Length")
	return answer, nil
}

func newOIDCWorld(t *testing.T, binary string) *oidcWorld {
	t.Helper()
	o := &oidcWorld{world: newWorld(t), tamper: &tamper{}, now: time.Now}
	o.must(201, "POST", "/api/v1/groups", `{"name":"tools"}`)
	console := httptest.NewUnstartedServer(nil)
	o.console = "http://" + console.Listener.Addr().String()

	provider := exec.CommandContext(t.Context(), binary, "-redirect", o.console+"/api/v1/auth/oidc/callback")
	out, err := provider.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	provider.Stderr = os.Stderr
	if err := provider.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Process.Kill(); provider.Wait() }) //nolint:errcheck // it is killed
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o.issuer = strings.TrimSpace(line)

	metrics := prometheus.NewRegistry()
	o.api = api.New(api.Config{Jobs: o.store, Calendars: o.store, Pauses: o.store, Fleet: o.fleet, Views: view.New(o.pool), Reports: statstore.New(o.pool), Letters: o.letters, Alerts: o.alerts,
		Authenticator: o.accounts, Users: o.accounts.Users, Sessions: o.accounts.Sessions, Tokens: o.accounts.Tokens,
		Groups: o.groups, AuditLog: auditlog.New(o.pool), Idempotency: idempotency.New(o.pool),
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.NewTextHandler(o.log, nil)),
		OIDC: auth.NewProvider(auth.OIDCConfig{
			Issuer: o.issuer, ClientID: "belfry", ClientSecret: "belfry-secret", RedirectURL: o.console + "/api/v1/auth/oidc/callback", Name: "The Company",
			Scopes: []string{"openid", "profile"}, UsernameClaim: "preferred_username", RoleClaim: "realm.roles", GroupsClaim: "teams",
			Roles:  map[string]account.Role{"belfry-ops": account.Operator, "belfry-admins": account.Admin},
			Groups: map[string][]string{"nightly": {"default"}, "all": {"default", "tools", "gone"}}, SessionLifetime: time.Hour,
			Client: &http.Client{Transport: o.tamper, Timeout: time.Minute}, Now: func() time.Time { return o.now() },
		})})
	console.Config.Handler = o.api
	console.Start()
	t.Cleanup(console.Close)
	return o
}

// user says who is logged in at the provider; "" for nobody.
func (o *oidcWorld) user(claims string) {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPut, o.issuer+"/user", strings.NewReader(claims))
	if err != nil {
		o.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	answer.Body.Close()
}

const ann = `{"sub":"7c1","preferred_username":"Ann.Lee","realm":{"roles":["x","belfry-ops"]},"teams":["nightly","others"]}`

// browser keeps cookies and goes where it is told, one step at a time.
type browser struct {
	o *oidcWorld
	*http.Client
}

func (o *oidcWorld) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return &browser{o, &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// open returns where the answer leads to, and its cookies.
func (b *browser) open(address string) (*url.URL, []*http.Cookie) {
	b.o.t.Helper()
	r, err := http.NewRequestWithContext(b.o.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		b.o.t.Fatal(err)
	}
	answer, err := b.Do(r)
	if err != nil {
		b.o.t.Fatal(err)
	}
	defer answer.Body.Close()
	to, err := answer.Location()
	if err != nil {
		content, _ := io.ReadAll(answer.Body)
		b.o.t.Fatalf("%s leads nowhere: %d %s", address, answer.StatusCode, content)
	}
	return to, answer.Cookies()
}

// begin goes to the provider and returns the address of the callback with its answer.
func (b *browser) begin(returnTo string) *url.URL {
	b.o.t.Helper()
	to, _ := b.open(b.o.console + "/api/v1/auth/oidc/login?return_to=" + url.QueryEscape(returnTo))
	back, _ := b.open(to.String())
	return back
}

// end opens a callback, and returns the page it leads to and the session, "" for none.
func (b *browser) end(callback *url.URL) (page, session string) {
	b.o.t.Helper()
	to, cookies := b.open(callback.String())
	for _, c := range cookies {
		if c.Name == auth.CookieName {
			session = c.Value
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
				b.o.t.Errorf("the session's cookie is %s", c)
			}
		}
	}
	if !strings.HasPrefix(to.String(), b.o.console+"/") {
		b.o.t.Errorf("the callback leads to another site: %s", to)
	}
	return strings.TrimPrefix(to.String(), b.o.console), session
}

// fails expects a callback to lead back to the log-in page without a session.
func (b *browser) fails(callback *url.URL, why string) {
	b.o.t.Helper()
	if page, session := b.end(callback); page != "/login?error="+why || session != "" {
		b.o.t.Errorf("leads to %s, with a session: %v; want %s", page, session != "", why)
	}
}

func (o *oidcWorld) logInOIDC() string {
	o.t.Helper()
	b := o.browser()
	page, session := b.end(b.begin("/"))
	if page != "/" || session == "" {
		o.t.Fatalf("the log-in leads to %s\n%s", page, o.log)
	}
	return session
}

func tryOIDC(t *testing.T, o *oidcWorld) {
	if m := o.do("", "GET", "/api/v1/auth/methods", ""); m.status != 200 || fmt.Sprint(m.field("password")) != "true" || m.field("oidc.name") != "The Company" ||
		m.field("oidc.login") != "/api/v1/auth/oidc/login" {
		t.Errorf("the methods are %d %s", m.status, m.body)
	}
	b := o.browser()
	o.user("")
	b.fails(b.begin("/"), "oidc_denied")

	o.user(ann)
	page, session := b.end(b.begin("/jobs?q=x&enabled=true"))
	me := o.do(session, "GET", "/api/v1/auth/me", "")
	if page != "/jobs?q=x&enabled=true" || me.field("username") != "ann.lee" || me.field("kind") != "oidc" || me.field("role") != "operator" || fmt.Sprint(me.field("groups")) != "[default]" {
		t.Fatalf("on %s I am %s", page, me.body)
	}
	if ends, err := time.Parse(time.RFC3339, me.field("expires_at").(string)); err != nil || time.Until(ends) > time.Hour {
		t.Errorf("the log-in ends at %v, %v", ends, err)
	}
	job := o.do(session, "POST", "/api/v1/jobs", simpleJob)
	if job.status != 201 {
		t.Errorf("an operator makes a job: %d %s", job.status, job.body)
	}
	const path = "/api/v1/users/ann.lee"
	if u := o.must(200, "GET", path, ""); u.field("kind") != "oidc" || u.field("role") != "operator" {
		t.Errorf("the user is %s", u.body)
	}
	if audit := o.must(200, "GET", "/api/v1/audit?object=user/ann.lee", ""); audit.field("items.0.action") != "auth.login" || audit.field("items.1.action") != "user.create" {
		t.Errorf("the audit log says %s", audit.body)
	}

	// There is no password, whoever gives one; and what the provider says is changed there.
	for _, password := range []string{"x", adminPassword} {
		if a := o.do("", "POST", "/api/v1/auth/login", `{"username":"ann.lee","password":"`+password+`"}`); a.status != 401 {
			t.Errorf("a log-in by password: %d %s", a.status, a.body)
		}
	}
	o.must(409, "PATCH", path, `{"password":"`+adminPassword+`"}`)
	o.must(409, "PATCH", path, `{"must_change_password":true}`)
	o.must(409, "PATCH", path, `{"role":"admin"}`)
	o.must(409, "PATCH", path, `{"groups":["tools"]}`)
	if a := o.do(session, "POST", "/api/v1/auth/password", `{"current_password":"x","new_password":"`+otherPassword+`"}`); a.status != 409 {
		t.Errorf("a change of the password: %d %s", a.status, a.body)
	}
	if a := o.do(session, "GET", "/api/v1/jobs", ""); a.status != 200 {
		t.Errorf("after all that: %d", a.status)
	}

	// Who is disabled here does not get in, whatever the provider says.
	o.must(200, "PATCH", path, `{"disabled":true}`)
	b.fails(b.begin("/"), "oidc_no_access")
	o.must(200, "PATCH", path, `{"disabled":false}`)
	o.logInOIDC()
	if o.do(o.admin, "GET", "/api/v1/users", "").field("items.2") != nil {
		t.Error("one user became several")
	}
}

// Role and groups are the provider's at each log-in: more, less, none.
func tryOIDCClaims(t *testing.T, o *oidcWorld) {
	o.user(ann)
	first := o.logInOIDC()
	token := o.do(first, "POST", "/api/v1/tokens", `{"name":"ci"}`).field("token").(string)
	is := func(who, want string) {
		t.Helper()
		a := o.do(who, "GET", "/api/v1/auth/me", "")
		if got := fmt.Sprint(a.status, " ", a.field("role"), " ", a.field("groups")); got != want {
			t.Errorf("I am %s, not %s", got, want)
		}
	}
	// The highest role counts; groups that are not there are left out; the old log-in has another role, and ends.
	o.user(`{"sub":"7c1","preferred_username":"other-name","realm":{"roles":["belfry-admins","belfry-ops"]},"teams":["all"]}`)
	admin := o.logInOIDC()
	is(admin, "200 admin [default tools]")
	is(first, "401 <nil> <nil>")
	if me := o.do(admin, "GET", "/api/v1/auth/me", ""); me.field("username") != "ann.lee" { // for ever: others could take the name
		t.Errorf("I am %s", me.body)
	}
	// Names and groups may be told at /userinfo alone.
	o.user(`{"sub":"7c2","userinfo":{"preferred_username":"bob","realm":{"roles":"belfry-ops"},"teams":"nightly"}}`)
	bob := o.logInOIDC()
	is(bob, "200 operator [default]")

	// No role: nothing is left, neither of log-ins nor of tokens; and a new user does not come to be.
	o.user(`{"sub":"7c1","preferred_username":"Ann.Lee","teams":["all"]}`)
	b := o.browser()
	b.fails(b.begin("/"), "oidc_no_access")
	is(admin, "401 <nil> <nil>")
	is(token, "200 viewer []")
	if a := o.do(token, "GET", "/api/v1/groups", ""); a.status != 200 || fmt.Sprint(a.field("items")) != "[]" {
		t.Errorf("the token sees %s", a.body)
	}
	if audit := o.must(200, "GET", "/api/v1/audit?object=user/ann.lee", ""); audit.field("items.0.action") != "user.update" || audit.field("items.0.after.role") != "viewer" {
		t.Errorf("the audit log says %s", audit.body)
	}
	o.user(`{"sub":"7c3","preferred_username":"eve","teams":["all"]}`)
	b.fails(b.begin("/"), "oidc_no_access")
	o.must(404, "GET", "/api/v1/users/eve", "")

	// Nobody becomes somebody else by his name, nor is called what cannot be told from other words.
	for _, claims := range []string{
		`{"sub":"7c4","preferred_username":"admin","realm":{"roles":["belfry-admins"]},"teams":[]}`,
		`{"sub":"7c4","preferred_username":"ann.lee","realm":{"roles":["belfry-admins"]},"teams":[]}`,
		`{"sub":"7c4","preferred_username":"admin (token ci)","realm":{"roles":["belfry-admins"]},"teams":[]}`,
		`{"sub":"7c4","preferred_username":"../admin","realm":{"roles":["belfry-admins"]},"teams":[]}`,
		`{"sub":"7c4","realm":{"roles":["belfry-admins"]},"teams":[]}`,
	} {
		o.user(claims)
		b.fails(b.begin("/"), "oidc_name")
	}
}

// What an attacker can do to the steps of the log-in.
func tryOIDCAttacks(t *testing.T, o *oidcWorld) {
	o.user(ann)
	with := func(u *url.URL, name, value string) *url.URL {
		q := u.Query()
		q.Set(name, value)
		changed := *u
		changed.RawQuery = q.Encode()
		return &changed
	}
	b := o.browser()

	callback := b.begin("/")
	b.fails(with(callback, "state", "made-up"), "oidc_expired")
	b.fails(callback, "oidc_expired") // the attempt above has used it up
	callback = b.begin("/")
	o.browser().fails(callback, "oidc_expired") // the victim of a log-in that somebody else has begun
	b.fails(with(callback, "iss", "https://other.example"), "oidc_expired")
	callback = b.begin("/")
	b.fails(with(callback, "code", "made-up"), "oidc_failed")
	callback = b.begin("/")
	b.fails(with(callback, "error", "access_denied"), "oidc_denied")

	// A code counts once, also for a browser that still has what belongs to it.
	callback = b.begin("/")
	at, err := url.Parse(o.console + "/api/v1/auth/oidc/")
	if err != nil {
		t.Fatal(err)
	}
	kept := b.Jar.Cookies(at)
	if _, session := b.end(callback); session == "" {
		t.Fatalf("the log-in fails\n%s", o.log)
	}
	b.fails(callback, "oidc_expired")
	b.Jar.SetCookies(at, kept)
	b.fails(callback, "oidc_failed")

	// A code that was stolen from another log-in does not fit this one's verifier.
	stolen := o.browser().begin("/").Query().Get("code")
	b.fails(with(b.begin("/"), "code", stolen), "oidc_failed")

	// Tokens: another log-in's, another party's, an old one, a forged one, none. All but the last two are the provider's own.
	earlier := o.tamper.last
	change := func(what string, change func(string) string, now func() time.Time) {
		t.Helper()
		o.tamper.set(change)
		o.now = now
		before := len(o.log.String())
		b.fails(b.begin("/"), "oidc_failed")
		if said := o.log.String()[before:]; !strings.Contains(said, what) {
			t.Errorf("%s is not why:\n%s", what, said)
		}
		o.tamper.set(nil)
		o.now = time.Now
	}
	change("nonce", func(string) string { return earlier }, time.Now)
	others := o.tokenOf("other")
	change("audience", func(string) string { return others }, time.Now)
	change("expired", nil, func() time.Time { return time.Now().Add(2 * time.Hour) })
	change("signature", func(token string) string {
		i := strings.LastIndexByte(token, '.') + 1
		flipped := byte('A')
		if token[i] == flipped {
			flipped = 'B'
		}
		return token[:i] + string(flipped) + token[i+1:]
	}, time.Now)
	change("malformed", func(string) string { return "" }, time.Now)
	if said := o.log.String(); strings.Contains(said, earlier) || strings.Contains(said, "belfry-secret") || strings.Contains(said, stolen) {
		t.Error("the log holds a token, a code or the secret")
	}
}

// tokenOf returns an ID token that the provider has made for another of its clients.
func (o *oidcWorld) tokenOf(client string) string {
	o.t.Helper()
	sent := &tamper{}
	p := auth.NewProvider(auth.OIDCConfig{Issuer: o.issuer, ClientID: client, ClientSecret: client + "-secret", Scopes: []string{"openid"},
		RedirectURL: o.console + "/api/v1/auth/oidc/callback", UsernameClaim: "preferred_username", Client: &http.Client{Transport: sent}})
	to, kept, err := p.Begin(o.t.Context(), "/")
	if err != nil {
		o.t.Fatal(err)
	}
	back, _ := o.browser().open(to)
	if _, _, err := p.Finish(o.t.Context(), kept, back.Query()); err != nil {
		o.t.Fatal(err)
	}
	return sent.last
}

// The log-in leads to pages of this console alone.
func tryOIDCReturn(t *testing.T, o *oidcWorld) {
	o.user(ann)
	b := o.browser()
	page, session := b.end(b.begin("//evil.example/"))
	if page != "/" || session == "" {
		t.Errorf("leads to %s", page)
	}
	for path, want := range map[string]string{
		"/jobs/7?tab=log#end": "/jobs/7?tab=log#end", "": "/", "jobs": "/", "//evil.example": "/", "/\\evil.example": "/", "/\t/evil.example": "/",
		"https://evil.example": "/", "javascript:alert(1)": "/", "/%5cevil.example": "/", "/%2f/evil.example": "/", "\\\\evil.example": "/",
		"/api/v1/auth/oidc/login": "/", "/login?error=x": "/", "/" + strings.Repeat("x", 3000): "/", "/a\r\nSet-Cookie: x": "/", "/jobs?next=//x": "/jobs?next=//x",
	} {
		if got := auth.LocalPath(path); got != want {
			t.Errorf("%q leads to %q", path, got)
		}
	}
}

// Without a provider, or with one that is away, passwords go on.
func TestNoOIDC(t *testing.T) {
	w := newWorld(t)
	if m := w.do("", "GET", "/api/v1/auth/methods", ""); m.status != 200 || fmt.Sprint(m.field("password")) != "true" || strings.Contains(m.body, "oidc") {
		t.Errorf("the methods are %s", m.body)
	}
	for _, path := range []string{"login", "callback?state=x"} {
		if a := w.do("", "GET", "/api/v1/auth/oidc/"+path, ""); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	metrics := prometheus.NewRegistry()
	away := *w
	away.api = api.New(api.Config{Jobs: w.store, Calendars: w.store, Pauses: w.store, Fleet: w.fleet, Views: view.New(w.pool), Reports: statstore.New(w.pool), Registerer: metrics, Gatherer: metrics,
		Authenticator: w.accounts, Users: w.accounts.Users, Sessions: w.accounts.Sessions, Tokens: w.accounts.Tokens,
		Groups: w.groups, AuditLog: auditlog.New(w.pool), Idempotency: idempotency.New(w.pool),
		Log:  slog.New(slog.NewTextHandler(w.log, nil)),
		OIDC: auth.NewProvider(auth.OIDCConfig{Issuer: "http://127.0.0.1:1", ClientID: "belfry"})})
	if a := away.do("", "GET", "/api/v1/auth/oidc/login", ""); a.status != 303 || a.header.Get("Location") != "/login?error=oidc_unavailable" {
		t.Errorf("with a provider that is away: %d %v", a.status, a.header)
	}
	away.logIn("admin", adminPassword)
}
