package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Silence is the time without a sign of life after which a scheduler counts as absent.
const Silence = 6 * time.Second

// presenceKept is how long the presence of schedulers is kept: a little longer than runs are kept by default.
const presenceKept = 32 * 24 * time.Hour

// Attend records that a scheduler is running. It extends the presence that it returned before, 0 at first. If that
// presence has been silent for too long, it begins a new one.
func (s *Store) Attend(ctx context.Context, presence int64, scheduler string) (int64, error) {
	if presence != 0 {
		n, err := s.q.ExtendPresence(ctx, sqlcgen.ExtendPresenceParams{ID: presence, Silence: Silence})
		if err != nil || n > 0 {
			return presence, pgerr.Translate(err)
		}
	}
	id, err := s.q.BeginPresence(ctx, scheduler)
	if err != nil {
		return 0, pgerr.Translate(err)
	}
	return id, pgerr.Translate(s.q.ForgetPresence(ctx, presenceKept))
}

// RecordDisturbance stores a disturbance for the fire check. If another process has recorded the same disturbance, it
// combines both observations: each one bounds the moment of a step, and each scheduler knows a part of an absence of
// Postgres. Disturbances are kept as long as the presence of schedulers.
func (s *Store) RecordDisturbance(ctx context.Context, d domain.Disturbance, by string) error {
	return s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
		if err := q.LockDisturbances(ctx); err != nil {
			return err
		}
		rows, err := q.Disturbances(ctx, string(d.Kind))
		if err != nil {
			return err
		}
		for _, r := range rows {
			old := domain.Disturbance{Kind: d.Kind, From: r.FromAt.UTC(), To: r.ToAt.UTC(), Step: time.Duration(r.StepMs) * time.Millisecond}
			if old.Same(&d) {
				both := old.Combine(&d)
				return q.SetDisturbance(ctx, sqlcgen.SetDisturbanceParams{ID: r.ID, FromAt: both.From, ToAt: both.To})
			}
		}
		if err := q.InsertDisturbance(ctx, sqlcgen.InsertDisturbanceParams{
			Kind: string(d.Kind), FromAt: d.From, ToAt: d.To, StepMs: d.Step.Milliseconds(), SeenBy: by,
		}); err != nil {
			return err
		}
		return q.ForgetDisturbances(ctx, presenceKept)
	})
}

// ClaimFireCheck claims the periodic fire check for its lease, or extends the claim, and returns the progress of the check.
// It returns false while another owner holds the claim.
func (s *Store) ClaimFireCheck(ctx context.Context, owner string, lease time.Duration) (round firecheck.Round, now time.Time, ok bool, err error) {
	rows, err := s.q.ClaimFireCheck(ctx, sqlcgen.ClaimFireCheckParams{Owner: owner, Lease: lease})
	if err != nil || len(rows) == 0 {
		return round, now, false, pgerr.Translate(err)
	}
	r := rows[0]
	return firecheck.Round{
		Through: r.Through.UTC(), Upto: fromEpoch(r.Upto), BeganAt: r.RoundAt.UTC(),
		Cursor: firecheck.Cursor{Job: domain.JobID(r.JobID), Due: fromEpoch(r.DueAt)},
	}, r.Now.UTC(), true, nil
}

// SaveFireCheck stores the progress of the fire check, unless its owner has lost the claim. If a page was checked and not saved,
// it is checked again, which changes nothing.
func (s *Store) SaveFireCheck(ctx context.Context, owner string, round firecheck.Round) error {
	_, err := s.q.SaveFireCheck(ctx, sqlcgen.SaveFireCheckParams{
		Owner: owner, Through: round.Through, Upto: epoch(round.Upto), JobID: int64(round.Cursor.Job),
		DueAt: epoch(round.Cursor.Due), RoundAt: round.BeganAt,
	})
	return pgerr.Translate(err)
}

// ReleaseFireCheck gives up the claim on the fire check.
func (s *Store) ReleaseFireCheck(ctx context.Context, owner string) error {
	return pgerr.Translate(s.q.ReleaseFireCheck(ctx, owner))
}

