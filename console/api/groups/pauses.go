package groups

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
)

type pauseBody struct {
	Reason string          `json:"reason" doc:"The reason. It is shown with the group, and with fire times that were missed because of the pause"`
	Until  *domain.Instant `json:"until,omitempty" doc:"The end of the pause. Default: the pause lasts until it is resumed"`
}

func (a *API) pause(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.JSONBody
}) (*rest.Output[domain.Group], error) {
	before, err := a.Read(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	var b pauseBody
	shape := in.Decode(&b)
	var until *time.Time
	if b.Until != nil {
		until = &b.Until.Time
	}
	if err := strict.AlsoFaulty(shape, domain.CheckPause(b.Reason, until, time.Now())); err != nil {
		return nil, err
	}
	if _, err := a.Pauses.PauseGroup(ctx, in.Name, b.Reason, until, id.Actor()); err != nil {
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
