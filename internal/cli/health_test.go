package cli

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	isolate(t)
	status, body := http.StatusOK, "ok\n"
	role := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Redirect(w, r, "/readyz", http.StatusFound)
			return
		}
		w.WriteHeader(status)
		w.Write([]byte(body))
	}))
	t.Cleanup(role.Close)
	secure := httptest.NewUnstartedServer(role.Config.Handler)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of the refused certificate
	secure.StartTLS()
	t.Cleanup(secure.Close)
	address := role.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	closed := closedAddress(t)

	t.Setenv("BELFRY_HTTP", closed)
	for _, c := range []struct {
		name   string
		env    map[string]string
		args   []string
		status int
		body   string
		code   int
		says   string
	}{
		{"a URL", nil, []string{"http://" + address}, 200, "ok\n", ExitDone, "ready\n"},
		{"a URL of /readyz", nil, []string{"http://" + address + "/readyz"}, 200, "ok\n", ExitDone, "ready\n"},
		{"an address", nil, []string{address}, 200, "ok\n", ExitDone, "ready\n"},
		{"another path", nil, []string{"http://" + address + "/jobs"}, 200, "ok\n", ExitFailed, "answers 302"},
		{"not a URL", nil, []string{"ftp://x"}, 200, "", ExitUsage, "is neither a URL"},
		{"the role's settings", map[string]string{"BELFRY_METRICS": address}, nil, 200, "ok\n", ExitDone, "ready\n"},
		{"every address", map[string]string{"BELFRY_METRICS": "0.0.0.0:" + port}, nil, 200, "ok\n", ExitDone, "ready\n"},
		{"no host", map[string]string{"BELFRY_METRICS": ":" + port}, nil, 200, "ok\n", ExitDone, "ready\n"},
		{"the console", map[string]string{"BELFRY_HTTP": address}, nil, 200, `{"status":"ready","checks":{"postgres":true,"nats":false,"jetstream":false}}`, ExitDone, "ready; unavailable: jetstream, nats\n"},
		{"the console, and metrics of another role", map[string]string{"BELFRY_HTTP": address, "BELFRY_METRICS": closed}, nil, 200, "ok\n", ExitDone, "ready\n"},
		{"TLS of this machine", map[string]string{"BELFRY_HTTP": secure.Listener.Addr().String(), "BELFRY_TLS_CERT": "cert.pem"}, nil, 200, "ok\n", ExitDone, "ready\n"},
		{"TLS of another machine", nil, []string{secure.URL}, 200, "ok\n", ExitFailed, "certificate"},
		{"a flag", nil, []string{"--metrics", address}, 200, "ok\n", ExitDone, "ready\n"},
		{"a free port", map[string]string{"BELFRY_METRICS": "127.0.0.1:0"}, nil, 200, "ok\n", ExitUsage, "pass the URL"},
		{"a role that is not ready", nil, []string{address}, 503, "unavailable: postgres, nats\n", ExitFailed, "not ready: unavailable: postgres, nats"},
		{"a console that is not ready", nil, []string{address}, 503, `{"title":"Service Unavailable","status":503,"detail":"unavailable: postgres"}`, ExitFailed, "not ready: unavailable: postgres"},
		{"control characters", nil, []string{address}, 503, "a\x1bb", ExitFailed, "not ready: a\uFFFDb"},
		{"another server", nil, []string{address}, 404, "", ExitFailed, "is it the address of a role of Belfry?"},
		{"nothing listens", nil, nil, 200, "", ExitFailed, "nothing listens at http://" + closed + "/readyz; pass the URL"},
		{"nothing listens at a URL", nil, []string{closed}, 200, "", ExitFailed, "refused"},
		{"a wrong timeout", nil, []string{address, "--timeout", "0s"}, 200, "", ExitUsage, "--timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			status, body = c.status, c.body
			r := belfry(t, "", append([]string{"health"}, c.args...)...)
			r.want(t, c.code)
			if said := r.stdout + r.stderr; !strings.Contains(said, c.says) {
				t.Errorf("it prints %q, want %q", said, c.says)
			}
		})
	}
}

// A role that accepts the connection and does not answer is not ready. The command ends by its own timeout.
func TestHealthTimeout(t *testing.T) {
	isolate(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	r := belfry(t, "", "health", ln.Addr().String(), "--timeout", "50ms")
	r.want(t, ExitFailed)
	if !strings.Contains(r.stderr, "did not answer within 50ms") {
		t.Errorf("it prints %s", r.stderr)
	}
}

// closedAddress returns an address at which nothing listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
