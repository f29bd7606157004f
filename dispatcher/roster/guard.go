package roster

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/executor/wire"
)

const (
	guardEvery = time.Second
	// removedAtOnce is the maximum number of keys of one group that a guard removes in one turn, so that one group does not
	// delay the removal of another group's keys.
	removedAtOnce = 200
	warnEvery     = 10 * time.Second
)

// The reasons for a removal, as the label of a metric.
const (
	tooLarge     = "too_large"
	tooManyKeys  = "max_instances"
	misdirected  = "misdirected"
	removalTimed = 5 * time.Second
)

// GuardConfig holds the dependencies of a Guard. All fields but Closed are required.
type GuardConfig struct {
	Roster    *Roster
	JetStream jetstream.JetStream
	// Closed is called when a group has more instances than its limit, with the names of the removed ones.
	Closed   func(group string, instances []string)
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Guard removes heartbeats from the bucket so that one group cannot fill it: the newest keys beyond a group's limit, and
// heartbeats larger than wire.MaxHeartbeat. It also removes acknowledgements that an executor has directed to the key of an
// instance, because the bucket refuses the instance's heartbeats until then. Any number of dispatchers may run a Guard. They agree on which keys are the newest
// (see population). A removal purges only messages up to the sequence that the Guard has seen, so a newer heartbeat is not
// removed with it.
type Guard struct {
	GuardConfig
	count  *prometheus.CounterVec
	warned map[string]time.Time // by group and reason; used only by Run
	sent   map[key]time.Time    // when each instance last got a request to overwrite its key; used only by Run
}

// NewGuard returns a Guard that removes nothing until Run is called.
func NewGuard(cfg GuardConfig) *Guard {
	g := &Guard{GuardConfig: cfg, warned: make(map[string]time.Time), sent: make(map[key]time.Time), count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belfry_heartbeats_removed_total", Help: "Heartbeats that this dispatcher has removed from the bucket, by group and reason: too_large, max_instances or misdirected.",
	}, []string{"group", "reason"})}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(g.count)
	}
	return g
}

// Run removes keys until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := g.turn(ctx); err != nil && ctx.Err() == nil {
				g.Log.WarnContext(ctx, "cannot remove heartbeats beyond the limits, retrying", "err", err)
			}
		case <-g.Roster.astray:
			if err := g.clean(ctx); err != nil && ctx.Err() == nil {
				g.Log.WarnContext(ctx, "cannot remove acknowledgements from the heartbeats, they expire after 10 s", "err", err)
			}
		}
	}
}

func (g *Guard) turn(ctx context.Context) error {
	found := g.Roster.unwanted(removedAtOnce)
	if len(found) == 0 {
		return nil
	}
	stream, err := g.JetStream.Stream(ctx, "KV_"+wire.BucketInstances)
	if err != nil {
		return err
	}
	var errs []error
	excess := make(map[string][]string)
	for _, u := range found {
		if err := g.remove(ctx, stream, u); err != nil {
			errs = append(errs, err)
			break // the bucket is not available; the next turn tries again
		}
		reason := tooManyKeys
		if u.large {
			reason = tooLarge
		} else {
			excess[u.group] = append(excess[u.group], u.name)
		}
		g.count.WithLabelValues(u.group, reason).Inc()
		g.warn(u, reason)
	}
	if g.Closed != nil {
		for group, names := range excess {
			g.Closed(group, names)
		}
	}
	return errors.Join(errs...)
}

// tellAgain is the least time between two requests to an instance to overwrite its key.
const tellAgain = time.Second

// tell allows the boot of an instance to overwrite its key. If another boot has the name too, neither may: then the bucket refuses heartbeats
// for another reason.
func (g *Guard) tell(s stray) error {
	now := time.Now()
	if s.boot == "" || now.Sub(g.sent[s.key]) < tellAgain {
		return nil
	}
	if len(g.sent) >= reportedMax {
		clear(g.sent)
	}
	g.sent[s.key] = now
	request := wire.Encode(wire.Control{V: wire.Version, Op: wire.OpOverwrite, BootID: s.boot})
	return g.JetStream.Conn().Publish(wire.ControlSubject(s.group, s.name), request)
}

// clean removes misdirected acknowledgements, and allows the instances to overwrite more of them.
func (g *Guard) clean(ctx context.Context) error {
	stream, err := g.JetStream.Stream(ctx, "KV_"+wire.BucketInstances)
	if err != nil {
		return err
	}
	for _, s := range g.Roster.takeStrays() {
		if err := errors.Join(g.purge(ctx, stream, s.key, s.seq), g.tell(s)); err != nil {
			return err
		}
		g.count.WithLabelValues(s.group, misdirected).Inc()
		if at := s.group + " " + misdirected; g.due(at) {
			g.Log.Warn("an executor directs acknowledgements to the heartbeat of an instance, they are removed: look for the group with "+
				"malformed results or logs and replace its token", "group", s.group, "instance", s.name)
		}
	}
	return nil
}

// remove removes the message of a key, unless a newer one has replaced it. It purges, because the stream denies deletions
// of single messages.
func (g *Guard) remove(ctx context.Context, stream jetstream.Stream, u unwanted) error {
	if err := g.purge(ctx, stream, u.key, u.seq); err != nil {
		return err
	}
	g.Roster.removed(u.key, u.seq)
	return nil
}

func (g *Guard) purge(ctx context.Context, stream jetstream.Stream, k key, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimed)
	defer cancel()
	subject := wire.InstanceSubject(wire.InstanceKey(k.group, k.name))
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(seq+1))
}

// due reports whether the warning at may be logged, once in warnEvery.
func (g *Guard) due(at string) bool {
	now := time.Now()
	if last, ok := g.warned[at]; ok && now.Sub(last) < warnEvery {
		return false
	}
	if len(g.warned) >= reportedMax {
		clear(g.warned)
	}
	g.warned[at] = now
	return true
}

// warn logs a removal, once per group and reason in warnEvery.
func (g *Guard) warn(u unwanted, reason string) {
	if !g.due(u.group + " " + reason) {
		return
	}
	if u.large {
		g.Log.Warn("removed a heartbeat of over 16 KiB, the instance gets no runs: it has too many handlers or labels", "group", u.group, "instance", u.name, "max_bytes", wire.MaxHeartbeat)
		return
	}
	g.Log.Warn("removed the newest instances of a group with more than its max_instances, its log-ins are refused for a minute",
		"group", u.group, "instance", u.name)
}
