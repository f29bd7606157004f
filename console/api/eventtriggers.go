package api

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store/account"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
)

const noEventTrigger = "there is no such event trigger"

// eventTriggerBody is how the contract shows what is written.
type eventTriggerBody struct {
	Name    string       `json:"name" doc:"A name of events, or a pattern with the wildcards * and >" example:"orders.created"`
	JobID   domain.JobID `json:"job_id" doc:"The job that they fire"`
	Filter  string       `json:"filter,omitempty" doc:"CEL: which of them do; empty is all" example:"event.data.amount > 100.0"`
	Param   string       `json:"param,omitempty" doc:"A Go template: the run's param; empty is the event's data as JSON" example:"{{.event.data.id}}"`
	Enabled bool         `json:"enabled,omitempty" doc:"Default: true"`
	Version int          `json:"version,omitempty" doc:"Of the trigger that a change is meant for; another one answers 409"`
}

type eventTriggerPatch struct {
	Name    string       `json:"name,omitempty"`
	JobID   domain.JobID `json:"job_id,omitempty"`
	Filter  string       `json:"filter,omitempty"`
	Param   string       `json:"param,omitempty"`
	Enabled bool         `json:"enabled,omitempty"`
	Version int          `json:"version,omitempty"`
}

type eventTriggerAnswer struct {
	ETag string `header:"ETag" doc:"The event trigger's version, for If-Match"`
	Body domain.EventTrigger
}

type eventTriggersInput struct {
	rest.List
	Group string       `query:"group" doc:"Only triggers of this group's jobs"`
	JobID domain.JobID `query:"job_id" minimum:"1"`
	Name  string       `query:"name" maxLength:"128" doc:"The pattern, as it is written"`
}

func (a *API) registerEventTriggers() {
	const tag = "Events"
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/event-triggers", Tag: tag, Summary: "List event triggers", Needs: account.Viewer}, a.eventTriggers)
	rest.Register(a.rest, rest.Operation{Method: "POST", Path: "/event-triggers", Tag: tag, Summary: "Create an event trigger", Needs: account.Operator,
		Status: 201, Body: rest.BodyOf[eventTriggerBody]()}, a.createEventTrigger)
	rest.Register(a.rest, rest.Operation{Method: "GET", Path: "/event-triggers/{id}", Tag: tag, Summary: "Show an event trigger", Needs: account.Viewer}, a.eventTrigger)
	rest.Register(a.rest, rest.Operation{Method: "PUT", Path: "/event-triggers/{id}", Tag: tag, Summary: "Replace an event trigger", Needs: account.Operator,
		Description: "Absent fields get their defaults. Read-only fields may be there and are ignored, save version.", Body: rest.BodyOf[eventTriggerBody]()}, a.replaceEventTrigger)
	rest.Register(a.rest, rest.Operation{Method: "PATCH", Path: "/event-triggers/{id}", Tag: tag, Summary: "Change an event trigger", Needs: account.Operator,
		Description: "A JSON merge patch (RFC 7396): absent fields stay, null gives a field its default.", Body: rest.BodyOf[eventTriggerPatch]()}, a.patchEventTrigger)
	rest.Register(a.rest, rest.Operation{Method: "DELETE", Path: "/event-triggers/{id}", Tag: tag, Summary: "Delete an event trigger", Needs: account.Operator}, a.deleteEventTrigger)
}

// readEventTrigger returns a trigger whose job the caller sees, NotFound for any other.
func (a *API) readEventTrigger(ctx context.Context, id auth.Identity, trigger int64) (domain.EventTrigger, error) {
	t, err := a.Events.Trigger(ctx, trigger)
	if err != nil {
		return t, err
	}
	return t, visible.Check(id, t.Group, noEventTrigger)
}

func answerEventTrigger(t domain.EventTrigger) *eventTriggerAnswer {
	return &eventTriggerAnswer{ETag: rest.ETag(t.Version), Body: t}
}

func eventTriggerObject(id int64) string { return fmt.Sprintf("event-trigger/%d", id) }

