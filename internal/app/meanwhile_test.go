package app

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

// free returns an unused address.
func free(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func ask(address, path string) (int, string) {
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// A role that starts while Postgres is unavailable answers health checks instead of hanging.
func TestAnswersWithoutPostgres(t *testing.T) {
	nowhere := config.Database{DatabaseURL: config.URL("postgres://" + free(t) + "/belfry")}
	for name, role := range map[string]func(context.Context, *App, string) error{
		"scheduler": func(ctx context.Context, a *App, address string) error {
			c := config.DefaultScheduler()
			c.Database, c.NATSURL, c.Metrics.Metrics = nowhere, "nats://127.0.0.1:1", address
			return a.Scheduler(ctx, c)
		},
		"dispatcher": func(ctx context.Context, a *App, address string) error {
			c := config.DefaultDispatcher()
			c.Database, c.NATSURL, c.Metrics.Metrics = nowhere, "nats://127.0.0.1:1", address
			return a.Dispatcher(ctx, c)
		},
		"console": func(ctx context.Context, a *App, address string) error {
			c := config.DefaultConsole()
			c.Database, c.NATSURL, c.HTTP = nowhere, "nats://127.0.0.1:1", address
			return a.Console(ctx, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			address := free(t)
			ended := make(chan error, 1)
			var log bytes.Buffer
			a := &App{Stdout: io.Discard, Stderr: &log, Build: build.Info{Version: "v7", Commit: "c0ffee"}}
			go func() { ended <- role(ctx, a, address) }()
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			deadline := time.After(patience)
			for status := 0; status != http.StatusOK; status, _ = ask(address, "/healthz") {
				select {
				case err := <-ended:
					t.Fatal(err)
				case <-deadline:
					t.Fatal("/healthz does not answer")
				case <-tick.C:
				}
			}
			if _, text := ask(address, "/healthz"); strings.TrimSpace(text) != `{"status":"ok","version":"v7","commit":"c0ffee"}` {
				t.Errorf("/healthz: %s", text)
			}
			for _, path := range []string{"/readyz", "/api/v1/jobs"} {
				if status, text := ask(address, path); status != http.StatusServiceUnavailable || !strings.Contains(text, "postgres") {
					t.Errorf("%s: %d %s", path, status, text)
				}
			}
			if status, text := ask(address, "/api/v1/attention"); name == "console" && (status != http.StatusOK || !strings.Contains(text, `"id":"server_unavailable:postgres"`)) {
				t.Errorf("/api/v1/attention: %d %s", status, text)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			first, _, _ := strings.Cut(log.String(), "\n")
			if !strings.Contains(first, `"msg":"starting","role":"`+name+`","version":"v7","commit":"c0ffee"`) {
				t.Errorf("the log begins with %s", first)
			}
		})
	}
}

// An executor without a lease is not ready, and its answer says why.
func TestExecutorWithoutNATS(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := free(t)
	c := config.DefaultExecutor()
	c.NATSURL, c.Metrics.Metrics, c.Group, c.SpoolDir = "nats://127.0.0.1:1", address, "g", t.TempDir()
	ended := make(chan error, 1)
	a := &App{Stdout: io.Discard, Stderr: io.Discard, Build: build.Info{Version: "v7", Commit: "c0ffee", Go: "go1.26", Schema: 41, Wire: 1}}
	go func() { ended <- a.Executor(ctx, c) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for status := 0; status != http.StatusOK; status, _ = ask(address, "/healthz") {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-tick.C:
		}
	}
	deadline := time.After(patience)
	for why := ""; !strings.Contains(why, "unavailable: lease; nats: not connected"); {
		var status int
		if status, why = ask(address, "/readyz"); status != http.StatusServiceUnavailable {
			t.Fatalf("/readyz: %d %s", status, why)
		}
		select {
		case <-deadline:
			t.Fatalf("/readyz says %s", why)
		case <-tick.C:
		}
	}
	if _, text := ask(address, "/metrics"); !strings.Contains(text, "belfry_executor_slots 256") ||
		!strings.Contains(text, `belfry_build_info{commit="c0ffee",go="go1.26",schema="41",version="v7",wire="1"} 1`) {
		t.Errorf("/metrics: %s", text)
	}
	if _, text := ask(address, "/healthz"); strings.TrimSpace(text) != `{"status":"ok","version":"v7","commit":"c0ffee"}` {
		t.Errorf("/healthz: %s", text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// An unreadable seed is reported as a fault of the settings, before the role waits for its servers.
func TestUnreadableSeed(t *testing.T) {
	nowhere := config.Database{DatabaseURL: config.URL("postgres://" + free(t) + "/belfry")}
	dispatcher, console := config.DefaultDispatcher(), config.DefaultConsole()
	dispatcher.Database, console.Database, console.HTTP = nowhere, nowhere, "127.0.0.1:0"
	dispatcher.NATSIssuerSeed, console.NATSIssuerSeed = "no-such-file", "no-such-file"
	a := &App{Stdout: io.Discard, Stderr: io.Discard}
	for _, err := range []error{a.Dispatcher(t.Context(), dispatcher), a.Console(t.Context(), console)} {
		if domain.CodeOf(err) != domain.Invalid || !strings.Contains(err.Error(), "--nats-issuer-seed") {
			t.Errorf("got %v", err)
		}
	}
}

// After meanwhile ends, the next server can use the listener.
func TestMeanwhileHandsOver(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := meanwhile(ln, build.Info{}, true)
	address := ln.Addr().String()
	if status, text := ask(address, "/metrics"); status != http.StatusOK || !strings.Contains(text, `belfry_server_up{server="postgres"} 0`) {
		t.Errorf("metrics: %d %s", status, text)
	}
	if status, _ := ask(address, "/"); status != http.StatusServiceUnavailable {
		t.Errorf("before: %d", status)
	}
	end()
	s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(ln) }()
	defer s.Close()
	if status, text := ask(address, "/"); status != http.StatusNotFound {
		t.Errorf("after: %d %s", status, text)
	}
}