// OldestUndecided returns the next due instant that planning has to decide about, or zero.
func (s *Store) OldestUndecided(ctx context.Context) (time.Time, error) {
	due, err := s.q.OldestUndecided(ctx)
	return fromEpoch(due), pgerr.Translate(err)
}

// LedgerUnexplained records unexplained fire times in the missed ledger and returns those it recorded, after a second check
// under the lock of the job's planning. None of them can get a run afterwards. PlanDue and PlanStranded decide from
// next_fire_time on, and fire times at or after it are left out here. An edit plans only fire times after KeptThrough, the
// newest one that has a run or an entry. With the new entry, KeptThrough is this fire time or a later one. All other runs have
// random ids.
func (s *Store) LedgerUnexplained(ctx context.Context, gap firecheck.Unexplained) (entered []time.Time, err error) {
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		entered = nil
		due, err := q.LockJob(ctx, int64(gap.JobID))
		if domain.CodeOf(pgerr.Translate(err)) == domain.NotFound {
			return nil // the job is deleted, so no caller can read its ledger
		}
		if err != nil {
			return err
		}
		open, err := stillOpen(ctx, q, gap, due)
		if err != nil {
			return err
		}
		p := entries(gap, open)
		if len(p.JobIds) == 0 {
			return nil
		}
		for _, f := range gap.FireTimes {
			if open[f.UnixMilli()] {
				entered = append(entered, f)
			}
		}
		if err := q.InsertMissed(ctx, p); err != nil {
			return err
		}
		return s.tellUnexplained(ctx, tx, q, gap, p)
	})
	return entered, err
}

// stillOpen returns, by Unix milliseconds, the fire times that planning has passed and that have neither a run nor an
// entry.
func stillOpen(ctx context.Context, q *sqlcgen.Queries, gap firecheck.Unexplained, due sqlcgen.LockJobRow) (map[int64]bool, error) {
	open := make(map[int64]bool, len(gap.FireTimes))
	ids := make([]domain.RunID, len(gap.FireTimes))
	times := make(map[domain.RunID]time.Time, len(ids))
	for i, f := range gap.FireTimes {
		ids[i] = domain.ScheduledRunID(gap.JobID, f, 0)
		times[ids[i]] = f
		decided := due.NextDueAt == nil || orZero(due.NextFireTime).After(f)
		open[f.UnixMilli()] = decided
	}
	last := gap.FireTimes[len(gap.FireTimes)-1]
	known, err := q.KnownRuns(ctx, sqlcgen.KnownRunsParams{
		Ids: ids, Lo: domain.FirstRunID(gap.FireTimes[0]), Hi: domain.FirstRunID(last.Add(time.Millisecond)),
	})
	if err != nil {
		return nil, err
	}
	for _, id := range known {
		open[times[id].UnixMilli()] = false
	}
	ledgered, err := q.LedgeredFires(ctx, sqlcgen.LedgeredFiresParams{JobID: int64(gap.JobID), FireTimes: gap.FireTimes})
	for _, f := range ledgered {
		open[f.UnixMilli()] = false
	}
	return open, err
}

// entries makes one ledger entry for each unbroken sequence of open fire times.
func entries(gap firecheck.Unexplained, open map[int64]bool) (p sqlcgen.InsertMissedParams) {
	why := explain.Of(explain.Unexplained, gap.Version)
	adjoins := false
	for _, f := range gap.FireTimes {
		if !open[f.UnixMilli()] {
			adjoins = false
			continue
		}
		if adjoins {
			n := len(p.Lasts) - 1
			p.Lasts[n] = f
			p.Counts[n]++
			continue
		}
		adjoins = true
		p.JobIds = append(p.JobIds, int64(gap.JobID))
		p.Groups = append(p.Groups, "") // looked up by the table's trigger: the job may have moved to another group, or be deleted
		p.Firsts = append(p.Firsts, f)
		p.Lasts = append(p.Lasts, f)
		p.Counts = append(p.Counts, 1)
		p.Policies = append(p.Policies, string(gap.Misfire))
		p.Whys = append(p.Whys, why.English())
		p.WhyNotes = append(p.WhyNotes, string(why))
	}
	return p
}