func (a *API) eventTriggers(ctx context.Context, id auth.Identity, in *eventTriggersInput) (*rest.Output[rest.Page[domain.EventTrigger]], error) {
	after, err := rest.DecodeNumberCursor("event-trigger", in.Cursor)
	if err != nil {
		return nil, err
	}
	triggers, err := a.Events.Triggers(ctx, storeevent.TriggerFilter{
		Only: id.Only(), Group: in.Group, Job: in.JobID, Name: in.Name, After: after, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	if len(triggers) == 0 && in.Cursor == "" {
		if err := a.visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	return rest.Answer(rest.Cut(triggers, in.Limit, func(t domain.EventTrigger) string {
		return rest.NumberCursor("event-trigger", t.ID)
	})), nil
}

func (a *API) eventTrigger(ctx context.Context, id auth.Identity, in *rest.IDPath) (*eventTriggerAnswer, error) {
	t, err := a.readEventTrigger(ctx, id, in.ID)
	return answerEventTrigger(t), err
}

// checkEventTrigger names every faulty value, the job that the caller does not see included.
func (a *API) checkEventTrigger(ctx context.Context, id auth.Identity, spec *domain.EventTriggerSpec) error {
	var f domain.Faults
	f.AddAll("body", event.Check(spec))
	if spec.JobID > 0 {
		_, err := a.visible.Job(ctx, id, spec.JobID)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add("job_id", visible.NoJob)
		}
	}
	return f.Err("the event trigger is not valid")
}

func (a *API) createEventTrigger(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*eventTriggerAnswer, error) {
	spec := domain.DefaultEventTriggerSpec()
	shape := in.Decode(&spec)
	if err := strict.AlsoFaulty(shape, a.checkEventTrigger(ctx, id, &spec)); err != nil {
		return nil, err
	}
	t, err := a.Events.CreateTrigger(ctx, spec)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "event-trigger.create", eventTriggerObject(t.ID), nil, t)
	return answerEventTrigger(t), nil
}

// eventTriggerInput is what a change of an event trigger comes with.
type eventTriggerInput struct {
	rest.IDPath
	rest.Conditional
	rest.JSONBody
}

func (a *API) replaceEventTrigger(ctx context.Context, id auth.Identity, in *eventTriggerInput) (*eventTriggerAnswer, error) {
	return a.editEventTrigger(ctx, id, in, func(_ domain.EventTriggerSpec, sent json.RawMessage) (json.RawMessage, error) { return sent, nil })
}

func (a *API) patchEventTrigger(ctx context.Context, id auth.Identity, in *eventTriggerInput) (*eventTriggerAnswer, error) {
	return a.editEventTrigger(ctx, id, in, func(now domain.EventTriggerSpec, sent json.RawMessage) (json.RawMessage, error) {
		doc, err := json.Marshal(now)
		if err != nil {
			return nil, fmt.Errorf("encode the event trigger as it stands: %w", err)
		}
		return strict.MergePatch(doc, sent), nil
	})
}

func (a *API) editEventTrigger(ctx context.Context, id auth.Identity, in *eventTriggerInput,
	next func(now domain.EventTriggerSpec, sent json.RawMessage) (json.RawMessage, error)) (*eventTriggerAnswer, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	present, err := a.readEventTrigger(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	edited := func(now domain.EventTriggerSpec, sent json.RawMessage) (domain.EventTriggerSpec, error) {
		t := domain.EventTrigger{EventTriggerSpec: domain.DefaultEventTriggerSpec()}
		doc, err := next(now, sent)
		if err == nil {
			_, err = strict.Decode(doc, &t)
		}
		return t.EventTriggerSpec, err
	}
	var asked domain.EventTrigger
	sound, shape := strict.Decode(in.RawBody, &asked)
	if sound == nil {
		return nil, shape
	}
	wanted, _ := edited(present.EventTriggerSpec, sound)
	if err := strict.AlsoFaulty(shape, a.checkEventTrigger(ctx, id, &wanted)); err != nil {
		return nil, err
	}
	version, err := rest.OneVersion(in.Conditional, asked.Version)
	if err != nil {
		return nil, err
	}
	if err := strict.SameID(asked.ID, in.ID, "event trigger"); err != nil {
		return nil, err
	}
	before, after, err := a.Events.EditTrigger(ctx, in.ID, version, func(spec *domain.EventTriggerSpec) error {
		changed, err := edited(*spec, in.RawBody)
		if err != nil {
			return err
		}
		if changed.JobID != wanted.JobID { // it was changed since it was read: the caller may not see that job
			return domain.NewError(domain.Conflict, "the event trigger was changed meanwhile; read it again")
		}
		*spec = changed
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.audit.Record(ctx, id, "event-trigger.update", eventTriggerObject(in.ID), before, after)
	}
	return answerEventTrigger(after), nil
}

func (a *API) deleteEventTrigger(ctx context.Context, id auth.Identity, in *struct {
	rest.IDPath
	rest.Conditional
}) (*struct{}, error) {
	version, err := in.Match()
	if err != nil {
		return nil, err
	}
	if _, err := a.readEventTrigger(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, err := a.Events.DeleteTrigger(ctx, in.ID, version)
	if err != nil {
		return nil, err
	}
	a.audit.Record(ctx, id, "event-trigger.delete", eventTriggerObject(in.ID), before, nil)
	return nil, nil
}
