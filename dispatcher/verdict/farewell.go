package verdict

import (
	"context"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/dispatcher/roster"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// routeLeft routes attempts again that are bound to boots which said goodbye with all their attempts settled: see "The goodbye" in
// package dispatcher. Without it, they would be lost by a verdict, although they never started.
func (j *Judge) routeLeft(ctx context.Context) error {
	groups := make(map[string][]roster.Farewell)
	for _, f := range j.Roster.Farewells() {
		groups[f.Group] = append(groups[f.Group], f)
	}
	for group, boots := range groups {
		if !j.left.Idle(group) {
			continue // the next look finds them
		}
		j.left.Do(ctx, []string{group}, func() error {
			for _, f := range boots {
				if err := j.routeLeftBy(ctx, f); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return nil
}

// routeLeftBy is routeLeft for one boot. It leaves out attempts that are recorded as running: the database may have lost their end in
// a failover. A verdict decides about them.
func (j *Judge) routeLeftBy(ctx context.Context, f roster.Farewell) error {
	var after domain.RunID
	for {
		runs, err := j.Store.RunsOf(ctx, engine.BoundBoot{Group: f.Group, Instance: f.Instance, BootID: f.BootID}, after, peer.ControlBatch)
		if err != nil {
			return err
		}
		var unstarted []engine.LiveRun
		for _, r := range runs {
			if r.State == domain.Queued {
				unstarted = append(unstarted, r)
			}
		}
		if again := j.Sender.Refused(ctx, unstarted, func(domain.RunID) explain.Note { return explain.Of(explain.NotStarted, f.Instance) }, true); again > 0 {
			j.Recorder.Reconciled("stopped_instance", again)
			j.Waiting.Wake()
		}
		if len(runs) < peer.ControlBatch {
			return nil
		}
		after = runs[len(runs)-1].ID
	}
}
