package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

// SentEvent is the result of sending an event.
type SentEvent struct {
	EventID    domain.RunID     `json:"event_id"`
	Repeated   bool             `json:"repeated"` // the server had accepted this event before
	RunIDs     []domain.RunID   `json:"run_ids"`
	Deliveries []event.Delivery `json:"deliveries"`
}

// SendEvent sends an event with any JSON as data. An event with a key takes effect once, however often it is sent. SendEvent
// therefore retries it if the server is unavailable.
func (c *Client) SendEvent(ctx context.Context, name string, data json.RawMessage, key string) (SentEvent, error) {
	var out SentEvent
	if key == "" {
		return out, c.call(ctx, http.MethodPost, "/events/"+url.PathEscape(name), nil, data, &out)
	}
	ctx = context.WithValue(ctx, idempotencyKey{}, key)
	backoff := firstBackoff
	for try := 1; ; try++ {
		err := c.call(ctx, http.MethodPost, "/events/"+url.PathEscape(name), nil, data, &out)
		if err == nil || try == readTries || !transient(err) || !sleep(ctx, backoff) {
			return out, err
		}
		backoff *= 4
	}
}

// idempotencyKey is the context key for the Idempotency-Key header.
type idempotencyKey struct{}

// EventFilter selects events; an empty field selects all.
type EventFilter struct {
	Name     string // or a pattern
	From, To *domain.Instant
}

// Events lists up to most events, newest first.
func (c *Client) Events(ctx context.Context, f EventFilter, most int) ([]event.Event, error) {
	q := values("name", f.Name)
	if f.From != nil {
		q.Set("from", f.From.String())
	}
	if f.To != nil {
		q.Set("to", f.To.String())
	}
	return list[event.Event](ctx, c, "/events", q, most)
}

// Event returns one event with the results of its triggers.
func (c *Client) Event(ctx context.Context, id domain.RunID) (event.Event, error) {
	return answer[event.Event](ctx, c, http.MethodGet, "/events/"+id.String(), nil, nil)
}

// EventTriggerFilter selects event triggers; an empty field selects all.
type EventTriggerFilter struct {
	Group string
	JobID domain.JobID
	Name  string // the exact text of the pattern
}

// EventTriggers lists up to most event triggers.
func (c *Client) EventTriggers(ctx context.Context, f EventTriggerFilter, most int) ([]event.Trigger, error) {
	q := values("group", f.Group, "name", f.Name)
	if f.JobID != 0 {
		q.Set("job_id", strconv.FormatInt(int64(f.JobID), 10))
	}
	return list[event.Trigger](ctx, c, "/event-triggers", q, most)
}

func eventTriggerPath(id int64) string { return "/event-triggers/" + strconv.FormatInt(id, 10) }

// EventTrigger returns the event trigger with this id.
func (c *Client) EventTrigger(ctx context.Context, id int64) (event.Trigger, error) {
	return answer[event.Trigger](ctx, c, http.MethodGet, eventTriggerPath(id), nil, nil)
}

// CreateEventTrigger creates an event trigger from a spec: an event.TriggerSpec, or any value that encodes to its JSON.
func (c *Client) CreateEventTrigger(ctx context.Context, spec any) (event.Trigger, error) {
	return answer[event.Trigger](ctx, c, http.MethodPost, "/event-triggers", nil, spec)
}

// ReplaceEventTrigger replaces the spec of an event trigger. If spec carries a version, and the trigger has another version,
// the error has status 409.
func (c *Client) ReplaceEventTrigger(ctx context.Context, id int64, spec any) (event.Trigger, error) {
	return answer[event.Trigger](ctx, c, http.MethodPut, eventTriggerPath(id), nil, spec)
}

// DeleteEventTrigger deletes an event trigger.
func (c *Client) DeleteEventTrigger(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodDelete, eventTriggerPath(id), nil, nil, nil)
}

// DeadLetters lists up to most dead letters, oldest first. An empty kind or group means all. For events, the group is the name of
// the event.
func (c *Client) DeadLetters(ctx context.Context, kind, group string, most int) ([]domain.DeadLetter, error) {
	return list[domain.DeadLetter](ctx, c, "/dead-letters", values("kind", kind, "group", group), most)
}

func letterPath(seq uint64) string { return "/dead-letters/" + strconv.FormatUint(seq, 10) }

// DeadLetter returns one dead letter.
func (c *Client) DeadLetter(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	return answer[domain.DeadLetter](ctx, c, http.MethodGet, letterPath(seq), nil, nil)
}

// ReplayDeadLetter publishes the message of a dead letter again.
func (c *Client) ReplayDeadLetter(ctx context.Context, seq uint64) error {
	return c.call(ctx, http.MethodPost, letterPath(seq)+"/replay", nil, nil, nil)
}

// DeleteDeadLetter deletes a dead letter.
func (c *Client) DeleteDeadLetter(ctx context.Context, seq uint64) error {
	return c.call(ctx, http.MethodDelete, letterPath(seq), nil, nil, nil)
}
