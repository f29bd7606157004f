package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/view"
)

// App runs the commands that start a role. It implements cli.Roles.
type App struct {
	Stdout  io.Writer // what a person or a script waits for, such as "console: http://…"
	Stderr  io.Writer // the log
	Version string
	Trace   func(point string) // see dispatcher.Config; nil but in tests
	// Clock is the wall clock by which the engine and executors decide what is due, late, stale or over; nil but in tests,
	// which set it forward and back. It does not cover what is only logged or only measures elapsed time, nor log-ins.
	Clock func() time.Time
}

// process is what the parts of one process share.
type process struct {
	app      *App
	log      *slog.Logger
	registry *prometheus.Registry
	group    lifecycle.Group
	events   *meteredEvents // of dispatchers and consoles
}

// gcPercent is how much a server's heap may grow before garbage is collected: at a few tens of MB that live, collecting at
// twice that cost a quarter of what a run did. GOGC in the environment overrides it.
const gcPercent = 300

func (a *App) process(c config.Log) *process {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	p := &process{app: a, log: newLog(a.Stderr, c), registry: prometheus.NewRegistry()}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p
}

func newLog(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // config.Validate refuses others
	}
	text := c.Format == "text"
	color := false
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		color = true
		text = text || c.Format == "auto"
	}
	if text {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !color}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// run runs the parts until ctx ends and all have stopped.
func (p *process) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		p.log.Info("stopping: what runs may end; a second signal ends all at once")
	})()
	return p.group.Run(ctx)
}

// add appends a part that runs until its context ends.
func (p *process) add(name string, run func(context.Context) error) {
	p.group.Add(lifecycle.Component{Name: name, Run: run})
}

// hold appends a part that was started already, to be closed in its turn.
func (p *process) hold(name string, stop func(context.Context) error) {
	p.add(name, func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return stop(ctx)
	})
}

// poolSize is how many Postgres connections one process takes: its parts do one thing at a time each, and the API
// and River's workers share the rest.
const poolSize = 24

// appName is what the console's system page knows this process by.
func (a *App) appName(role string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return view.AppName(role, a.Version, host, os.Getpid())
}

func (a *App) storeConfig(url string, t config.Timing, role string) store.Config {
	set := plan.DefaultSettings()
	set.Tolerance, set.FireAllMax = t.MisfireTolerance, t.MisfireFireAllMax
	rules := store.AlertRules{Every: t.AlertEvery, LateAfter: t.AlertLateAfter}
	return store.Config{URL: url, MaxConns: poolSize, Plan: set, Alerts: rules, Zone: t.Location(), AppName: a.appName(role), Clock: a.Clock}
}

// addClock appends the part that knows the database's clock.
func (p *process) addClock(s *store.Store) {
	p.add("database clock", func(ctx context.Context) error {
		s.KeepClock(ctx, func(err error) { p.log.WarnContext(ctx, "reading the database's clock; trying again", "err", err) })
		return nil
	})
}

// openStore connects to a database that somebody else migrates. It waits for the database and for the migrations.
func (p *process) openStore(ctx context.Context, c store.Config) (s *store.Store, err error) {
	err = p.patiently(ctx, func() error {
		if err := migrated(ctx, c.URL); err != nil {
			return err
		}
		s, err = store.Open(ctx, c)
		return err
	})
	return s, err
}

// patiently does first things with the database, again and again while it is not available, saying so: the processes of
// a fleet start in any order, and the database may go beneath one that starts.
func (p *process) patiently(ctx context.Context, do func() error) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := do()
		if code := domain.CodeOf(err); err == nil || (code != domain.Unavailable && code != domain.Conflict) {
			return err
		}
		p.log.WarnContext(ctx, "the database is not ready; waiting", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// migrated returns a Conflict while the database lacks migrations of this binary.
func migrated(ctx context.Context, url string) error {
	steps, err := store.MigrationStatus(ctx, url)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.AppliedAt.IsZero() {
			return domain.NewError(domain.Conflict, "the database lacks migration "+s.Name+"; run: belfry migrate up")
		}
	}
	return nil
}

// systemOptions are the NATS options of the system side. Nothing is buffered for a time without a server: an offer
// is sent now or not at all.
func systemOptions(name string, log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name("belfry " + name), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(c *nats.Conn, err error) {
			if !c.IsClosed() { // our own end is no news
				log.Warn("NATS is away", "err", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) { log.Info("NATS is back", "server", c.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			log.Warn("NATS reports an error", "subject", subject, "err", err)
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

// watchServers shows whether the servers that everything hangs on can be reached, for alerts; /readyz says it to
// balancers. Postgres is asked when the metric is read.
func (p *process) watchServers(s *store.Store, nc *nats.Conn) {
	up := func(server string, check func() bool) {
		p.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "belfry_server_up", Help: "Whether this process reaches Postgres and NATS: 1 or 0.",
			ConstLabels: prometheus.Labels{"server": server},
		}, func() float64 {
			if check() {
				return 1
			}
			return 0
		}))
	}
	up("postgres", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return s.Check(ctx) == nil
	})
	up("nats", func() bool { return nc.Status() == nats.CONNECTED })
}

// natsOptions are the log-in of a process whose NATS is not its own, and how it knows the server.
func natsOptions(c config.NATS) ([]nats.Option, error) {
	options, err := natsTLS(c.NATSTLS)
	if err == nil && c.NATSCreds != "" {
		options = append(options, nats.UserCredentials(c.NATSCreds))
	}
	return options, err
}

// addStreams appends the part that makes the streams: at the start, and whenever NATS is back, as its storage may
// have been wiped meanwhile. With wait, what comes after it starts when they are there; a role whose NATS is
// somebody else's must not wait for it, as it has work to do meanwhile: planning, answering.
func (p *process) addStreams(nc *nats.Conn, replicas int, wait bool) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	made := make(chan struct{})
	ready := made
	if !wait {
		ready = nil
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
				p.log.WarnContext(ctx, "making the streams; trying again", "err", err)
				retry = time.Second
			} else if first {
				first = false
				close(made)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-back:
			case <-time.After(retry):
			}
		}
	}})
	return nil
}
