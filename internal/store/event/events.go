package event

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/store/event/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Event returns an event's record. The error is NotFound if there is none or it is no longer kept.
func (s *Store) Event(ctx context.Context, id domain.RunID) (event.Event, error) {
	row, err := s.q.Event(ctx, id)
	if err != nil {
		if err = pgerr.Translate(err); domain.CodeOf(err) == domain.NotFound {
			err = domain.WrapError(domain.NotFound, "there is no such event", err)
		}
		return event.Event{}, err
	}
	return toEvent(row)
}

// EventFilter selects events; an empty field selects all.
type EventFilter struct {
	Name     string   // or a pattern
	Only     []string // the groups that the caller is confined to; nil: none
	SentBy   string   // the caller, who sees the events that it sent itself
	From, To time.Time
	Before   domain.RunID // only those with a smaller id; zero: from the newest on
	Limit    int
}

// listedDataMax bounds the data of each event in a list.
const listedDataMax = 4 << 10

// Events lists events, newest first. Data longer than 4 KiB is left out.
func (s *Store) Events(ctx context.Context, f EventFilter) ([]event.Event, error) {
	p := sqlcgen.EventsParams{
		First: domain.FirstRunID(f.From), Before: f.Before, Only: f.Only, SentBy: f.SentBy, DataMax: listedDataMax, MaxRows: int32(f.Limit),
	}
	if f.From.IsZero() {
		p.First = domain.NilRunID
	}
	to := domain.FirstRunID(f.To)
	if f.To.IsZero() {
		to = domain.FirstRunID(s.engine.Now().Add(time.Hour))
	}
	if p.Before.IsZero() || slices.Compare(to[:], p.Before[:]) < 0 {
		p.Before = to
	}
	if p.Name = f.Name; strings.ContainsAny(f.Name, "*>") {
		p.Name, p.Pattern = "", expression(f.Name)
	}
	rows, err := s.q.Events(ctx, p)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	events := make([]event.Event, len(rows))
	for i, r := range rows {
		whole := sqlcgen.Event{
			ID: r.ID, Name: r.Name, Source: r.Source, Type: r.Type, Subject: r.Subject, Key: r.Key, At: r.At, ReceivedAt: r.ReceivedAt,
			Via: r.Via, SentBy: r.SentBy, DataBytes: r.DataBytes, Groups: r.Groups, Deliveries: r.Deliveries,
		}
		if r.Data != "" {
			whole.Data = &r.Data
		}
		if events[i], err = toEvent(whole); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// expression returns the regular expression for a pattern.
func expression(pattern string) string {
	tokens := strings.Split(pattern, ".")
	for i, t := range tokens {
		switch t {
		case "*":
			tokens[i] = `[^.]+`
		case ">":
			tokens[i] = `.+`
		default:
			tokens[i] = regexp.QuoteMeta(t)
		}
	}
	return `^` + strings.Join(tokens, `\.`) + `$`
}

func toEvent(r sqlcgen.Event) (event.Event, error) {
	e := event.Event{
		ID: r.ID, Name: r.Name, Source: r.Source, Type: r.Type, Subject: r.Subject, Key: r.Key, Time: domain.At(r.At),
		ReceivedAt: domain.At(r.ReceivedAt), Via: event.Via(r.Via), SentBy: r.SentBy, DataBytes: int(r.DataBytes),
	}
	if r.Data != nil {
		e.Data = json.RawMessage(*r.Data)
	}
	if err := json.Unmarshal(r.Deliveries, &e.Deliveries); err != nil {
		return e, fmt.Errorf("read the deliveries of event %s: %w", r.ID, err)
	}
	return e, nil
}

// keysBatch bounds the keys that one statement deletes.
const keysBatch = 10_000

// DropDays deletes events that are older than keep: their keys, and the days of their records.
func (s *Store) DropDays(ctx context.Context, keep time.Duration) error {
	now := s.engine.Now()
	for {
		n, err := s.q.DeleteOldKeys(ctx, sqlcgen.DeleteOldKeysParams{Before: now.Add(-keep), MaxRows: keysBatch})
		if err != nil {
			return pgerr.Translate(err)
		}
		if n < keysBatch {
			break
		}
	}
	rows, err := s.engine.Pool().Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = 'events' AND p.relnamespace = current_schema()::regnamespace ORDER BY 1`)
	if err != nil {
		return pgerr.Translate(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return pgerr.Translate(err)
	}
	for _, name := range names {
		day, err := time.Parse("20060102", strings.TrimPrefix(name, "events_"))
		if err != nil || now.Sub(day.AddDate(0, 0, 1)) < keep {
			continue
		}
		if err := s.dropDay(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// dropDay drops one partition. It waits for the lock only briefly, because DropDays runs again an hour later.
func (s *Store) dropDay(ctx context.Context, name string) error {
	return s.engine.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('belfry.make_day', 0))`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '200ms'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DROP TABLE IF EXISTS `+pgx.Identifier{name}.Sanitize())
		return err
	})
}
