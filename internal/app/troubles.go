package app

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/outage"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/attention"
	"github.com/belfryhq/belfry/internal/store/view"
)

const (
	serversEvery  = 2 * time.Second // reads the results of the probes, and sends nothing
	presenceEvery = 10 * time.Second
	natsEvery     = 30 * time.Second
	// mostEnded bounds the ids of troubles whose acknowledgements end when Postgres is back.
	mostEnded = 100
)

// troubles watches the servers and the roles for a console, so that a console can name what is missing also while Postgres is unavailable.
type troubles struct {
	watch    *outage.Watch
	servers  *servers
	view     presence
	acks     ackEnder
	log      *slog.Logger
	ended    []string
	blind    bool // the last reading of the presence went wrong
	presence time.Time
	nats     time.Time
}

// presence reads what Postgres knows about the engine.
type presence interface {
	Presence(ctx context.Context) (view.Presence, error)
	Blockers(ctx context.Context) ([]view.Blocker, error)
}

// ackEnder ends the acknowledgements of troubles that are over.
type ackEnder interface {
	Ended(ctx context.Context, ids []string) error
}

// addTroubles adds the component that watches the servers and the roles.
func addTroubles(p *process, s *store.Store, v *servers) *outage.Watch {
	x := &troubles{watch: &outage.Watch{}, servers: v, view: view.NewPostgres(s.Pool()), acks: attention.New(s.Pool()), log: p.log}
	p.add("troubles", x.run)
	return x.watch
}

func (x *troubles) run(ctx context.Context) error {
	for {
		x.look(ctx, time.Now())
		if !lifecycle.Rest(ctx, serversEvery) {
			return nil
		}
	}
}

// look sees what is due. While Postgres is unavailable, what was seen there before remains.
func (x *troubles) look(ctx context.Context, now time.Time) {
	available := x.lookAtServers(now)
	if x.servers.connected() && now.Sub(x.nats) >= natsEvery {
		x.nats = now
		silent, of := silentServers(ctx, x.servers.nc)
		x.over(x.watch.NATSServers(now, silent, of))
	}
	if !available {
		return
	}
	if now.Sub(x.presence) >= presenceEvery {
		x.presence = now
		err := x.lookAtPresence(ctx, now)
		if err != nil && !x.blind && ctx.Err() == nil {
			x.log.WarnContext(ctx, "cannot read which processes are at work, retrying", "err", err)
		}
		x.blind = err != nil
	}
	if len(x.ended) > 0 && x.acks.Ended(ctx, x.ended) == nil { // otherwise it is tried again
		x.ended = nil
	}
}

// over remembers troubles whose acknowledgements end.
func (x *troubles) over(ids []string) {
	for _, id := range ids {
		if len(x.ended) < mostEnded && !slices.Contains(x.ended, id) {
			x.ended = append(x.ended, id)
		}
	}
}

// lookAtServers reports whether Postgres accepts writes.
func (x *troubles) lookAtServers(now time.Time) (available bool) {
	available = true
	var all []outage.Server
	for _, c := range x.servers.checks(true) {
		s := outage.Server{Name: c.Name, Err: c.Probe(context.Background())}
		switch {
		case !slices.Contains([]string{outage.Postgres, outage.NATS, outage.JetStream}, c.Name):
			continue
		case c.Name == outage.Postgres && s.Err != nil:
			available = false
			if errors.Is(s.Err, store.ErrReadOnly) {
				s.Reason = outage.ReadOnly
			}
		}
		all = append(all, s)
	}
	x.over(x.watch.Servers(now, all))
	return available
}

func (x *troubles) lookAtPresence(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, pressureTimeout)
	defer cancel()
	p, err := x.view.Presence(ctx)
	if err != nil {
		return err
	}
	blockers, err := x.view.Blockers(ctx)
	if err != nil {
		return err
	}
	s := outage.State{SchedulerSilence: p.SchedulerSilence, Connections: p.Connections, MaxConnections: p.MaxConnections}
	for _, q := range p.Processes {
		s.Processes = append(s.Processes, outage.Process{Role: q.Role, Name: q.Name})
	}
	for _, b := range blockers {
		s.Blockers = append(s.Blockers, outage.Blocker(b))
	}
	x.over(x.watch.State(now, s))
	return nil
}

// silentServers returns the servers of a NATS cluster that do not answer, and how many there are. A server that is asked for TLS before it says
// anything looks silent, so nothing is known if the server of the connection itself does.
func silentServers(ctx context.Context, nc *nats.Conn) (silent []string, of int) {
	all := nc.Servers()
	if of = len(all); of < 2 {
		return nil, of
	}
	silent = natsinfra.Silent(ctx, all)
	if own, err := url.Parse(nc.ConnectedUrl()); err != nil || slices.Contains(silent, own.Host) {
		return nil, of
	}
	return silent, of
}
