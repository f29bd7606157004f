package console_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/console"
	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/api/calendars"
	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	"github.com/belfryhq/belfry/internal/store/view"
)

type nothing struct {
	api.Jobs
	calendars.Store
	api.Pauses
	api.Fleet
}

// start serves a console without Postgres. It returns the address, and a function that stops the console and returns the
// error of Run. The readiness check calls probe.
func start(t *testing.T, probe func()) (address string, stop func() error) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accounts, metrics := account.New(pool), prometheus.NewRegistry()
	s, err := console.New(console.Config{Listener: listener, API: api.Config{
		Jobs: nothing{}, Calendars: nothing{}, Pauses: nothing{}, Fleet: nothing{}, Views: view.New(pool),
		Authenticator: accounts, Users: accounts.Users, Sessions: accounts.Sessions, Tokens: accounts.Tokens,
		Groups: group.New(pool), AuditLog: auditlog.New(pool), Idempotency: idempotency.New(pool, ""),
		Registerer: metrics, Gatherer: metrics, Log: slog.New(slog.DiscardHandler),
		Ready: []system.Check{{Name: "postgres", Probe: func(context.Context) error { probe(); return nil }}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return listener.Addr().String(), func() error {
		cancel()
		err := <-ended
		pool.Close()
		return err
	}
}

func TestRunStopsInOrder(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	underWay, goOn := make(chan struct{}), make(chan struct{})
	address, stop := start(t, func() { close(underWay); <-goOn })
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	// A request that is in progress when the server stops still gets its answer.
	status := make(chan int, 1)
	go func() {
		resp, err := client.Get("http://" + address + "/readyz")
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-underWay
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for { // until the server accepts no more connections
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			break
		}
		conn.Close()
	}
	close(goOn)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the open request got %d", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// GET and HEAD outside the API's paths get the web console. All other requests get the API.
func TestConsoleBesideAPI(t *testing.T) {
	address, stop := start(t, nil)
	for request, want := range map[string]string{
		"GET /": "200 text/html", "GET /jobs/7": "200 text/html", "HEAD /runs": "200 text/html", "GET /apiary": "200 text/html",
		"GET /api": "401 application/problem+json", "GET /api/v1/made/up": "401 application/problem+json",
		"GET /metrics": "401 application/problem+json", "GET /docs": "401 application/problem+json",
		"GET /openapi.json": "401 application/problem+json", "GET /healthz": "200 application/json",
		"POST /jobs": "401 application/problem+json", "POST /": "401 application/problem+json", "DELETE /jobs/7": "401 application/problem+json",
	} {
		method, path, _ := strings.Cut(request, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		contentType, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
		if got := fmt.Sprintf("%d %s", a.StatusCode, contentType); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Every answer has the security headers: pages, files, and answers and errors of the API.
func TestHeaders(t *testing.T) {
	address, stop := start(t, func() {})
	var style string
	for _, path := range []string{"/", "/jobs", "/favicon.svg", "/assets/missing.js", "/api/v1/jobs", "/api/v1/auth/login", "/healthz", "/docs", "/no/such"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Strict-Transport-Security": "",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		policy := a.Header.Get("Content-Security-Policy")
		if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || strings.HasPrefix(path, "/api") {
			for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
				if !strings.Contains(policy, want) {
					t.Errorf("%s: the policy %q lacks %s", path, policy, want)
				}
			}
			style += policy
		}
	}
	if strings.Contains(style, "unsafe") {
		t.Errorf("a policy allows unsafe sources: %s", style)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The server closes the connection of a client that stops sending in the middle of its header or body.
func TestSlowClient(t *testing.T) {
	if testing.Short() {
		t.Log("runs only without -short: it waits for timeouts of up to ten seconds")
		return
	}
	t.Parallel()
	address, stop := start(t, nil)
	var wg sync.WaitGroup
	for sent, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ":                                     "",
		"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{": "HTTP/1.1 408 ",
	} {
		wg.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Error(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), want) {
				t.Errorf("%q gets %q, %v", sent, got, err)
			}
		})
	}
	wg.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestConfigNamesAllThatIsMissing(t *testing.T) {
	_, err := console.New(console.Config{})
	for _, part := range []string{"Jobs", "Calendars", "Pauses", "Fleet", "Authenticator", "Users", "Sessions", "Tokens", "Groups", "AuditLog", "Idempotency", "Views", "Registerer", "Gatherer", "Log"} {
		if err == nil || !strings.Contains(err.Error(), "API."+part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
}
