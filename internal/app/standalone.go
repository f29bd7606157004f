package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/embednats"
	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/group"
)

// Standalone runs all roles in one process, with the built-in Postgres and NATS unless the settings name external ones.
func (a *App) Standalone(ctx context.Context, c config.Standalone) error {
	return a.start(ctx, "standalone", c.Profiling, c.Log, func() error { return a.runStandalone(ctx, c) })
}

func (a *App) runStandalone(ctx context.Context, c config.Standalone) error {
	p := a.process(c.Log)
	s := &standalone{process: p, c: c}
	if err := s.build(ctx); err != nil {
		return errors.Join(err, s.undo())
	}
	return p.run(ctx)
}

// standalone builds the process. undo stops the components that build has started if the group never runs.
type standalone struct {
	*process
	c       config.Standalone
	started []func(context.Context) error

	gateway net.Listener      // nil without --gateway
	nats    *embednats.Server // nil with --nats-url
	store   *store.Store
	groups  *group.Store
}

func (s *standalone) undo() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	for i := len(s.started) - 1; i >= 0; i-- {
		errs = append(errs, s.started[i](ctx))
	}
	return errors.Join(errs...)
}

// own adds a component that has started already. The group stops it in order, or undo does if the group never runs.
func (s *standalone) own(name string, stop func(context.Context) error) {
	s.started = append(s.started, stop)
	s.hold(name, stop)
}

func (s *standalone) build(ctx context.Context) error {
	if err := checkAdminPassword(s.c.AdminPassword); err != nil {
		return err
	}
	if s.c.DatabaseURL == "" || s.c.NATSURL == "" {
		if err := os.MkdirAll(s.c.DataDir, 0o700); err != nil {
			return fmt.Errorf("create --data-dir: %w", err)
		}
		if err := checkOwner(s.c.DataDir); err != nil {
			return err
		}
	}
	ln, err := listen(s.c.Web, s.log)
	if err != nil {
		return err
	}
	s.started = append(s.started, func(context.Context) error { ln.Close(); return nil })
	if s.c.Gateway != "" {
		if s.gateway, err = listenGateway("--gateway", s.c.Gateway); err != nil {
			return err
		}
		s.started = append(s.started, func(context.Context) error { s.gateway.Close(); return nil })
	}
	url, err := s.postgres(ctx)
	if err != nil {
		return err
	}
	if err := s.migrate(ctx, url); err != nil {
		return err
	}
	if s.store, err = store.Open(ctx, s.app.storeConfig(url, s.c.Pool, s.c.Timing, "standalone")); err != nil {
		return err
	}
	s.own("postgres connections", func(context.Context) error { s.store.Close(); return nil })
	s.addClock(s.store, true)
	s.groups = group.New(s.store.Pool())
	if _, err := s.groups.EnsureGroup(ctx, "default", "The default group."); err != nil {
		return err
	}
	return s.roles(ctx, ln)
}

// postgres starts the built-in Postgres, unless the settings name an external one, and returns the URL.
func (s *standalone) postgres(ctx context.Context) (string, error) {
	if s.c.DatabaseURL != "" {
		return s.c.DatabaseURL.Reveal(), nil
	}
	cfg := embedpg.Config{DataDir: s.c.DataDir, Log: s.log}
	pg, err := embedpg.Start(ctx, cfg)
	if err != nil {
		return "", err
	}
	url := pg.URL()
	stop := func(ctx context.Context) error { return pg.Stop(ctx) }
	s.started = append(s.started, stop)
	s.add("postgres", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
				defer cancel()
				return pg.Stop(ctx)
			case <-pg.Done():
			}
			// Postgres was killed or crashed. Its data is durable, and the other components retry their transactions.
			s.log.ErrorContext(ctx, "Postgres ended unexpectedly, restarting it", "err", pg.Err())
			if err := pg.Stop(ctx); err != nil {
				s.log.WarnContext(ctx, "cannot clean up after Postgres, starting it anyway", "err", err)
			}
			again, err := embedpg.Start(ctx, cfg)
			if err != nil {
				return fmt.Errorf("restart Postgres: %w", err)
			}
			if pg = again; pg.URL() != url {
				return errors.New("the restarted Postgres has another address")
			}
		}
	})
	return url, nil
}

