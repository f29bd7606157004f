// Package kill ends runs on request: it records the request and sends it to the instances.
package kill

import (
	"context"
	"log/slog"
	"time"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/settle"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Store defines the database operations that the killer needs.
type Store interface {
	Now() time.Time // the database's clock
	RequestKill(ctx context.Context, id domain.RunID, reason domain.Reason, by string) (engine.KillResult, error)
}

// Killer kills runs. Create one with New. It is safe for concurrent use.
type Killer struct {
	store    Store
	peers    *peer.Peers
	recorder *settle.Recorder
	log      *slog.Logger
}

// New returns a killer.
func New(store Store, peers *peer.Peers, recorder *settle.Recorder, log *slog.Logger) *Killer {
	return &Killer{store, peers, recorder, log}
}

// Kill requests the end of an unfinished run. A run that no instance has ends at once. For the others, the request is stored,
// and a reconciler sends it until the instance confirms it. The caller fires the released runs. The error has the code NotFound,
// or Conflict if the run is final.
func (k *Killer) Kill(ctx context.Context, id domain.RunID, by string) (released []engine.Due, err error) {
	out, err := k.store.RequestKill(ctx, id, domain.ReasonKilled, by)
	if err != nil {
		return nil, err
	}
	return k.Killed(ctx, out), nil
}

// Killed publishes the end of killed runs, and sends the kills of the others to their instances, after a transaction of the store has
// recorded them. The caller fires the released runs.
func (k *Killer) Killed(ctx context.Context, out engine.KillResult) (released []engine.Due) {
	k.recorder.Settled(out.Result)
	released = out.Result.Released
	boots := make(map[peer.Boot][]engine.LiveRun)
	for _, r := range out.Bound {
		b := peer.BootOf(&r)
		boots[b] = append(boots[b], r)
	}
	for _, runs := range boots {
		released = append(released, k.Send(ctx, runs, domain.ReasonKilled)...)
	}
	return released
}

// Send asks the instance of one boot to end attempts. All runs have to be bound to that boot. It settles the attempts that
// will never start, according to the answer. It records the others as running, because no other part asks about a run with
// a kill request. The caller fires the released runs.
func (k *Killer) Send(ctx context.Context, runs []engine.LiveRun, reason domain.Reason) (released []engine.Due) {
	b := peer.BootOf(&runs[0])
	reply, err := k.peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpKill, Runs: peer.Refs(runs), Reason: string(reason)})
	if err != nil {
		k.log.DebugContext(ctx, "cannot send a kill request, a reconciler sends it again", "group", b.Group, "instance", b.Instance, "err", err)
		return nil
	}
	if reply.BootID != b.ID {
		return nil // the boot may be dead: the death verdict decides
	}
	statuses := peer.Statuses(reply)
	var ended []engine.Ended
	var running []engine.Started
	recent := k.store.Now().Add(-settle.LongRun)
	for _, r := range runs {
		switch st := statuses[r.ID.String()]; st.Status {
		case wire.StatusBarred, wire.StatusRefused:
			ended = append(ended, k.recorder.Killed(&r))
		case wire.StatusRunning:
			if r.State == domain.Queued && r.DueAt.Before(recent) {
				running = append(running, k.recorder.StartedOf(&r, st))
			}
		case wire.StatusDone:
			ended = append(ended, k.recorder.FromStatus(&r, st)...)
		}
	}
	_, released = k.recorder.Found(ctx, "", ended)
	k.recorder.Started(ctx, running)
	return released
}
