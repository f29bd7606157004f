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
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
)

// TestOIDC tests the log-in through a real identity provider, which it builds once.
func TestOIDC(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "oidcserver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = "testdata/oidcserver"
	build.Env = append(os.Environ(), "GOWORK=off") // the provider's module is not in the workspace
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the provider: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, *oidcWorld){
		"log-in": tryOIDC, "claims": tryOIDCClaims, "attacks": tryOIDCAttacks, "return": tryOIDCReturn,
	} {
		t.Run(name, func(t *testing.T) { test(t, newOIDCWorld(t, binary)) })
	}
}

// oidcWorld is a world whose API accepts log-ins through a provider in another process.
type oidcWorld struct {
	*world
	console string // its address
	issuer  string
	tamper  *tamper
	now     func() time.Time
}

// tamper is the transport from the console to the provider. change may replace the ID token in an answer.
type tamper struct {
	mu     sync.Mutex
	change func(idToken string) string
	last   string // the last ID token of the provider
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
	t.Cleanup(func() { provider.Process.Kill(); provider.Wait() }) //nolint:errcheck // Wait reports the kill
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o.issuer = strings.TrimSpace(line)

	metrics := prometheus.NewRegistry()
	o.api = api.New(api.Config{Jobs: o.store, Calendars: o.store, Pauses: o.store, Fleet: o.fleet, Views: view.New(o.pool), Reports: statstore.New(o.pool), Gateways: gateway.New(o.pool, strings.Repeat("k", 32)), Letters: o.letters, Alerts: o.alerts,
		Authenticator: o.accounts, Users: o.accounts.Users, Sessions: o.accounts.Sessions, Tokens: o.accounts.Tokens,
		Groups: o.groups, AuditLog: auditlog.New(o.pool), Idempotency: idempotency.New(o.pool, ""),
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

// user sets the claims of the user who is logged in at the provider. With "" no user is logged in.
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

// browser keeps cookies, and does not follow redirects by itself.
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

// open requests an address. It returns the target of the redirect, and the cookies.
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
		b.o.t.Fatalf("%s is not redirected: %d %s", address, answer.StatusCode, content)
	}
	return to, answer.Cookies()
}

// begin starts a log-in at the provider. It returns the address of the callback with the provider's answer.
func (b *browser) begin(returnTo string) *url.URL {
	b.o.t.Helper()
	to, _ := b.open(b.o.console + "/api/v1/auth/oidc/login?return_to=" + url.QueryEscape(returnTo))
	back, _ := b.open(to.String())
	return back
}

// end opens a callback. It returns the page to which the callback redirects, and the session, "" for none.
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
		b.o.t.Errorf("the callback redirects to another site: %s", to)
	}
	return strings.TrimPrefix(to.String(), b.o.console), session
}

// fails checks that a callback redirects to the log-in page with an error and without a session.
func (b *browser) fails(callback *url.URL, why string) {
	b.o.t.Helper()
	if page, session := b.end(callback); page != "/login?error="+why || session != "" {
		b.o.t.Errorf("the callback redirects to %s, with a session: %v; want %s", page, session != "", why)
	}
}

func (o *oidcWorld) logInOIDC() string {
	o.t.Helper()
	b := o.browser()
	page, session := b.end(b.begin("/"))
	if page != "/" || session == "" {
		o.t.Fatalf("the log-in ends at %s\n%s", page, o.log)
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
		t.Fatalf("after the log-in to %s the caller is %s", page, me.body)
	}
	if ends, err := time.Parse(time.RFC3339, me.field("expires_at").(string)); err != nil || time.Until(ends) > time.Hour {
		t.Errorf("the log-in ends at %v, %v", ends, err)
	}
	job := o.do(session, "POST", "/api/v1/jobs", simpleJob)
	if job.status != 201 {
		t.Errorf("an operator creates a job: %d %s", job.status, job.body)
	}
	const path = "/api/v1/users/ann.lee"
	if u := o.must(200, "GET", path, ""); u.field("kind") != "oidc" || u.field("role") != "operator" {
		t.Errorf("the user is %s", u.body)
	}
	if audit := o.must(200, "GET", "/api/v1/audit?object=user/ann.lee", ""); audit.field("items.0.action") != "auth.login" || audit.field("items.1.action") != "user.create" {
		t.Errorf("the audit log has %s", audit.body)
	}

	// A user of the provider has no password in Belfry, and cannot get one. Role and groups can only be changed at the provider.
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

	// A user who is disabled in Belfry cannot log in, although the provider allows it.
	o.must(200, "PATCH", path, `{"disabled":true}`)
	b.fails(b.begin("/"), "oidc_no_access")
	o.must(200, "PATCH", path, `{"disabled":false}`)
	o.logInOIDC()
	if o.do(o.admin, "GET", "/api/v1/users", "").field("items.2") != nil {
		t.Error("the second log-in has created another user")
	}
}

