package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/handlers"
	"github.com/belfryhq/belfry/executor/runas"
	"github.com/belfryhq/belfry/executor/scripts"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/group"
)

// role is the common part of scheduler, dispatcher and console: a store, a NATS connection and the streams.
type role struct {
	*process
	store   *store.Store
	nc      *nats.Conn
	servers *servers
}

// role creates the common part of a role. While it waits for Postgres, it serves HTTP on ln (see meanwhile); ln may be nil.
func (a *App) role(ctx context.Context, ln net.Listener, name string, db config.Database, pool config.Pool, n config.NATS, t config.Timing, l config.Log) (*role, error) {
	p := a.process(l)
	options, err := p.natsOptions(n)
	if err != nil {
		return nil, err
	}
	if ln != nil {
		defer meanwhile(ln, a.Build, name != "console")()
	}
	s, err := p.openStore(ctx, a.storeConfig(db.DatabaseURL.Reveal(), pool, t, name))
	if err != nil {
		return nil, err
	}
	p.hold("postgres connections", func(context.Context) error { s.Close(); return nil })
	p.addClock(s, name == "scheduler")
	nc, err := p.connect(name, n.NATSURL.Reveal(), options...)
	if err != nil {
		s.Close()
		return nil, err
	}
	p.hold("NATS connection", func(context.Context) error { nc.Close(); return nil })
	v, err := p.addServers(s, nc)
	if err != nil {
		return nil, err
	}
	if err := p.addTracing(ctx, name, s); err != nil {
		return nil, err
	}
	return &role{process: p, store: s, nc: nc, servers: v}, p.addStreams(nc, v, n.NATSReplicas, false)
}

// run runs the components and logs when the role is ready.
func (r *role) run(ctx context.Context, what string) error {
	r.add("announcement", func(ctx context.Context) error {
		r.log.InfoContext(ctx, "ready", "role", what)
		<-ctx.Done()
		return nil
	})
	return r.process.run(ctx)
}

// interrupted returns nil instead of err if err is the end of ctx: the role was stopped while it waited for its servers.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// Scheduler runs the scheduler role.
func (a *App) Scheduler(ctx context.Context, c config.Scheduler) error {
	return a.start(ctx, "scheduler", c.Profiling, c.Log, func() error { return a.runScheduler(ctx, c) })
}

func (a *App) runScheduler(ctx context.Context, c config.Scheduler) error {
	ln, err := listenMetrics(c.Metrics)
	if err != nil {
		return err
	}
	r, err := a.role(ctx, ln, "scheduler", c.Database, c.Pool, c.NATS, c.Timing, c.Log)
	if err != nil {
		return interrupted(ctx, err)
	}
	d, err := r.addDispatcher(r.store, r.nc, 0)
	if err != nil {
		return err
	}
	r.servers.planningFails = r.store.PlanningFails
	r.addScheduler(r.store, d)
	r.addMetrics(ln)
	return r.run(ctx, "scheduler")
}

// Dispatcher runs the dispatcher role.
func (a *App) Dispatcher(ctx context.Context, c config.Dispatcher) error {
	return a.start(ctx, "dispatcher", c.Profiling, c.Log, func() error { return a.runDispatcher(ctx, c) })
}

func (a *App) runDispatcher(ctx context.Context, c config.Dispatcher) error {
	issuer, err := readIssuer(c.NATS)
	if err != nil {
		return err
	}
	ln, err := listenMetrics(c.Metrics)
	if err != nil {
		return err
	}
	r, err := a.role(ctx, ln, "dispatcher", c.Database, c.Pool, c.NATS, c.Timing, c.Log)
	if err != nil {
		return interrupted(ctx, err)
	}
	var d *dispatcher.Firing // set below, before anybody logs in
	if err := r.addIssuer("dispatcher", issuer, c.NATS, func(group, instance string) bool { return d.Alive(group, instance) }); err != nil {
		return err
	}
	if d, err = r.addDispatcher(r.store, r.nc, c.LostAfter); err != nil {
		return err
	}
	if err := r.addSettling(d, r.store, r.nc, c.Keeping, c.Alerts); err != nil {
		return err
	}
	r.addMetrics(ln)
	return r.run(ctx, "dispatcher")
}

// addIssuer adds the authentication of executors by their group's token if the settings name a seed to sign with.
func (r *role) addIssuer(name string, issuer nkeys.KeyPair, c config.NATS, alive func(group, instance string) bool) error {
	if issuer == nil {
		return nil
	}
	system, err := r.connectSystem(name, c)
	if err != nil {
		return err
	}
	return r.addAuth(r.nc, r.store, logins{issuer: issuer, account: c.NATSAccount, system: system, alive: alive})
}

