package jobs

import (
	"context"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

func (a *API) pause(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.JSONBody
	rest.Reader
}) (*versioned, error) {
	before, err := a.Visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	reason, until, err := in.DecodePause()
	if err != nil {
		return nil, err
	}
	if _, err := a.Pauses.PauseJob(ctx, in.ID, reason, until, id.Actor()); err != nil {
		return nil, err
	}
	return a.pauseChanged(ctx, id, "job.pause", before, &in.Reader)
}

func (a *API) resume(ctx context.Context, id auth.Identity, in *struct {
	rest.JobPath
	rest.Reader
}) (*versioned, error) {
	before, err := a.Visible.Job(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	if _, err := a.Pauses.ResumeJob(ctx, in.ID, id.Actor()); err != nil {
		return nil, err
	}
	return a.pauseChanged(ctx, id, "job.resume", before, &in.Reader)
}

// pauseChanged records the change and answers with the job after it.
func (a *API) pauseChanged(ctx context.Context, id auth.Identity, action string, before domain.Job, r *rest.Reader) (*versioned, error) {
	after, err := a.Visible.Job(ctx, id, before.ID)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, action, rest.JobObject(before.ID), before, after)
	return a.answer(after, r), nil
}
