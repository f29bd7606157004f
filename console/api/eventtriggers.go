package api

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

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
	List
	Group string       `query:"group" doc:"Only triggers of this group's jobs"`
	JobID domain.JobID `query:"job_id" minimum:"1"`
	Name  string       `query:"name" maxLength:"128" doc:"The pattern, as it is written"`
}

func (a *API) registerEventTriggers() {
	const tag = "Events"
	body, patch := reflect.TypeFor[eventTriggerBody](), reflect.TypeFor[eventTriggerPatch]()
	register(a, operation{method: "GET", path: "/event-triggers", tag: tag, summary: "List event triggers", needs: account.Viewer}, a.eventTriggers)
	register(a, operation{method: "POST", path: "/event-triggers", tag: tag, summary: "Create an event trigger", needs: account.Operator,
		status: 201, body: body}, a.createEventTrigger)
	register(a, operation{method: "GET", path: "/event-triggers/{id}", tag: tag, summary: "Show an event trigger", needs: account.Viewer}, a.eventTrigger)
	register(a, operation{method: "PUT", path: "/event-triggers/{id}", tag: tag, summary: "Replace an event trigger", needs: account.Operator,
		description: "Absent fields get their defaults. Read-only fields may be there and are ignored, save version.", body: body}, a.replaceEventTrigger)
	register(a, operation{method: "PATCH", path: "/event-triggers/{id}", tag: tag, summary: "Change an event trigger", needs: account.Operator,
		description: "A JSON merge patch (RFC 7396): absent fields stay, null gives a field its default.", body: patch}, a.patchEventTrigger)
	register(a, operation{method: "DELETE", path: "/event-triggers/{id}", tag: tag, summary: "Delete an event trigger", needs: account.Operator}, a.deleteEventTrigger)
}

// readEventTrigger returns a trigger whose job the caller sees, NotFound for any other.
func (a *API) readEventTrigger(ctx context.Context, id auth.Identity, trigger int64) (domain.EventTrigger, error) {
	t, err := a.Events.Trigger(ctx, trigger)
	if err != nil {
		return t, err
	}
	return t, may(id, t.Group, noEventTrigger)
}

func answerEventTrigger(t domain.EventTrigger) *eventTriggerAnswer {
	return &eventTriggerAnswer{ETag: strconv.Quote(strconv.Itoa(t.Version)), Body: t}
}

func eventTriggerObject(id int64) string { return fmt.Sprintf("event-trigger/%d", id) }

func (a *API) eventTriggers(ctx context.Context, id auth.Identity, in *eventTriggersInput) (*output[page[domain.EventTrigger]], error) {
	after, err := decodeNumberCursor("event-trigger", in.Cursor)
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
		if err := a.checkGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	return &output[page[domain.EventTrigger]]{cut(triggers, in.Limit, func(t domain.EventTrigger) string {
		return numberCursor("event-trigger", t.ID)
	})}, nil
}

func (a *API) eventTrigger(ctx context.Context, id auth.Identity, in *IDPath) (*eventTriggerAnswer, error) {
	t, err := a.readEventTrigger(ctx, id, in.ID)
	return answerEventTrigger(t), err
}

// checkEventTrigger names every faulty value, the job that the caller does not see included.
func (a *API) checkEventTrigger(ctx context.Context, id auth.Identity, spec *domain.EventTriggerSpec) error {
	var f domain.Faults
	f.AddAll("body", event.Check(spec))
	if spec.JobID > 0 {
		_, err := a.readJob(ctx, id, spec.JobID)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add("job_id", noJob)
		}
	}
	return f.Err("the event trigger is not valid")
}

func (a *API) createEventTrigger(ctx context.Context, id auth.Identity, in *struct{ JSONBody }) (*eventTriggerAnswer, error) {
	spec := domain.DefaultEventTriggerSpec()
	shape := in.decode(&spec)
	if err := alsoFaulty(shape, a.checkEventTrigger(ctx, id, &spec)); err != nil {
		return nil, err
	}
	t, err := a.Events.CreateTrigger(ctx, spec)
	if err != nil {
		return nil, err
	}
	a.audit(ctx, id, "event-trigger.create", eventTriggerObject(t.ID), nil, t)
	return answerEventTrigger(t), nil
}

// eventTriggerInput is what a change of an event trigger comes with.
type eventTriggerInput struct {
	IDPath
	Conditional
	JSONBody
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
		return mergePatch(doc, sent), nil
	})
}

func (a *API) editEventTrigger(ctx context.Context, id auth.Identity, in *eventTriggerInput,
	next func(now domain.EventTriggerSpec, sent json.RawMessage) (json.RawMessage, error)) (*eventTriggerAnswer, error) {
	if err := in.check(); err != nil {
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
			_, err = decodeStrict(doc, &t)
		}
		return t.EventTriggerSpec, err
	}
	var asked domain.EventTrigger
	sound, shape := decodeStrict(in.RawBody, &asked)
	if sound == nil {
		return nil, shape
	}
	wanted, _ := edited(present.EventTriggerSpec, sound)
	if err := alsoFaulty(shape, a.checkEventTrigger(ctx, id, &wanted)); err != nil {
		return nil, err
	}
	version, err := oneVersion(in.Conditional, asked.Version)
	if err != nil {
		return nil, err
	}
	if err := sameID(asked.ID, in.ID, "event trigger"); err != nil {
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
		a.audit(ctx, id, "event-trigger.update", eventTriggerObject(in.ID), before, after)
	}
	return answerEventTrigger(after), nil
}

func (a *API) deleteEventTrigger(ctx context.Context, id auth.Identity, in *struct {
	IDPath
	Conditional
}) (*struct{}, error) {
	version, err := in.version()
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
	a.audit(ctx, id, "event-trigger.delete", eventTriggerObject(in.ID), before, nil)
	return nil, nil
}
