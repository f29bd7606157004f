// Package triggers is the REST API of event triggers: which events fire which jobs.
package triggers

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
	"github.com/belfryhq/belfry/internal/event/match"
	"github.com/belfryhq/belfry/internal/store/account"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
)

// API serves event triggers. All fields must be set.
type API struct {
	Store   Store
	Visible *visible.Reader
	Audit   *rest.Audit
}

// Store keeps event triggers. Conflict: the version is stale.
type Store interface {
	Trigger(ctx context.Context, id int64) (event.Trigger, error)
	Triggers(ctx context.Context, f storeevent.TriggerFilter) ([]event.Trigger, error)
	CreateTrigger(ctx context.Context, spec event.TriggerSpec) (event.Trigger, error)
	EditTrigger(ctx context.Context, id int64, version int, edit func(*event.TriggerSpec) error) (before, after event.Trigger, err error)
	DeleteTrigger(ctx context.Context, id int64, version int) (event.Trigger, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Events"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/event-triggers", Tag: tag, Summary: "List event triggers", Needs: account.Viewer}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/event-triggers", Tag: tag, Summary: "Create an event trigger", Needs: account.Operator,
		Status: 201, Body: rest.BodyOf[eventTriggerBody]()}, a.create)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/event-triggers/{id}", Tag: tag, Summary: "Show an event trigger", Needs: account.Viewer}, a.show)
	rest.Register(r, rest.Operation{Method: "PUT", Path: "/event-triggers/{id}", Tag: tag, Summary: "Replace an event trigger", Needs: account.Operator,
		Description: "Absent fields get their defaults. Read-only fields may be present. They are ignored, except id and version: " +
			"for another id the answer is 422, for another version 409.", Body: rest.BodyOf[eventTriggerBody]()}, a.replace)
	rest.Register(r, rest.Operation{Method: "PATCH", Path: "/event-triggers/{id}", Tag: tag, Summary: "Change an event trigger", Needs: account.Operator,
		Description: "A JSON merge patch (RFC 7396): absent fields stay as they are, and null resets a field to its default.", Body: rest.BodyOf[eventTriggerPatch]()}, a.patch)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/event-triggers/{id}", Tag: tag, Summary: "Delete an event trigger", Needs: account.Operator}, a.remove)
}

const noTrigger = "there is no such event trigger"

// eventTriggerBody is the body of a new event trigger in the contract.
type eventTriggerBody struct {
	Name    string       `json:"name" doc:"The name of the events, or a pattern with the wildcards * and >" example:"orders.created"`
	JobID   domain.JobID `json:"job_id" doc:"The job that the events fire"`
	Filter  string       `json:"filter,omitempty" doc:"A CEL expression that selects events; empty: all events" example:"event.data.amount > 100.0"`
	Param   string       `json:"param,omitempty" doc:"A Go template for the run's param; empty: the event's data as JSON" example:"{{.event.data.id}}"`
	Enabled bool         `json:"enabled,omitempty" doc:"Default: true"`
	Version int          `json:"version,omitempty" doc:"The version to change. If it is not the current version, the answer is 409"`
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
	Body event.Trigger
}

type eventTriggersInput struct {
	rest.List
	Group string       `query:"group" doc:"Only triggers of this group's jobs"`
	JobID domain.JobID `query:"job_id" minimum:"1"`
	Name  string       `query:"name" maxLength:"128" doc:"Only triggers with exactly this name or pattern"`
}

// read returns a trigger whose job the caller may see, NotFound for any other.
func (a *API) read(ctx context.Context, id auth.Identity, trigger int64) (event.Trigger, error) {
	t, err := a.Store.Trigger(ctx, trigger)
	if err != nil {
		return t, err
	}
	return t, visible.Check(id, t.Group, noTrigger)
}

func answer(t event.Trigger) *eventTriggerAnswer {
	return &eventTriggerAnswer{ETag: rest.ETag(t.Version), Body: t}
}

// Object names an event trigger in the audit log.
func Object(id int64) string { return fmt.Sprintf("event-trigger/%d", id) }

