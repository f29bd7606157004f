// Package events is the REST API of events: it accepts them, and lists what they did.
package events

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store/account"
	storeevent "github.com/belfryhq/belfry/internal/store/event"
)

// API serves events. All fields must be set.
type API struct {
	Store Store
}

// Store accepts events, and reads accepted ones.
type Store interface {
	// Accept accepts all events or none. For an event that was accepted before, it returns the first answer.
	Accept(ctx context.Context, in []event.Incoming) ([]storeevent.Accepted, error)
	Event(ctx context.Context, id domain.RunID) (event.Event, error)
	Events(ctx context.Context, f storeevent.EventFilter) ([]event.Event, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Events"
	rest.Register(r, rest.Operation{Method: "POST", Path: "/events/{name}", Tag: tag, Summary: "Send an event", Needs: account.Operator, Status: 202, OwnKeys: true,
		Description: "The body is any JSON value, or a CloudEvent: structured (application/cloudevents+json), a batch of up to 100 (application/cloudevents-batch+json), " +
			"or binary (headers ce-id, ce-source, ce-type, ce-specversion). The event fires the matching jobs in groups that the caller may see, each once. " +
			"A repetition is recognized by the Idempotency-Key, or else by the CloudEvent's source and id. As long as the first event is kept, " +
			"a repetition gets the first answer.",
		Body: rest.BodyOf[any](), BodyOptional: true}, a.send)
	events := r.Schemas()
	one := events.Schema(reflect.TypeFor[event.Event](), true, "Event")
	list := events.Schema(reflect.TypeFor[rest.Page[event.Event]](), true, "PageEvent")
	rest.Register(r, rest.Operation{Method: "GET", Path: "/events/{name}", Tag: tag, Summary: "Show an event by id, or list events by name", Needs: account.Viewer,
		Description: "With an id, the answer is the event. With a name or a pattern, the answer is a page of matching events, newest first.",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"application/json": {Schema: &huma.Schema{OneOf: []*huma.Schema{one, list}}}}}}}, a.showOrList)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/events", Tag: tag, Summary: "List events, newest first", Needs: account.Viewer,
		Description: "Events that matched a trigger of a job that the caller may see, and events that the caller sent. Data over 4 KiB are left out."}, a.list)
}

const noEvent = "there is no such event"

// Path is the prefix of the paths to which events are sent.
const Path = rest.Prefix + "/events/"

// AcceptedEvent lists the runs that an event fired.
type AcceptedEvent struct {
	EventID    domain.RunID     `json:"event_id"`
	Repeated   bool             `json:"repeated" doc:"Whether the event was already accepted before. If so, the other fields are those of the first answer"`
	RunIDs     []domain.RunID   `json:"run_ids" nullable:"false"`
	Deliveries []event.Delivery `json:"deliveries" nullable:"false" doc:"The result of each trigger whose pattern matches"`
}

// acceptedEvents is the answer to one event, or to a batch.
type acceptedEvents struct {
	AcceptedEvent
	Events []AcceptedEvent `json:"events,omitempty" doc:"For a batch: the result of each event. The other fields describe the first event, but run_ids lists the runs of all events"`
}

type eventsAnswer struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true if all events were already accepted before"`
	Body     acceptedEvents
}

// EventPath names an event in the path.
type EventPath struct {
	Name string `path:"name" maxLength:"128" doc:"The name of the event. A GET also accepts an id or a pattern"`
}

// EventHeaders are the headers of the request, by lower-case name.
type EventHeaders struct{ header map[string]string }

// Resolve implements huma.Resolver.
func (h *EventHeaders) Resolve(ctx huma.Context) []error {
	h.header = make(map[string]string)
	ctx.EachHeader(func(name, value string) { h.header[strings.ToLower(name)] = value })
	return nil
}

// EventsQuery selects and pages events.
type EventsQuery struct {
	rest.List
	From domain.Instant `query:"from" doc:"Received at this instant or later"`
	To   domain.Instant `query:"to" doc:"Received before this instant"`
}

