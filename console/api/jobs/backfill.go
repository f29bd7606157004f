package jobs

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

type backfillBody struct {
	From domain.Instant `json:"from" doc:"Fire times from this instant on"`
	To   domain.Instant `json:"to" doc:"Fire times before this instant"`
	Max  *int           `json:"max,omitempty" minimum:"1" maximum:"1000" doc:"The maximum number of fire times, from the first; default: 100"`
}

func (a *API) backfill(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.JSONBody
	DryRun bool `query:"dry_run" doc:"Only list the fire times, and make no runs"`
}) (*rest.Output[domain.Backfilled], error) {
	if _, err := a.Visible.Job(ctx, id, in.ID); err != nil {
		return nil, err
	}
	var b backfillBody
	shape := in.Decode(&b)
	ask := domain.Backfill{From: b.From.Time, To: b.To.Time, DryRun: in.DryRun}
	if b.Max != nil {
		if ask.Max = *b.Max; ask.Max == 0 {
			ask.Max = -1 // 0 is invalid here; in domain.Backfill it is the default
		}
	}
	if err := strict.AlsoFaulty(shape, ask.Check(time.Now())); err != nil {
		return nil, err
	}
	made, err := a.Store.Backfill(ctx, in.ID, ask)
	if err != nil {
		return nil, err
	}
	if len(made.RunIDs) > 0 {
		a.Audit.Record(ctx, id, "job.backfill", rest.JobObject(in.ID), nil, map[string]any{
			"from": b.From, "to": b.To, "runs": len(made.RunIDs), "first_run_id": made.RunIDs[0], "next_from": made.Next,
		})
	}
	return rest.Answer(made), nil
}
