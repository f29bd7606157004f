package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Backfill plans a run for each fire time of the job's current schedule in a range: all of them or none. If a fire time
// already has a run, it gets another one, also from a second backfill. The runs are due at once, in order, and the
// job's block policy applies to them. If the range has more than max fire times, the result says where it continues.
// The error is Invalid if the range is faulty or the schedule has no fire times, and Limited if the group would have
// too many unfinished runs.
func (s *Store) Backfill(ctx context.Context, id domain.JobID, b domain.Backfill) (domain.Backfilled, error) {
	now := s.Now()
	if err := b.Check(now); err != nil {
		return domain.Backfilled{}, err
	}
	var out domain.Backfilled
	err := s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		row, err := q.JobRowForRun(ctx, int64(id))
		if err != nil {
			return err
		}
		job, err := jobOf(row.ID, row.Spec, row.Version, row.CreatedAt, row.UpdatedAt)
		if err != nil {
			return err
		}
		compiled, err := schedule.Compile(job.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: row.CreatedAt})
		if err != nil {
			return err
		}
		if out, err = backfillTimes(compiled, b, now); err != nil || b.DryRun || len(out.FireTimes) == 0 {
			return err
		}
		if err := s.takeRoom(ctx, q, row.ID, job.Group, domain.CauseBackfill, len(out.FireTimes)); err != nil {
			return err
		}
		p := sqlcgen.InsertBackfillParams{JobID: row.ID, JobVersion: row.Version, GroupName: job.Group, DueAt: now}
		for _, fire := range out.FireTimes {
			p.Ids = append(p.Ids, domain.NewRunID(now))
			p.FireTimes = append(p.FireTimes, fire.Time)
		}
		// Runs with the same due instant start in the order of their ids.
		slices.SortFunc(p.Ids, func(a, b domain.RunID) int { return bytes.Compare(a[:], b[:]) })
		out.RunIDs = p.Ids
		if err := q.InsertBackfill(ctx, p); err != nil {
			return err
		}
		return notify(ctx, tx)
	})
	return out, err
}

// backfillTimes returns the fire times of a range.
func backfillTimes(s *schedule.Schedule, b domain.Backfill, now time.Time) (domain.Backfilled, error) {
	out := domain.Backfilled{RunIDs: []domain.RunID{}, FireTimes: []domain.Instant{}}
	switch s.Kind() {
	case domain.ScheduleNone, domain.ScheduleFixedDelay:
		var f domain.Faults
		f.Add("from", "the job's schedule is of kind "+string(s.Kind())+", which has no fire times of its own; trigger it instead")
		return out, f.Err("the backfill is not valid")
	case domain.ScheduleCron, domain.ScheduleFixedRate, domain.ScheduleOnce:
	}
	most := b.Max
	if most == 0 {
		most = domain.BackfillDefault
	}
	for t, ok := s.Next(b.From.Add(-1)); ok && t.Before(b.To) && !t.After(now); t, ok = s.Next(t) {
		if len(out.FireTimes) == most {
			out.Next = domain.AtPtr(t)
			break
		}
		out.FireTimes = append(out.FireTimes, domain.At(t))
	}
	return out, nil
}
