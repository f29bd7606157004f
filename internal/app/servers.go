package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/store"
)

// servers knows whether Postgres, NATS and JetStream do what a role needs. Connections tell too little: a standby of Postgres
// answers queries, and a NATS server without quorum or with a full disk accepts connections. So probes write to Postgres and
// JetStream.
type servers struct {
	nc                  *nats.Conn
	postgres, jetStream *probe
	lost                chan struct{} // capacity 1; receives when no server answers for the stream of the probe

	planningFails func() time.Duration // nil in roles that do not plan
}

// planningGrace is how long planning may fail while its role is ready. A lock can stop planning although Postgres accepts writes.
const planningGrace = 10 * time.Second

const (
	serverUp     = "belfry_server_up"
	serverUpHelp = "Whether Postgres accepts this process's writes, NATS is connected, and JetStream accepts messages: 1 or 0."
)

// addServers adds the probes and their metrics.
func (p *process) addServers(s *store.Store, nc *nats.Conn) (*servers, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	v := &servers{nc: nc, lost: make(chan struct{}, 1)}
	v.postgres = newProbe("postgres", 0, s.Check, func(ctx context.Context, err error) {
		if err != nil {
			p.log.WarnContext(ctx, "Postgres accepts no writes, nothing new fires until it does", "reason", err)
			return
		}
		p.log.InfoContext(ctx, "Postgres accepts writes again")
	})
	v.jetStream = newProbe("jetstream", electionGrace, func(ctx context.Context) error { return v.write(ctx, js) },
		func(ctx context.Context, err error) {
			if err != nil {
				p.log.WarnContext(ctx, "JetStream accepts no messages, due runs wait until it does", "reason", err,
					"unreachable", cmp.Or(strings.Join(natsinfra.Silent(ctx, nc.Servers()), ", "), "none, all NATS servers answer"))
				return
			}
			p.log.InfoContext(ctx, "JetStream accepts messages again")
		})
	v.meter(p.registry)
	p.registry.MustRegister(newPoolMetrics(s.Pool()))
	p.add("postgres probe", v.postgres.run)
	return v, nil
}

// write probes JetStream. If no server answers for the stream, it may have been deleted with all others.
func (v *servers) write(ctx context.Context, js jetstream.JetStream) error {
	if !v.connected() {
		return domain.NewError(domain.Unavailable, "NATS is not connected")
	}
	err := natsinfra.Write(ctx, js)
	if errors.Is(err, natsinfra.ErrNoStream) {
		lifecycle.Signal(v.lost)
	}
	return err
}

func (v *servers) connected() bool { return v.nc.Status() == nats.CONNECTED }

// meter registers metrics of the state that the probes keep.
func (v *servers) meter(registry prometheus.Registerer) {
	gauge := func(name, help, server string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"server": server}}, value))
	}
	for _, c := range v.checks(false) {
		gauge(serverUp, serverUpHelp, c.Name, func() float64 {
			if c.Probe(context.Background()) == nil {
				return 1
			}
			return 0
		})
	}
	for _, probe := range []*probe{v.postgres, v.jetStream} {
		gauge("belfry_server_probe_seconds", "How long the last write took with which this process checked a server.", probe.name,
			func() float64 { return probe.Took().Seconds() })
	}
}

// checks returns the checks of /readyz. None of them waits. A console is ready without NATS, because users can see and change jobs.
func (v *servers) checks(console bool) []system.Check {
	checks := []system.Check{
		{Name: "postgres", Probe: func(context.Context) error { return v.postgres.Err() }},
		{Name: "nats", Optional: console, Probe: func(context.Context) error {
			if !v.connected() {
				return domain.NewError(domain.Unavailable, "NATS is not connected")
			}
			return nil
		}},
		{Name: "jetstream", Optional: console, Probe: func(context.Context) error { return v.jetStream.Err() }},
	}
	if v.planningFails != nil {
		checks = append(checks, system.Check{Name: "planning", Probe: func(context.Context) error {
			if v.planningFails() > planningGrace {
				return domain.NewError(domain.Unavailable, "Postgres does not complete the planning of runs")
			}
			return nil
		}})
	}
	return checks
}

// readyz answers for a role without a console.
func (v *servers) readyz(w http.ResponseWriter, req *http.Request) {
	var unavailable []string
	for _, c := range v.checks(false) {
		if c.Probe(req.Context()) != nil {
			unavailable = append(unavailable, c.Name)
		}
	}
	if len(unavailable) > 0 {
		http.Error(w, "unavailable: "+strings.Join(unavailable, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