// Console runs the console role.
func (a *App) Console(ctx context.Context, c config.Console) error {
	return a.start(ctx, "console", c.Profiling, c.Log, func() error { return a.runConsole(ctx, c) })
}

func (a *App) runConsole(ctx context.Context, c config.Console) error {
	if err := checkAdminPassword(c.AdminPassword); err != nil {
		return err
	}
	issuer, err := readIssuer(c.NATS)
	if err != nil {
		return err
	}
	ln, err := listen(c.Web, newLog(a.Stderr, c.Log))
	if err != nil {
		return err
	}
	defer ln.Close() // has no effect if the console ran, because it closes ln
	r, err := a.role(ctx, ln, "console", c.Database, c.Pool, c.NATS, c.Timing, c.Log)
	if err != nil {
		return interrupted(ctx, err)
	}
	accounts := account.New(r.store.Pool())
	if err := r.ensureAccounts(ctx, ln, accounts.Users, c.AdminPassword); err != nil {
		return interrupted(ctx, err)
	}
	var d *dispatcher.Firing // set below, before anybody logs in
	if err := r.addIssuer("console", issuer, c.NATS, func(group, instance string) bool { return d.Alive(group, instance) }); err != nil {
		return err
	}
	if d, err = r.addDispatcher(r.store, r.nc, 0); err != nil {
		return err
	}
	c.Web.ExecutorURL = cmp.Or(c.Web.ExecutorURL, c.NATSURL.String())
	address, err := r.addConsole(ln, r.store, r.nc, r.servers, true, d, accounts, r.announceTokens(r.nc), c.Alerts, c.OIDC, c.Web)
	if err != nil {
		return err
	}
	r.add("address", func(ctx context.Context) error {
		fmt.Fprintf(a.Stdout, "console: %s\n", address)
		<-ctx.Done()
		return nil
	})
	return r.run(ctx, "console")
}

// ensureAccounts creates the first user and the first group if there are none. While it waits for Postgres, it serves HTTP on ln
// (see meanwhile).
func (r *role) ensureAccounts(ctx context.Context, ln net.Listener, users *account.Users, password config.Secret) error {
	defer meanwhile(ln, r.app.Build, false)()
	return r.patiently(ctx, func() error {
		if err := r.ensureAdmin(ctx, users, password, ""); err != nil {
			return err
		}
		_, err := group.New(r.store.Pool()).EnsureGroup(ctx, "default", "The default group.")
		return err
	})
}

// listenMetrics opens the metrics address of a role without a console. It returns nil if the settings name none.
func listenMetrics(c config.Metrics) (net.Listener, error) {
	if c.Metrics == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", c.Metrics)
	if err != nil {
		return nil, fmt.Errorf("listen on --metrics %s: %w", c.Metrics, err)
	}
	return ln, nil
}

// addMetrics serves metrics and health checks on ln for a role without a console. It does nothing if ln is nil.
func (r *role) addMetrics(ln net.Listener) {
	if ln == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
	mux.Handle("/healthz", system.Alive(r.app.Build))
	mux.HandleFunc("/readyz", r.servers.readyz)
	r.add("metrics", func(ctx context.Context) error { return serve(ctx, ln, mux) })
	fmt.Fprintf(r.app.Stdout, "metrics: %s\n", urlOf(ln))
}

// serve serves HTTP until ctx ends and the requests in progress are finished.
func serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	return serveWith(ctx, ln, s)
}

// serveWith serves HTTP with a server until ctx ends and the requests in progress are finished.
func serveWith(ctx context.Context, ln net.Listener, s *http.Server) error {
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	})
	defer stop()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Executor runs the stock executor.
func (a *App) Executor(ctx context.Context, c config.Executor) error {
	return a.start(ctx, "executor", c.Profiling, c.Log, func() error { return a.runExecutor(ctx, c) })
}

