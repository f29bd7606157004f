package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/alerts/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/trace"
)

// Compose gathers the content of an alert. Data that no longer exists, such as an expired run, is left out.
func (s *Store) Compose(ctx context.Context, note engine.AlertNote) (alert.Composed, error) {
	since := note.Since
	c := alert.Composed{Message: alert.Message{
		Kind: note.Kind, At: domain.At(time.Now()), JobID: note.JobID, Count: note.Count, Since: &since, Missed: note.Missed,
	}}
	raw, err := s.q.JobVersion(ctx, sqlcgen.JobVersionParams{JobID: int64(note.JobID), Version: int32(note.JobVersion)})
	if errors.Is(err, pgx.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, pgerr.Translate(err)
	}
	spec := domain.DefaultJobSpec()
	if err := json.Unmarshal(raw, &spec); err != nil {
		return c, domain.WrapError(domain.Internal, "a stored job cannot be read", err)
	}
	c.RunbookURL = spec.RunbookURL
	c.Job, c.Group, c.Channels = spec.Name, spec.Group, slices.Compact(slices.Sorted(slices.Values(spec.Alert.Channels)))
	if s.url != "" {
		c.URL = fmt.Sprintf("%s/jobs/%d", s.url, note.JobID)
	}
	if note.RunID.IsZero() {
		return c, nil
	}
	c.RunID = note.RunID.String()
	if s.url != "" {
		c.URL = s.url + "/runs/" + c.RunID
	}
	return c, s.addRun(ctx, &c, note, &spec)
}

// addRun adds the run; for a broadcast, it adds the shard that failed first.
func (s *Store) addRun(ctx context.Context, c *alert.Composed, note engine.AlertNote, spec *domain.JobSpec) error {
	id := note.RunID
	r, err := s.q.Run(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return pgerr.Translate(err)
	}
	// A late alert of a broadcast is about its shard; any other alert is about all shards.
	if note.Kind != domain.AlertLate && orZero(r.BroadcastID) == id {
		c.Shards = int(r.ShardTotal)
		shards, err := s.q.Shards(ctx, sqlcgen.ShardsParams{
			BroadcastID: &id, Lo: domain.FirstRunID(id.Time()), Hi: domain.FirstRunID(id.Time().Add(time.Millisecond)),
		})
		if err != nil {
			return pgerr.Translate(err)
		}
		c.ShardsBad = int(shards.Bad)
		if !shards.Worst.IsZero() {
			id = shards.Worst
			if r, err = s.q.Run(ctx, id); err != nil {
				return pgerr.Translate(err)
			}
		}
	}
	c.State, c.Cause, c.Reason, c.Message.Message = domain.State(r.State), domain.Cause(r.Cause), domain.Reason(r.Reason), r.Message
	c.Parts = explain.Notes(r.MessageNotes).Parts(r.Message)
	c.Instance, c.Attempt, c.MaxAttempts = r.Instance, int(r.Attempt), spec.Retries+1
	first := id
	if r.BroadcastID != nil {
		first = *r.BroadcastID
	}
	c.TraceID = trace.Of(r.Trace, first).Trace.String()
	c.TraceURL = trace.URL(s.traceURL, c.TraceID)
	if note.Kind == domain.AlertLate && r.LatenessMs != nil {
		c.LatenessMS = *r.LatenessMs
	}
	if r.FireTime != nil {
		zone := s.zone
		if z, err := time.LoadLocation(spec.Schedule.TimeZone); err == nil && spec.Schedule.TimeZone != "" {
			zone = z
		}
		c.FireTime, c.LocalTime = domain.AtPtr(*r.FireTime), r.FireTime.In(zone).Format("2006-01-02 15:04:05 MST")
	}
	if note.Kind != domain.AlertFailed || r.LastLine == 0 {
		return nil
	}
	return s.addLog(ctx, c, id, r.Attempt, r.LastLine)
}

// addLog adds the last lines of an attempt's log.
func (s *Store) addLog(ctx context.Context, c *alert.Composed, id domain.RunID, attempt int32, last int64) error {
	chunks, err := s.q.LastChunks(ctx, sqlcgen.LastChunksParams{RunID: id, Attempt: attempt})
	if err != nil {
		return pgerr.Translate(err)
	}
	c.LogComes = len(chunks) == 0 || chunks[0].LastLine < last
	for _, chunk := range slices.Backward(chunks) {
		lines, err := logchunk.Decode(chunk.Lines)
		if err != nil {
			continue // a damaged chunk must not prevent the alert
		}
		for _, l := range lines {
			c.Log = append(c.Log, l.Text)
		}
		c.Log = slices.Clone(c.Log[max(0, len(c.Log)-alert.MaxLogLines):])
	}
	return nil
}

// RecordTx stores an alert with a delivery for each of its channels, and returns its id.
func (s *Store) RecordTx(ctx context.Context, tx pgx.Tx, c alert.Composed) (int64, error) {
	content, err := json.Marshal(c.Message.Bounded())
	if err != nil {
		return 0, domain.WrapError(domain.Internal, "write the alert", err)
	}
	q := s.q.WithTx(tx)
	p := sqlcgen.InsertAlertParams{Kind: string(c.Kind), JobID: int64(c.JobID), JobName: c.Job, GroupName: c.Group, Content: content, At: c.At.Time}
	if id, err := domain.ParseRunID(c.RunID); err == nil {
		p.RunID = &id
	}
	id, err := q.InsertAlert(ctx, p)
	if err != nil {
		return 0, pgerr.Translate(err)
	}
	return id, pgerr.Translate(q.InsertDeliveries(ctx, sqlcgen.InsertDeliveriesParams{AlertID: id, Channels: c.Channels}))
}

