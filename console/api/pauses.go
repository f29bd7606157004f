package api

import (
	"context"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

type pauseBody struct {
	Reason string          `json:"reason" doc:"Why, for those who wonder what became of their runs"`
	Until  *domain.Instant `json:"until,omitempty" doc:"When it ends by itself; default: when somebody resumes"`
}

func (a *API) registerPauses() {
	const tag = "Groups"
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/groups/{name}/pause", Tag: tag, Summary: "Pause the schedules of a group's jobs",
		Description: "No job of the group fires by its schedule until the pause is over; what was to fire is a misfire then, by each job's policy. " +
			"Runs by hand, API, event or parent, retries, and runs that are under way go on. A group that is paused already gets the new reason and end.",
		Needs: account.Operator, Body: rest.BodyOf[pauseBody]()}, a.pauseGroup)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/groups/{name}/resume", Tag: tag, Summary: "End a group's pause",
		Description: "409 where the group is not paused.", Needs: account.Operator}, a.resumeGroup)
}

func (a *API) pauseGroup(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.JSONBody
}) (*rest.Output[domain.Group], error) {
	before, err := a.readGroup(ctx, id, in.Name)
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
	if _, err := a.Engine.PauseGroup(ctx, in.Name, b.Reason, until, id.Actor()); err != nil {
		return nil, err
	}
	return a.pauseChanged(ctx, id, "group.pause", before)
}

func (a *API) resumeGroup(ctx context.Context, id auth.Identity, in *GroupPath) (*rest.Output[domain.Group], error) {
	before, err := a.readGroup(ctx, id, in.Name)
	if err != nil {
		return nil, err
	}
	if _, err := a.Engine.ResumeGroup(ctx, in.Name, id.Actor()); err != nil {
		return nil, err
	}
	return a.pauseChanged(ctx, id, "group.resume", before)
}

// pauseChanged records the change and answers the group as it is.
func (a *API) pauseChanged(ctx context.Context, id auth.Identity, action string, before domain.Group) (*rest.Output[domain.Group], error) {
	after, err := a.readGroup(ctx, id, before.Name)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, action, "group/"+before.Name, before, after)
	return rest.Answer(after), nil
}
