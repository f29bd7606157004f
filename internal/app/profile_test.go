package app

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/config"
)

// With --pprof, each role serves the profiler at that address from its start, also while it waits for its servers. No other
// address of the role serves it.
func TestProfiler(t *testing.T) {
	nowhere := config.Database{DatabaseURL: config.URL("postgres://" + free(t) + "/belfry")}
	for name, role := range map[string]func(ctx context.Context, a *App, pprof config.Profiling, public string) error{
		"scheduler": func(ctx context.Context, a *App, pprof config.Profiling, public string) error {
			c := config.DefaultScheduler()
			c.Database, c.NATSURL, c.Metrics.Metrics, c.Profiling = nowhere, "nats://127.0.0.1:1", public, pprof
			return a.Scheduler(ctx, c)
		},
		"dispatcher": func(ctx context.Context, a *App, pprof config.Profiling, public string) error {
			c := config.DefaultDispatcher()
			c.Database, c.NATSURL, c.Metrics.Metrics, c.Profiling = nowhere, "nats://127.0.0.1:1", public, pprof
			return a.Dispatcher(ctx, c)
		},
		"console": func(ctx context.Context, a *App, pprof config.Profiling, public string) error {
			c := config.DefaultConsole()
			c.Database, c.NATSURL, c.HTTP, c.Profiling = nowhere, "nats://127.0.0.1:1", public, pprof
			return a.Console(ctx, c)
		},
		"executor": func(ctx context.Context, a *App, pprof config.Profiling, public string) error {
			c := config.DefaultExecutor()
			c.NATSURL, c.Metrics.Metrics, c.Group, c.SpoolDir, c.Profiling = "nats://127.0.0.1:1", public, "g", t.TempDir(), pprof
			return a.Executor(ctx, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			private, public := free(t), free(t)
			ended := make(chan error, 1)
			go func() {
				ended <- role(ctx, &App{Stdout: io.Discard, Stderr: io.Discard}, config.Profiling{Pprof: private}, public)
			}()
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for status := 0; status == 0; status, _ = ask(public, "/healthz") {
				select {
				case err := <-ended:
					t.Fatal(err)
				case <-tick.C:
				}
			}
			if status, text := ask(private, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(text, "profiled") {
				t.Errorf("the profiler answers %d %.200s", status, text)
			}
			if status, text := ask(public, "/debug/pprof/"); status == http.StatusOK && strings.Contains(text, "goroutine") {
				t.Errorf("the public address serves the profiler: %.200s", text)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if status, _ := ask(private, "/debug/pprof/"); status != 0 {
				t.Error("the profiler outlives its role")
			}
		})
	}
}

func TestProfilerWarnsOfOthers(t *testing.T) {
	for address, warns := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		var log bytes.Buffer
		a := &App{Stdout: io.Discard, Stderr: &log}
		if err := a.profiled(t.Context(), config.Profiling{Pprof: address}, config.Log{Level: "info", Format: "json"}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "not on a loopback address"); got != warns {
			t.Errorf("%s: %s", address, log.String())
		}
	}
}