// roles starts NATS and adds all roles. Roles that hand out work come last, so that they stop first.
func (s *standalone) roles(ctx context.Context, ln net.Listener) error {
	url, options, issuer, accountName, err := s.natsServer(ctx)
	if err != nil {
		return err
	}
	nc, err := s.connect("standalone", url, options...)
	if err != nil {
		return err
	}
	s.own("NATS connection", func(context.Context) error { nc.Close(); return nil })
	servers, err := s.addServers(s.store, nc)
	if err != nil {
		return err
	}
	if err := s.addStreams(nc, servers, s.c.NATSReplicas, s.nats != nil); err != nil {
		return err
	}
	var d *dispatcher.Firing // set below, before anybody logs in
	if issuer != nil {
		system, err := s.systemConnection()
		if err != nil {
			return err
		}
		if err := s.addAuth(nc, s.store, logins{issuer: issuer, account: accountName, system: system, wait: s.nats != nil,
			alive: func(group, instance string) bool { return d.Alive(group, instance) }}); err != nil {
			return err
		}
	}
	if err := s.addTracing(ctx, "standalone", s.store); err != nil {
		return err
	}
	if d, err = s.addDispatcher(s.store, nc, s.c.LostAfter); err != nil {
		return err
	}
	tell := s.c.Alerts
	if tell.ConsoleURL == "" { // standalone is one machine, so its own address works
		tell.ConsoleURL = urlOf(ln)
	}
	if err := s.addSettling(d, s.store, nc, s.c.Keeping, tell); err != nil {
		return err
	}
	if s.c.Demo {
		if err := s.addDemo(ctx, url); err != nil {
			return err
		}
	}
	if s.gateway != nil {
		g := gatewayParts{listener: s.gateway, spoolDir: filepath.Join(s.c.DataDir, "gateway"), key: s.c.SecretKey, letter: d.DeadLetter, own: s.ownAddresses(s.gateway, ln)}
		if err := addGateway(s.process, s.store, nc, g); err != nil {
			return err
		}
	}
	servers.planningFails = s.store.PlanningFails
	s.addScheduler(s.store, d)
	accounts := account.New(s.store.Pool())
	web := s.c.Web
	web.ExecutorURL = cmp.Or(web.ExecutorURL, s.c.NATSURL.String())
	if s.nats != nil {
		web.ExecutorURL = cmp.Or(web.ExecutorURL, s.nats.URL())
	}
	address, err := s.addConsole(ln, s.store, nc, servers, false, d, accounts, s.announceTokens(nc), tell, s.c.OIDC, web)
	if err != nil {
		return err
	}
	// This is the last step, so that the password, which is shown once, is printed only if the start succeeds.
	file, err := passwordFile(s.c.DataDir)
	if err != nil {
		return err
	}
	if err := s.ensureAdmin(ctx, accounts.Users, s.c.AdminPassword, file); err != nil {
		return err
	}
	reached := url
	if s.nats != nil {
		reached = s.nats.URL()
	}
	s.add("announcement", func(ctx context.Context) error {
		fmt.Fprintf(s.app.Stdout, "console: %s\nnats: %s\n", address, reached)
		s.log.InfoContext(ctx, "ready")
		<-ctx.Done()
		return nil
	})
	return nil
}

// ownAddresses returns the addresses on which this process and its servers listen.
func (s *standalone) ownAddresses(listeners ...net.Listener) func() []netip.AddrPort {
	own := ownAddresses(listeners...)()
	if s.nats != nil {
		if u, err := url.Parse(s.nats.URL()); err == nil {
			if a, err := netip.ParseAddrPort(u.Host); err == nil {
				own = append(own, a)
			}
		}
	}
	return func() []netip.AddrPort { return own }
}

// systemConnection connects to the system account of NATS, or returns nil if the settings of an external one name no user of it.
func (s *standalone) systemConnection() (*nats.Conn, error) {
	if s.nats == nil {
		return s.connectSystem("standalone", s.c.NATS)
	}
	nc, err := s.connect("standalone (system account)", s.nats.InProcessURL(), s.nats.MonitorOptions()...)
	if err != nil {
		return nil, err
	}
	s.own("NATS system connection", func(context.Context) error { nc.Close(); return nil })
	return nc, nil
}

// natsServer starts the built-in NATS, unless the settings name an external one.
func (s *standalone) natsServer(ctx context.Context) (url string, options []nats.Option, issuer nkeys.KeyPair, accountName string, err error) {
	if s.c.NATSURL != "" {
		if options, err = s.natsOptions(s.c.NATS); err != nil {
			return "", nil, nil, "", err
		}
		issuer, err = readIssuer(s.c.NATS)
		return s.c.NATSURL.Reveal(), options, issuer, s.c.NATSAccount, err
	}
	host, portText, err := net.SplitHostPort(s.c.NATSListen)
	if err != nil {
		return "", nil, nil, "", domain.WrapError(domain.Invalid, "--nats is not host:port", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return "", nil, nil, "", domain.WrapError(domain.Invalid, "--nats has no numeric port", err)
	}
	cert, secure, err := serverTLS("--nats-tls-cert", s.c.NATSTLSCert, s.c.NATSTLSKey, s.log)
	if err != nil {
		return "", nil, nil, "", err
	}
	cert.meter(s.registry, "nats")
	s.nats, err = embednats.Start(ctx, embednats.Config{
		StoreDir: filepath.Join(s.c.DataDir, "nats"), Host: host, Port: port, Log: s.log, TLS: secure,
	})
	if err != nil {
		return "", nil, nil, "", err
	}
	s.own("nats", s.nats.Stop)
	return s.nats.InProcessURL(), s.nats.SystemOptions(), s.nats.Issuer(), s.nats.Account(), nil
}