func (a *API) list(ctx context.Context, id auth.Identity, in *eventTriggersInput) (*rest.Output[rest.Page[event.Trigger]], error) {
	after, err := rest.DecodeNumberCursor("event-trigger", in.Cursor)
	if err != nil {
		return nil, err
	}
	triggers, err := a.Store.Triggers(ctx, storeevent.TriggerFilter{
		Only: id.Only(), Group: in.Group, Job: in.JobID, Name: in.Name, After: after, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	if len(triggers) == 0 && in.Cursor == "" {
		if err := a.Visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	return rest.Answer(rest.Cut(triggers, in.Limit, func(t event.Trigger) string {
		return rest.NumberCursor("event-trigger", t.ID)
	})), nil
}

func (a *API) show(ctx context.Context, id auth.Identity, in *rest.IDPath) (*eventTriggerAnswer, error) {
	t, err := a.read(ctx, id, in.ID)
	return answer(t), err
}

// check names every faulty value. A job that the caller may not see is unknown.
func (a *API) check(ctx context.Context, id auth.Identity, spec *event.TriggerSpec) error {
	var f domain.Faults
	f.AddAll("body", match.Check(spec))
	if spec.JobID > 0 {
		_, err := a.Visible.Job(ctx, id, spec.JobID)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add("job_id", visible.NoJob)
		}
	}
	return f.Err("the event trigger is not valid")
}

func (a *API) create(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*eventTriggerAnswer, error) {
	spec := event.DefaultTriggerSpec()
	shape := in.Decode(&spec)
	if err := strict.AlsoFaulty(shape, a.check(ctx, id, &spec)); err != nil {
		return nil, err
	}
	if _, err := domain.Unmask("param", spec.Param, ""); err != nil {
		return nil, err
	}
	t, err := a.Store.CreateTrigger(ctx, spec)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "event-trigger.create", Object(t.ID), nil, t)
	return answer(t), nil
}

// eventTriggerInput is the input of a change.
type eventTriggerInput struct {
	rest.IDPath
	rest.Conditional
	rest.JSONBody
}

func (a *API) replace(ctx context.Context, id auth.Identity, in *eventTriggerInput) (*eventTriggerAnswer, error) {
	return a.edit(ctx, id, in, func(_ event.TriggerSpec, sent json.RawMessage) (json.RawMessage, error) { return sent, nil })
}

func (a *API) patch(ctx context.Context, id auth.Identity, in *eventTriggerInput) (*eventTriggerAnswer, error) {
	return a.edit(ctx, id, in, func(now event.TriggerSpec, sent json.RawMessage) (json.RawMessage, error) {
		doc, err := json.Marshal(now)
		if err != nil {
			return nil, fmt.Errorf("encode the current event trigger: %w", err)
		}
		return strict.MergePatch(doc, sent), nil
	})
}

func (a *API) edit(ctx context.Context, id auth.Identity, in *eventTriggerInput,
	next func(now event.TriggerSpec, sent json.RawMessage) (json.RawMessage, error)) (*eventTriggerAnswer, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	present, err := a.read(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	edited := func(now event.TriggerSpec, sent json.RawMessage) (event.TriggerSpec, error) {
		t := event.Trigger{TriggerSpec: event.DefaultTriggerSpec()}
		doc, err := next(now, sent)
		if err == nil {
			_, err = strict.Decode(doc, &t)
		}
		return t.TriggerSpec, err
	}
	var asked event.Trigger
	sound, shape := strict.Decode(in.RawBody, &asked)
	if sound == nil {
		return nil, shape
	}
	wanted, _ := edited(present.TriggerSpec, sound)
	if err := strict.AlsoFaulty(shape, a.check(ctx, id, &wanted)); err != nil {
		return nil, err
	}
	version, err := rest.OneVersion(in.Conditional, asked.Version)
	if err != nil {
		return nil, err
	}
	if err := strict.SameID(asked.ID, in.ID, "event trigger"); err != nil {
		return nil, err
	}
	before, after, err := a.Store.EditTrigger(ctx, in.ID, version, func(spec *event.TriggerSpec) error {
		changed, err := edited(*spec, in.RawBody)
		if err != nil {
			return err
		}
		if changed.JobID != wanted.JobID { // another edit came in between, and the caller may not see the new job
			return domain.NewError(domain.Conflict, "the event trigger was changed meanwhile; read it again")
		}
		if changed.Param, err = domain.Unmask("param", changed.Param, spec.Param); err != nil {
			return err
		}
		*spec = changed
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before.Version != after.Version {
		a.Audit.Record(ctx, id, "event-trigger.update", Object(in.ID), before, after)
	}
	return answer(after), nil
}

func (a *API) remove(ctx context.Context, id auth.Identity, in *struct {
	rest.IDPath
	rest.Conditional
}) (*struct{}, error) {
	version, err := in.Match()
	if err != nil {
		return nil, err
	}
	if _, err := a.read(ctx, id, in.ID); err != nil {
		return nil, err
	}
	before, err := a.Store.DeleteTrigger(ctx, in.ID, version)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "event-trigger.delete", Object(in.ID), before, nil)
	return nil, nil
}