// send accepts an event. It needs Postgres but not NATS.
func (a *API) send(ctx context.Context, id auth.Identity, in *struct {
	EventPath
	EventHeaders
	RawBody []byte `contentType:"application/json"`
}) (*eventsAnswer, error) {
	header := func(name string) string { return in.header[name] }
	incoming, batch, err := event.Read(in.Name, header, in.RawBody)
	if errors.Is(err, event.ErrMediaType) {
		return nil, problem.New(http.StatusUnsupportedMediaType, err.Error(), domain.FieldError{Location: "Content-Type", Message: err.Error()})
	}
	var f domain.Faults
	f.AddAll("body", err)
	key := header("idempotency-key")
	switch {
	case key == "":
	case !rest.ValidKey(key):
		f.Add("Idempotency-Key", rest.KeyRule)
	case batch:
		f.Add("Idempotency-Key", "cannot be used with a batch, because its events have their own ids")
	}
	if err := f.Err("the event is not valid"); err != nil {
		// A body that is not JSON gets the same 400 as at every other operation.
		if syntax := strict.CheckSyntax(in.RawBody); syntax != nil && strict.NamesFault(err, "body") && !strings.HasPrefix(header("content-type"), "text/") {
			return nil, syntax
		}
		return nil, err
	}
	for i := range incoming {
		e := &incoming[i]
		e.Via, e.SentBy, e.Only = event.ViaREST, id.User, id.Only()
		e.SetKey(event.KeyIdempotency, key)
	}
	accepted, err := a.Store.Accept(ctx, incoming)
	if err != nil {
		return nil, err
	}
	if key != "" && accepted[0].OtherBody {
		return nil, problem.Invalid("Idempotency-Key", "this key was used with another body")
	}
	for i := range accepted {
		accepted[i].Event = seenBy(id, accepted[i].Event)
	}
	return answer(accepted, batch), nil
}

func answer(accepted []storeevent.Accepted, batch bool) *eventsAnswer {
	out := &eventsAnswer{Replayed: "true"}
	all := []AcceptedEvent{}
	runs := []domain.RunID{}
	for _, e := range accepted {
		if !e.Repeated {
			out.Replayed = ""
		}
		all = append(all, AcceptedEvent{EventID: e.ID, Repeated: e.Repeated, RunIDs: e.Runs(), Deliveries: e.Deliveries})
		runs = append(runs, e.Runs()...)
	}
	switch {
	case len(all) == 0:
		out.Replayed, out.Body.RunIDs, out.Body.Deliveries = "", runs, []event.Delivery{}
	default:
		out.Body.AcceptedEvent = all[0]
		out.Body.RunIDs = runs
	}
	if batch {
		out.Body.Events = all
	}
	return out
}

func (a *API) showOrList(ctx context.Context, id auth.Identity, in *struct {
	EventPath
	EventsQuery
}) (*rest.Output[any], error) {
	if eventID, err := domain.ParseRunID(in.Name); err == nil {
		e, err := a.read(ctx, id, eventID)
		return rest.Answer[any](e), err
	}
	p, err := a.page(ctx, id, in.Name, "name", &in.EventsQuery)
	return rest.Answer[any](p), err
}

// read returns the parts of an event that the caller may see, NotFound if there are none.
func (a *API) read(ctx context.Context, id auth.Identity, eventID domain.RunID) (event.Event, error) {
	e, err := a.Store.Event(ctx, eventID)
	if err != nil {
		return e, err
	}
	e = seenBy(id, e)
	if id.Only() != nil && len(e.Deliveries) == 0 && e.SentBy != id.User {
		return event.Event{}, domain.NewError(domain.NotFound, noEvent)
	}
	return e, nil
}

// seenBy removes the deliveries to jobs that the caller may not see.
func seenBy(id auth.Identity, e event.Event) event.Event {
	seen := []event.Delivery{}
	for _, d := range e.Deliveries {
		if id.Sees(d.Group) {
			seen = append(seen, d)
		}
	}
	e.Deliveries = seen
	return e
}

func (a *API) list(ctx context.Context, id auth.Identity, in *struct {
	EventsQuery
	Name string `query:"name" maxLength:"128" doc:"A name, or a pattern such as orders.*"`
}) (*rest.Output[rest.Page[event.Event]], error) {
	p, err := a.page(ctx, id, in.Name, "name", &in.EventsQuery)
	return rest.Answer(p), err
}

func (a *API) page(ctx context.Context, id auth.Identity, name, location string, in *EventsQuery) (rest.Page[event.Event], error) {
	var none rest.Page[event.Event]
	if name != "" && !event.ValidPattern(name) {
		return none, problem.Invalid(location, event.PatternRule)
	}
	before, err := rest.DecodeRunCursor("event", in.Cursor)
	if err != nil {
		return none, err
	}
	f := storeevent.EventFilter{Name: name, Only: id.Only(), SentBy: id.User, Before: before, From: in.From.Time, To: in.To.Time, Limit: in.Limit + 1}
	events, err := a.Store.Events(ctx, f)
	if err != nil {
		return none, err
	}
	events = rest.Each(events, func(e event.Event) event.Event { return seenBy(id, e) })
	return rest.Cut(events, in.Limit, func(e event.Event) string { return rest.EncodeCursor("event", e.ID.String()) }), nil
}
