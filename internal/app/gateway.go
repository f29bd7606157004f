package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfryhq/belfry/dispatcher/intake"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	open "github.com/belfryhq/belfry/internal/gateway/directory"
	"github.com/belfryhq/belfry/internal/gateway/ends"
	"github.com/belfryhq/belfry/internal/gateway/inbound"
	"github.com/belfryhq/belfry/internal/gateway/outbound"
	"github.com/belfryhq/belfry/internal/gateway/spool"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/group"
)

// Gateway runs the gateway role.
func (a *App) Gateway(ctx context.Context, c config.Gateway) error {
	return a.start(ctx, "gateway", c.Profiling, c.Log, func() error { return a.runGateway(ctx, c) })
}

func (a *App) runGateway(ctx context.Context, c config.Gateway) error {
	ln, err := listenGateway("--http", c.HTTP)
	if err != nil {
		return err
	}
	defer ln.Close() // has no effect if the gateway ran, because it closes ln
	metrics, err := listenMetrics(c.Metrics)
	if err != nil {
		return err
	}
	dir := c.SpoolDir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return domain.WrapError(domain.Invalid, "no directory is known for callbacks, set --spool-dir", err)
		}
		dir = filepath.Join(cache, "belfry", "gateway")
	}
	r, err := a.role(ctx, metrics, "gateway", c.Database, c.Pool, c.NATS, c.Timing(), c.Log)
	if err != nil {
		return interrupted(ctx, err)
	}
	js, err := jetstream.New(r.nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	letters := intake.NewDeadLetters(js, r.store.Now, r.log, r.registry)
	g := gatewayParts{listener: ln, spoolDir: dir, key: c.SecretKey, letter: letters.DeadLetter, own: ownAddresses(ln, metrics)}
	if err := addGateway(r.process, r.store, r.nc, g); err != nil {
		return err
	}
	r.addMetrics(metrics)
	return r.run(ctx, "gateway")
}

// listenGateway opens the address for executors of XXL-JOB.
func listenGateway(flag, address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, domain.WrapError(domain.Conflict, "listen on "+flag+" "+address, err)
	}
	return ln, nil
}

// ownAddresses returns a function that lists the addresses of listeners. Executors must not make the gateway call them.
func ownAddresses(listeners ...net.Listener) func() []netip.AddrPort {
	var own []netip.AddrPort
	for _, ln := range listeners {
		if ln == nil {
			continue
		}
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			own = append(own, a.AddrPort())
		}
	}
	return func() []netip.AddrPort { return own }
}

// gatewayParts holds what differs between the gateway role and a gateway inside standalone.
type gatewayParts struct {
	listener net.Listener
	spoolDir string
	key      config.Secret // that encrypts the access tokens
	letter   func(ctx context.Context, kind, subject string, data []byte, reason error)
	own      func() []netip.AddrPort
}

// addGateway adds the components that serve executors of XXL-JOB.
func addGateway(p *process, s *store.Store, nc *nats.Conn, g gatewayParts) error {
	callbacks, err := spool.Open(g.spoolDir, p.log)
	if err != nil {
		return domain.WrapError(domain.Conflict, "open the spool of callbacks; give each gateway of a machine its own --spool-dir", err)
	}
	p.hold("spool of callbacks", func(context.Context) error { return callbacks.Close() })
	sends := gateway.New(s.Pool(), g.key.Reveal())
	groups := open.New(sends, p.log)
	fleet := outbound.New(outbound.Config{
		Addresses: sends, Sends: sends, Records: sends, WireIDs: group.New(s.Pool()), Groups: groups, Conn: nc, Owner: rand.Text(), Own: g.own, Log: p.log, Registry: p.registry,
	})
	letter := func(ctx context.Context, group string, data []byte, reason error) {
		g.letter(ctx, "callback", "xxl-job.callback."+group, data, reason)
	}
	keeper := ends.New(sends, callbacks, letter, fleet.Stored, p.log)
	server := inbound.New(groups, fleet, keeper, p.log)
	p.group.Add(lifecycle.Component{Name: "groups of XXL-JOB executors", Run: groups.Run, Ready: groups.Ready()})
	p.add("callbacks on disk", keeper.Run)
	p.group.Add(lifecycle.Component{Name: "addresses of XXL-JOB executors", Run: fleet.Run, StopTimeout: outbound.StopTime})
	p.add("gateway", func(ctx context.Context) error {
		fmt.Fprintf(p.app.Stdout, "gateway: http://%s\n", g.listener.Addr())
		return serveWith(ctx, inbound.Limit(g.listener), server.HTTP())
	})
	return nil
}
