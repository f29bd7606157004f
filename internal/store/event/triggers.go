package event

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/event/match"
	"github.com/belfryhq/belfry/internal/store/event/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Trigger returns an event trigger, or NotFound.
func (s *Store) Trigger(ctx context.Context, id int64) (event.Trigger, error) {
	return trigger(ctx, s.q, id)
}

func trigger(ctx context.Context, q *sqlcgen.Queries, id int64) (event.Trigger, error) {
	row, err := q.Trigger(ctx, id)
	if err != nil {
		if err = pgerr.Translate(err); domain.CodeOf(err) == domain.NotFound {
			err = domain.WrapError(domain.NotFound, "there is no such event trigger", err)
		}
		return event.Trigger{}, err
	}
	return toTrigger(sqlcgen.TriggersRow(row)), nil
}

// TriggerFilter selects event triggers; an empty field selects all.
type TriggerFilter struct {
	Only  []string // the groups that the caller is confined to; nil: none
	Group string
	Job   domain.JobID
	Name  string // the exact pattern
	After int64
	Limit int
}

// Triggers lists event triggers by id.
func (s *Store) Triggers(ctx context.Context, f TriggerFilter) ([]event.Trigger, error) {
	rows, err := s.q.Triggers(ctx, sqlcgen.TriggersParams{
		After: f.After, Only: f.Only, GroupName: f.Group, JobID: int64(f.Job), Name: f.Name, MaxRows: int32(f.Limit),
	})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	triggers := make([]event.Trigger, len(rows))
	for i, r := range rows {
		triggers[i] = toTrigger(r)
	}
	return triggers, nil
}

// CreateTrigger creates an event trigger. An Invalid error names the faulty fields. Conflict means that there are too
// many.
func (s *Store) CreateTrigger(ctx context.Context, spec event.TriggerSpec) (t event.Trigger, err error) {
	if err := match.Check(&spec); err != nil {
		return t, err
	}
	err = s.engine.Tx(ctx, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		id, err := q.InsertTrigger(ctx, sqlcgen.InsertTriggerParams{
			Name: spec.Name, Head: event.Head(spec.Name), JobID: int64(spec.JobID), Filter: spec.Filter, Param: spec.Param, Enabled: spec.Enabled,
		})
		if err != nil {
			return err
		}
		n, err := q.CountTriggers(ctx)
		if err != nil {
			return err
		}
		if n > MaxTriggers {
			return domain.NewError(domain.Conflict, fmt.Sprintf("there are %d event triggers, the most that are allowed", MaxTriggers))
		}
		t, err = trigger(ctx, q, id)
		return err
	})
	return t, err
}

// EditTrigger changes a trigger by edit under its lock; version 0 matches any version. An edit without changes makes no
// new version. Conflict means that the trigger has another version.
func (s *Store) EditTrigger(ctx context.Context, id int64, version int, edit func(*event.TriggerSpec) error) (before, after event.Trigger, err error) {
	err = s.engine.Tx(ctx, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		var err error
		if before, err = locked(ctx, q, id, version); err != nil {
			return err
		}
		spec := before.TriggerSpec
		if err := edit(&spec); err != nil {
			return err
		}
		if after = before; spec == before.TriggerSpec {
			return nil
		}
		if err := match.Check(&spec); err != nil {
			return err
		}
		err = q.UpdateTrigger(ctx, sqlcgen.UpdateTriggerParams{
			ID: id, Name: spec.Name, Head: event.Head(spec.Name), JobID: int64(spec.JobID), Filter: spec.Filter, Param: spec.Param, Enabled: spec.Enabled,
		})
		if err != nil {
			return err
		}
		after, err = trigger(ctx, q, id)
		return err
	})
	return before, after, err
}

// DeleteTrigger deletes a trigger; version 0 matches any version.
func (s *Store) DeleteTrigger(ctx context.Context, id int64, version int) (t event.Trigger, err error) {
	err = s.engine.Tx(ctx, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		var err error
		if t, err = locked(ctx, q, id, version); err != nil {
			return err
		}
		return q.DeleteTrigger(ctx, id)
	})
	return t, err
}

func locked(ctx context.Context, q *sqlcgen.Queries, id int64, version int) (event.Trigger, error) {
	if err := q.LockTrigger(ctx, id); err != nil {
		return event.Trigger{}, err
	}
	t, err := trigger(ctx, q, id)
	if err == nil && version != 0 && version != t.Version {
		err = domain.NewError(domain.Conflict, fmt.Sprintf("the event trigger has version %d, not %d", t.Version, version))
	}
	return t, err
}

func toTrigger(r sqlcgen.TriggersRow) event.Trigger {
	return event.Trigger{
		ID: r.ID, JobName: r.JobName, Group: r.GroupName, Version: int(r.Version), CreatedAt: domain.At(r.CreatedAt), UpdatedAt: domain.At(r.UpdatedAt),
		TriggerSpec: event.TriggerSpec{Name: r.Name, JobID: domain.JobID(r.JobID), Filter: r.Filter, Param: r.Param, Enabled: r.Enabled},
	}
}
