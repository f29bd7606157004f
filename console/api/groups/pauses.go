package groups

import (
	"context"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

func (a *API) pause(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.JSONBody
}) (*rest.Output[domain.Group], error) {
	before, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	reason, until, err := in.DecodePause()
	if err != nil {
		return nil, err
	}
	if _, err := a.Pauses.PauseGroup(ctx, in.Name, reason, until, id.Actor()); err != nil {
		return nil, err
	}
	return a.pauseChanged(ctx, id, "group.pause", before)
}

func (a *API) resume(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[domain.Group], error) {
	before, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	if _, err := a.Pauses.ResumeGroup(ctx, in.Name, id.Actor()); err != nil {
		return nil, err
	}
	return a.pauseChanged(ctx, id, "group.resume", before)
}

// pauseChanged records the change and answers with the group after it.
func (a *API) pauseChanged(ctx context.Context, id auth.Identity, action string, before domain.Group) (*rest.Output[domain.Group], error) {
	after, err := a.Read(ctx, id, before.Name)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, action, "group/"+before.Name, before, after)
	return rest.Answer(after), nil
}