// Each log-in sets role and groups to those of the provider, also if they are fewer or none.
func tryOIDCClaims(t *testing.T, o *oidcWorld) {
	o.user(ann)
	first := o.logInOIDC()
	token := o.do(first, "POST", "/api/v1/tokens", `{"name":"ci"}`).field("token").(string)
	is := func(who, want string) {
		t.Helper()
		a := o.do(who, "GET", "/api/v1/auth/me", "")
		if got := fmt.Sprint(a.status, " ", a.field("role"), " ", a.field("groups")); got != want {
			t.Errorf("the caller is %s, want %s", got, want)
		}
	}
	// The user gets the highest role. Groups that do not exist are left out. The earlier session ends, because the role has
	// changed.
	o.user(`{"sub":"7c1","preferred_username":"other-name","realm":{"roles":["belfry-admins","belfry-ops"]},"teams":["all"]}`)
	admin := o.logInOIDC()
	is(admin, "200 admin [default tools]")
	is(first, "401 <nil> <nil>")
	if me := o.do(admin, "GET", "/api/v1/auth/me", ""); me.field("username") != "ann.lee" { // the first name stays, because another user could take the new one
		t.Errorf("the caller is %s", me.body)
	}
	// Some providers send names and groups only at /userinfo.
	o.user(`{"sub":"7c2","userinfo":{"preferred_username":"bob","realm":{"roles":"belfry-ops"},"teams":"nightly"}}`)
	bob := o.logInOIDC()
	is(bob, "200 operator [default]")

	// If the provider grants no role, the user's sessions end and the user's tokens have no rights. A new user is not created.
	o.user(`{"sub":"7c1","preferred_username":"Ann.Lee","teams":["all"]}`)
	b := o.browser()
	b.fails(b.begin("/"), "oidc_no_access")
	is(admin, "401 <nil> <nil>")
	is(token, "200 viewer []")
	if a := o.do(token, "GET", "/api/v1/groups", ""); a.status != 200 || fmt.Sprint(a.field("items")) != "[]" {
		t.Errorf("the token sees %s", a.body)
	}
	if audit := o.must(200, "GET", "/api/v1/audit?object=user/ann.lee", ""); audit.field("items.0.action") != "user.update" || audit.field("items.0.after.role") != "viewer" {
		t.Errorf("the audit log has %s", audit.body)
	}
	o.user(`{"sub":"7c3","preferred_username":"eve","teams":["all"]}`)
	b.fails(b.begin("/"), "oidc_no_access")
	o.must(404, "GET", "/api/v1/users/eve", "")

	// A user cannot take the name of another user, or a name that could be confused with other text.
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

// Each step of the log-in resists manipulation.
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
	b.fails(callback, "oidc_expired") // the attempt above has used the state
	callback = b.begin("/")
	o.browser().fails(callback, "oidc_expired") // another browser has started the log-in
	b.fails(with(callback, "iss", "https://other.example"), "oidc_expired")
	callback = b.begin("/")
	b.fails(with(callback, "code", "made-up"), "oidc_failed")
	callback = b.begin("/")
	b.fails(with(callback, "error", "access_denied"), "oidc_denied")

	// A code works once, even if the browser still has the cookie of the log-in.
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

	// A code from another log-in does not match the verifier of this one.
	stolen := o.browser().begin("/").Query().Get("code")
	b.fails(with(b.begin("/"), "code", stolen), "oidc_failed")

	// The console refuses an ID token of another log-in, a token of another client, an expired token, a forged token, and an
	// answer without a token. The provider issued the first three.
	earlier := o.tamper.last
	change := func(what string, change func(string) string, now func() time.Time) {
		t.Helper()
		o.tamper.set(change)
		o.now = now
		before := len(o.log.String())
		b.fails(b.begin("/"), "oidc_failed")
		if said := o.log.String()[before:]; !strings.Contains(said, what) {
			t.Errorf("the log does not name %s:\n%s", what, said)
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
		t.Error("the log has a token, a code or the secret")
	}
}

// tokenOf returns an ID token that the provider has issued to another client.
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

// The log-in redirects only to pages of this console.
func tryOIDCReturn(t *testing.T, o *oidcWorld) {
	o.user(ann)
	b := o.browser()
	page, session := b.end(b.begin("//evil.example/"))
	if page != "/" || session == "" {
		t.Errorf("the log-in ends at %s", page)
	}
	for path, want := range map[string]string{
		"/jobs/7?tab=log#end": "/jobs/7?tab=log#end", "": "/", "jobs": "/", "//evil.example": "/", "/\\evil.example": "/", "/\t/evil.example": "/",
		"https://evil.example": "/", "javascript:alert(1)": "/", "/%5cevil.example": "/", "/%2f/evil.example": "/", "\\\\evil.example": "/",
		"/api/v1/auth/oidc/login": "/", "/login?error=x": "/", "/" + strings.Repeat("x", 3000): "/", "/a\r\nSet-Cookie: x": "/", "/jobs?next=//x": "/jobs?next=//x",
	} {
		if got := auth.LocalPath(path); got != want {
			t.Errorf("LocalPath(%q) is %q", path, got)
		}
	}
}

// Without a provider, and with an unreachable one, users can log in with passwords.
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
	away.api = api.New(api.Config{Jobs: w.store, Calendars: w.store, Pauses: w.store, Fleet: w.fleet, Views: view.New(w.pool), Reports: statstore.New(w.pool), Gateways: gateway.New(w.pool, strings.Repeat("k", 32)), Registerer: metrics, Gatherer: metrics,
		Authenticator: w.accounts, Users: w.accounts.Users, Sessions: w.accounts.Sessions, Tokens: w.accounts.Tokens,
		Groups: w.groups, AuditLog: auditlog.New(w.pool), Idempotency: idempotency.New(w.pool, ""),
		Log:  slog.New(slog.NewTextHandler(w.log, nil)),
		OIDC: auth.NewProvider(auth.OIDCConfig{Issuer: "http://127.0.0.1:1", ClientID: "belfry"})})
	if a := away.do("", "GET", "/api/v1/auth/oidc/login", ""); a.status != 303 || a.header.Get("Location") != "/login?error=oidc_unavailable" {
		t.Errorf("with an unreachable provider: %d %v", a.status, a.header)
	}
	away.logIn("admin", adminPassword)
}