func (a *App) runExecutor(ctx context.Context, c config.Executor) error {
	p := a.process(c.Log)
	options, err := p.natsTLS(c.NATSTLS)
	if err != nil {
		return err
	}
	around, err := p.traceHandlers(ctx, "executor")
	if err != nil {
		return err
	}
	e, err := executor.New(executor.Config{
		NATSOptions: options, Around: around,
		NATSURL: c.NATSURL.Reveal(), Token: c.Token.Reveal(), Group: c.Group, Instance: c.Instance, Capacity: c.Capacity,
		Labels: c.Labels, SpoolDir: c.SpoolDir, DrainTimeout: orNone(c.DrainTimeout), SettleTimeout: orNone(c.SettleTimeout), Logger: p.log, Version: a.Build.Version, Clock: a.Clock,
	})
	if err != nil {
		return domain.WrapError(domain.Invalid, "the executor's settings are not valid", err)
	}
	if err := addHandlers(e, c); err != nil {
		return err
	}
	if c.AllowCommand || len(c.AllowScript) > 0 {
		if c.RunAs == "" {
			p.warnOfRoot(ctx)
		}
		if err := hide(); err != nil {
			p.log.WarnContext(ctx, "cannot protect this process's memory, commands and scripts may be able to read its settings", "err", err)
		}
	}
	ln, err := listenMetrics(c.Metrics)
	if err != nil {
		return err
	}
	if ln != nil {
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
		mux.Handle("/healthz", system.Alive(a.Build))
		mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			if trouble := unready(e.Status()); trouble != "" {
				http.Error(w, trouble, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
		addExecutorMetrics(p.registry, e)
		p.add("metrics", func(ctx context.Context) error { return serve(ctx, ln, mux) })
		fmt.Fprintf(a.Stdout, "metrics: %s\n", urlOf(ln))
	}
	p.group.Add(lifecycle.Component{Name: "executor", Run: e.Run, StopTimeout: c.DrainTimeout + c.SettleTimeout + 30*time.Second})
	return p.run(ctx)
}

// unready says why an executor takes no runs. It is empty if the executor takes runs.
func unready(s executor.Status) string {
	switch {
	case !s.Leased:
		return "unavailable: lease; " + cmp.Or(s.Unleased, "the executor has not started")
	case s.Draining:
		return "draining"
	case s.Unfit != "":
		return s.Unfit + ": " + s.UnfitMessage
	}
	return ""
}

// orNone returns the duration for the SDK, in which 0 means the default and a negative value means none.
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// addHandlers registers the stock handlers, and the scripts that the settings allow.
func addHandlers(e *executor.Executor, c config.Executor) error {
	o := handlers.Options{AllowCommand: c.AllowCommand, HTTP: httpOptions(c)}
	if c.RunAs != "" {
		var err error
		if o.RunAs, err = runas.Lookup(c.RunAs); err != nil {
			return &domain.Error{Code: domain.Invalid, Message: "--run-as", Err: err}
		}
	}
	handlers.Register(e, o)
	return allowScripts(e, c.AllowScript, o.RunAs)
}

// httpOptions returns the addresses that the handler http may reach.
func httpOptions(c config.Executor) handlers.HTTPOptions {
	o := handlers.HTTPOptions{DenyPrivate: c.HTTPDenyPrivate, Allow: c.AllowedNetworks()}
	if c.HTTPUseProxy {
		o.Proxy = http.ProxyFromEnvironment
	}
	return o
}

// warnOfRoot logs a warning if this process, and so its commands and scripts, run as root.
func (p *process) warnOfRoot(ctx context.Context) {
	if os.Geteuid() == 0 {
		p.log.WarnContext(ctx, "commands and scripts run as root and can read all secrets of this machine, also the group's token: "+
			"run belfry executor under another account, or set --run-as")
	}
}

// allowScripts enables scripts in the given languages on an executor. It returns an error if an interpreter is missing.
func allowScripts(e *executor.Executor, languages []string, as *runas.Account) error {
	if len(languages) == 0 {
		return nil
	}
	r, err := scripts.New(scripts.Options{Languages: languages, RunAs: as})
	if err != nil {
		return &domain.Error{Code: domain.Invalid, Message: "--allow-script", Err: err}
	}
	e.RegisterScripts(r, r.Languages()...)
	return nil
}

func addExecutorMetrics(registry *prometheus.Registry, e *executor.Executor) {
	for _, g := range []struct {
		name, help string
		value      func(executor.Status) int
	}{
		{"belfry_executor_slots", "Number of runs that this instance can execute at the same time.", func(s executor.Status) int { return s.Capacity }},
		{"belfry_executor_running", "Number of slots in use.", func(s executor.Status) int { return s.Running }},
		{"belfry_executor_unsettled", "Number of results in the spool.", func(s executor.Status) int { return s.Unsettled }},
		{"belfry_executor_unfit", "1 while this instance takes no runs because it is out of files, or cannot write its spool; otherwise 0.", unfit},
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help},
			func() float64 { return float64(g.value(e.Status())) }))
	}
}

func unfit(s executor.Status) int {
	if s.Unfit != "" {
		return 1
	}
	return 0
}
