package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/belfryhq/belfry/internal/build"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
	"github.com/belfryhq/belfry/internal/trace/spans"
)

// App runs the commands that start a role. It implements cli.Roles.
type App struct {
	// OwnsProcess says that the process runs this App and nothing else. Then messages that libraries write to package log go
	// to the log of the role.
	OwnsProcess bool
	Stdout      io.Writer          // lines for people and scripts, such as "console: http://…"
	Stderr      io.Writer          // the log
	Build       build.Info         // of this binary
	Trace       func(point string) // see dispatcher.Config; nil except in tests
	// Clock is the wall clock by which the engine and executors decide what is due, late, stale or over. It is nil except in
	// tests, which set it forward and back. It is not used for log records, elapsed times and log-ins.
	Clock func() time.Time
}

// process is the state that the components of one process share.
type process struct {
	app      *App
	log      *slog.Logger
	registry *prometheus.Registry
	group    lifecycle.Group
	events   *meteredEvents // of the dispatcher and the console
	spans    *spans.Spans   // nil if no traces are exported
}

// gcPercent is the GC percentage of a server. Its live heap is a few tens of MB. With Go's default of 100, collections took a
// quarter of the CPU time per run. GOGC in the environment overrides it.
const gcPercent = 300

func (a *App) process(c config.Log) *process {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	p := &process{app: a, log: slog.New(limitRepeats(newLog(a.Stderr, c).Handler())), registry: prometheus.NewRegistry()}
	if a.OwnsProcess {
		slog.SetDefault(p.log)
	}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(a.Build))
	return p
}

// buildInfo returns the metric that says which build a process runs.
func buildInfo(b build.Info) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "belfry_build_info", Help: "Always 1; the labels describe the build of this process.", ConstLabels: prometheus.Labels{
		"version": b.Version, "commit": b.Commit, "go": b.Go, "schema": strconv.FormatInt(b.Schema, 10), "wire": strconv.Itoa(b.Wire),
	}})
	g.Set(1)
	return g
}

func newLog(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // config.Validate refuses others
	}
	if logsJSON(w, c) {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !isTerminal(w)}))
}

func logsJSON(w io.Writer, c config.Log) bool {
	return c.Format == "json" || c.Format != "text" && !isTerminal(w)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// LoggedError is an error that a role has written to its log in JSON. The caller does not print it again.
type LoggedError struct{ err error }

func (e *LoggedError) Error() string { return e.err.Error() }

// Unwrap returns the error that was logged.
func (e *LoggedError) Unwrap() error { return e.err }

// Logged marks the error for package cli.
func (e *LoggedError) Logged() {}

// ended writes the error that ended a role to the log if the log is JSON, so that standard error has no other lines.
func (a *App) ended(c config.Log, err error) error {
	if err == nil || !logsJSON(a.Stderr, c) {
		return err
	}
	newLog(a.Stderr, c).Error("the role failed, the process ends", "err", err)
	return &LoggedError{err}
}

// run runs the components until ctx ends and all have stopped.
func (p *process) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		p.log.Info("stopping; runs in progress may finish; a second signal stops the process at once")
	})()
	if p.app.OwnsProcess {
		defer time.AfterFunc(startLasts, debug.FreeOSMemory).Stop()
	}
	return p.group.Run(ctx)
}

// startLasts is the time after which a process returns the memory of its start to the system: several times as much as it needs at rest.
const startLasts = 10 * time.Second

// add adds a component that runs until its context ends.
func (p *process) add(name string, run func(context.Context) error) {
	p.group.Add(lifecycle.Component{Name: name, Run: run})
}

// hold adds a component that has started already. The group calls stop when it stops the component.
func (p *process) hold(name string, stop func(context.Context) error) {
	p.add(name, func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return stop(ctx)
	})
}

// appName returns the name of this process on the console's system page.
func (a *App) appName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return view.AppName(role, a.Build.Version, host, os.Getpid())
}

// storeConfig returns the configuration of a role's store. Each component of a role uses about one connection of the pool; the API and
// River's workers share the rest.
func (a *App) storeConfig(url string, p config.Pool, t config.Timing, role string) store.Config {
	set := plan.DefaultSettings()
	set.Tolerance, set.FireAllMax = t.MisfireTolerance, t.MisfireFireAllMax
	rules := store.AlertRules{Every: t.AlertEvery, LateAfter: t.AlertLateAfter}
	return store.Config{URL: url, MaxConns: int32(p.DatabasePool), Plan: set, Alerts: rules, Zone: t.Location(), AppName: a.appName(role), Clock: a.Clock}
}

// patiently calls do until it succeeds, as long as the database is unavailable or not migrated, and logs each failure. The
// processes of a fleet start in any order, and Postgres may restart while one of them starts.
func (p *process) patiently(ctx context.Context, do func() error) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := do()
		if code := domain.CodeOf(err); err == nil || (code != domain.Unavailable && code != domain.Conflict) {
			return err
		}
		p.log.WarnContext(ctx, "the database is not ready, retrying", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// systemOptions returns the NATS options of the server roles. While disconnected, the client buffers nothing: an offer is sent now
// or not at all.
func systemOptions(name string, log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name("belfry " + name), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if !c.IsClosed() { // this process did not close it
				log.Warn("lost the connection to NATS, reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("reconnected to NATS", "server", c.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			log.Warn("NATS reports an error, the client continues", "subject", subject, "err", err)
		}),
	}
}

func (p *process) connect(name, url string, extra ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(url, append(systemOptions(name, p.log), extra...)...)
	if err != nil {
		return nil, domain.WrapError(domain.Unavailable, "connect to NATS", err)
	}
	return nc, nil
}

// natsOptions returns the NATS options for TLS and authentication with an external NATS server.
func (p *process) natsOptions(c config.NATS) ([]nats.Option, error) {
	options, err := p.natsTLS(c.NATSTLS)
	if err == nil && c.NATSCreds != "" {
		options = append(options, nats.UserCredentials(c.NATSCreds))
	}
	return options, err
}

// addStreams adds the component that creates the streams at the start and after each reconnect, because the storage of NATS may
// have been wiped, and the probe that then finds out whether JetStream accepts messages. With wait, later components start only after
// both. A role with an external NATS must not wait, because it can plan and serve requests without NATS.
func (p *process) addStreams(nc *nats.Conn, v *servers, replicas int, wait bool) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	made := make(chan struct{})
	ready, writes := made, v.jetStream.ready
	if !wait {
		ready, writes = nil, nil
	}
	p.group.Add(lifecycle.Component{Name: "streams", Ready: ready, Run: func(ctx context.Context) error {
		back := nc.StatusChanged(nats.CONNECTED)
		defer nc.RemoveStatusListener(back)
		first := true
		for {
			retry := time.Minute // a wiped storage does not always break the connection
			if err := natsinfra.Ensure(ctx, js, replicas); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				p.log.WarnContext(ctx, "cannot create the streams, retrying", "err", err)
				retry = time.Second
			} else if first {
				first = false
				close(made)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-back:
			case <-v.lost:
			case <-time.After(retry):
			}
		}
	}})
	p.group.Add(lifecycle.Component{Name: "JetStream probe", Ready: writes, Run: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-made:
			return v.jetStream.run(ctx)
		}
	}})
	return nil
}