// DeliveryState is the state of a delivery.
type DeliveryState string

// The states of a delivery.
const (
	Pending   DeliveryState = "pending"   // not tried yet, or waiting for the next try
	Delivered DeliveryState = "delivered" // accepted by the channel
	Failed    DeliveryState = "failed"    // given up
)

// DeliveryStates are all states.
var DeliveryStates = []DeliveryState{Pending, Delivered, Failed}

// Pending returns the message to deliver. NotFound means that the delivery has ended or the alert is no longer kept.
func (s *Store) Pending(ctx context.Context, id int64, channel string) (alert.Message, error) {
	r, err := s.q.Delivery(ctx, sqlcgen.DeliveryParams{AlertID: id, Channel: channel})
	if err != nil {
		return alert.Message{}, pgerr.Translate(err)
	}
	if DeliveryState(r.State) != Pending {
		return alert.Message{}, domain.NewError(domain.NotFound, "the delivery has ended")
	}
	return message(id, r.Content)
}

func message(id int64, content []byte) (m alert.Message, err error) {
	if err := json.Unmarshal(content, &m); err != nil {
		return m, domain.WrapError(domain.Internal, "a stored alert cannot be read", err)
	}
	m.ID = strconv.FormatInt(id, 10)
	return m, nil
}

// Try records the result of a delivery attempt: cause is nil if it succeeded, and final means that there is no further
// attempt.
func (s *Store) Try(ctx context.Context, id int64, channel string, tries int, cause error, final bool) error {
	return s.try(ctx, s.q, id, channel, tries, cause, final)
}

// DeliveredTx records that a channel accepted an alert, in the transaction that completes the delivery.
func (s *Store) DeliveredTx(ctx context.Context, tx pgx.Tx, id int64, channel string, tries int) error {
	return s.try(ctx, s.q.WithTx(tx), id, channel, tries, nil, true)
}

func (s *Store) try(ctx context.Context, q *sqlcgen.Queries, id int64, channel string, tries int, cause error, final bool) error {
	p := sqlcgen.SetDeliveryParams{AlertID: id, Channel: channel, Tries: int32(tries), State: string(Delivered)}
	if cause != nil {
		p.State, p.Error = string(Pending), cause.Error()
		if final {
			p.State = string(Failed)
		}
	}
	return pgerr.Translate(q.SetDelivery(ctx, p))
}

// AlertEntry is an alert with its deliveries.
type AlertEntry struct {
	alert.Message
	Deliveries []AlertDelivery `json:"deliveries" nullable:"false"`
}

// AlertDelivery is the state of an alert's delivery to one channel.
type AlertDelivery struct {
	Channel   string         `json:"channel"`
	State     DeliveryState  `json:"state"`
	Tries     int            `json:"tries"`
	Error     string         `json:"error,omitempty" doc:"The error of the latest attempt to deliver. Only admins see it"`
	UpdatedAt domain.Instant `json:"updated_at"`
}

// Filter selects alerts; a zero field selects all.
type Filter struct {
	Only   []string // the groups that the caller may see; nil: all
	Group  string
	Job    domain.JobID
	Kind   domain.AlertKind
	State  DeliveryState // of any of its deliveries
	Before int64         // older than this one
	Limit  int
}

// Alerts lists alerts, newest first.
func (s *Store) Alerts(ctx context.Context, f Filter) ([]AlertEntry, error) {
	p := sqlcgen.AlertsParams{Before: f.Before, Only: f.Only, MaxRows: int32(f.Limit), GroupName: nonZero(f.Group), JobID: nonZero(int64(f.Job)),
		Kind: nonZero(string(f.Kind)), State: nonZero(string(f.State))}
	if p.Before == 0 {
		p.Before = math.MaxInt64
	}
	rows, err := s.q.Alerts(ctx, p)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]AlertEntry, len(rows))
	ids := make([]int64, len(rows))
	at := make(map[int64]int, len(rows))
	for i, r := range rows {
		if out[i].Message, err = message(r.ID, r.Content); err != nil {
			return nil, err
		}
		out[i].Deliveries = []AlertDelivery{}
		ids[i], at[r.ID] = r.ID, i
	}
	deliveries, err := s.q.Deliveries(ctx, ids)
	for _, d := range deliveries {
		a := &out[at[d.AlertID]]
		a.Deliveries = append(a.Deliveries, AlertDelivery{
			Channel: d.Channel, State: DeliveryState(d.State), Tries: int(d.Tries), Error: d.Error, UpdatedAt: domain.At(d.UpdatedAt),
		})
	}
	return out, pgerr.Translate(err)
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func nonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// givenUpAfter is the time after which a delivery without news counts as failed: all its tries are over by then.
const givenUpAfter = 24 * time.Hour

// Sweep deletes alerts that are older than keep, and ends deliveries whose worker no longer exists. It is called
// periodically.
func (s *Store) Sweep(ctx context.Context, keep time.Duration) error {
	now := time.Now()
	if _, err := s.q.GiveUpDeliveries(ctx, now.Add(-givenUpAfter)); err != nil {
		return pgerr.Translate(err)
	}
	if err := s.q.DropStates(ctx, now.Add(-keep)); err != nil {
		return pgerr.Translate(err)
	}
	for {
		n, err := s.q.DropAlerts(ctx, now.Add(-keep))
		if err != nil || n == 0 {
			return pgerr.Translate(err)
		}
	}
}
