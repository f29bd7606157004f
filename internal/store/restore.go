package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/plan"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// Restoration is what Restored has found and changed. See the section about restores in doc.go.
type Restoration struct {
	From, To   time.Time // the last sign of life of a scheduler in the restored state; until when runs may have started since
	Jobs       int       // with uncertain fire times
	FireTimes  int       // that are uncertain, and now in the missed ledger
	Suspected  int       // attempts that were offered and may have run
	Unfinished []UnfinishedRuns
}

// UnfinishedRuns counts the unfinished runs of a group that were due by the end of the uncertain time. Those that had not started
// may have run since, and will run.
type UnfinishedRuns struct {
	Group string
	State domain.State
	Held  bool
	Runs  int
}

// restoreBatch bounds the jobs whose uncertain fire times one transaction decides about.
const restoreBatch = 200

// Restored records that the database was restored to an earlier state, and enters the fire times that are uncertain because of this
// into the missed ledger. until is when the last process of Belfry stopped that worked on the lost state; nil means now. It may be
// called again, for example after an error. It returns a Conflict if a process of Belfry is connected to the database, because
// planning would decide about uncertain fire times by the misfire policy, and Invalid if until is out of range.
func (s *Store) Restored(ctx context.Context, until *time.Time, by string) (Restoration, error) {
	var out Restoration
	if err := s.checkAlone(ctx); err != nil {
		return out, err
	}
	err := s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) (err error) {
		out, err = recordRestore(ctx, q, until, by)
		return err
	})
	if err != nil {
		return out, err
	}
	restored := domain.Disturbance{Kind: domain.Restored, From: out.From, To: out.To}
	for after, more := int64(0), true; more; {
		if after, more, err = s.decideRestored(ctx, restored, after, &out); err != nil {
			return out, err
		}
	}
	rows, err := s.q.UnfinishedRuns(ctx, out.To)
	for _, r := range rows {
		out.Unfinished = append(out.Unfinished, UnfinishedRuns{Group: r.GroupName, State: domain.State(r.State), Held: r.Held, Runs: int(r.Runs)})
	}
	return out, pgerr.Translate(err)
}

// checkAlone returns a Conflict if a role is connected to the database. The query is here because sqlc does not know
// pg_stat_activity.
func (s *Store) checkAlone(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `SELECT DISTINCT application_name FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'belfry %' AND application_name <> current_setting('application_name')
 ORDER BY 1 LIMIT 10`)
	if err != nil {
		return pgerr.Translate(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(names) > 0 {
		return domain.NewError(domain.Conflict, "stop all schedulers, dispatchers and consoles first; these are connected to the database: "+strings.Join(names, ", "))
	}
	return pgerr.Translate(err)
}

// recordRestore records the restore as a disturbance. A second call extends the record of the first one.
func recordRestore(ctx context.Context, q *sqlcgen.Queries, until *time.Time, by string) (out Restoration, err error) {
	if err := q.LockDisturbances(ctx); err != nil {
		return out, err
	}
	seen, err := q.NewestPresence(ctx)
	if err != nil {
		return out, err
	}
	now := seen.Now.UTC().Truncate(time.Millisecond)
	out.From, out.To = fromEpoch(seen.SeenAt).Truncate(time.Millisecond), now
	if out.From.IsZero() { // no scheduler has ever worked on the restored state
		out.From = now
	}
	if until != nil {
		if out.To = until.UTC().Truncate(time.Millisecond); out.To.After(now) || out.To.Before(out.From) {
			return out, domain.NewError(domain.Invalid, fmt.Sprintf(
				"the end of the uncertain time must lie between %s, when a scheduler was last at work by the restored state, and %s, the present",
				domain.At(out.From), domain.At(now)))
		}
	}
	n, err := q.SuspectStarted(ctx, now)
	if err != nil {
		return out, err
	}
	out.Suspected = int(n)
	known, err := q.Disturbances(ctx, string(domain.Restored))
	if err != nil {
		return out, err
	}
	for _, r := range known {
		if r.FromAt.UTC().Equal(out.From) { // no scheduler has worked since
			if to := r.ToAt.UTC(); to.After(out.To) {
				out.To = to
			}
			return out, q.SetDisturbance(ctx, sqlcgen.SetDisturbanceParams{ID: r.ID, FromAt: out.From, ToAt: out.To})
		}
	}
	return out, q.InsertDisturbance(ctx, sqlcgen.InsertDisturbanceParams{Kind: string(domain.Restored), FromAt: out.From, ToAt: out.To, SeenBy: by})
}

// decideRestored decides about the jobs that follow after. It returns where to continue, and whether there is more.
func (s *Store) decideRestored(ctx context.Context, restored domain.Disturbance, after int64, out *Restoration) (last int64, more bool, err error) {
	var jobs, fires int
	err = s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		last, more, jobs, fires = after, false, 0, 0
		rows, err := q.LockJobsAfter(ctx, sqlcgen.LockJobsAfterParams{After: after, Batch: restoreBatch})
		if err != nil || len(rows) == 0 {
			return err
		}
		now := rows[0].Now.UTC().Truncate(time.Millisecond)
		stranded, err := plannedBefore(ctx, q, rows, restored.To)
		if err != nil {
			return err
		}
		due := slices.DeleteFunc(slices.Clone(rows), func(r sqlcgen.LockJobsAfterRow) bool {
			undecided := r.NextDueAt != nil && !orZero(r.NextFireTime).After(restored.To)
			return !undecided && len(stranded[r.JobID]) == 0
		})
		keys := make([]versionKey, len(due))
		for i, r := range due {
			keys[i] = versionKey{domain.JobID(r.JobID), int(r.Version)}
		}
		defs, err := s.load(ctx, q, keys)
		if err != nil {
			return err
		}
		w := planWriter{unseen: now}
		last, more = rows[len(rows)-1].JobID, len(rows) == restoreBatch
		begun := time.Now()
		for i, r := range due {
			if i > 0 && time.Since(begun) > decideBudget {
				last, more = due[i-1].JobID, true
				break
			}
			def := defs[keys[i]]
			if def == nil {
				continue
			}
			compiled, _ := s.compiled(def)
			if compiled == nil {
				continue // planning will find that the job has no next fire time
			}
			j := lockedJob{key: keys[i], decided: orZero(r.DecidedThrough).UTC(), disabled: r.NextDueAt == nil}
			if !j.disabled {
				j.next = orZero(r.NextFireTime).UTC()
			}
			d, rest := plan.Restored(plan.Job{
				ID: j.key.job, Schedule: compiled, Misfire: def.Misfire, NextFire: j.next, Decided: j.decided, Stranded: stranded[r.JobID],
			}, restored, now)
			if d.Missed == nil {
				continue
			}
			w.add(j, def, d)
			jobs++
			fires += d.Missed.Count
			if rest {
				last, more = r.JobID-1, true // the same job again
				jobs--
				break
			}
		}
		if jobs == 0 && fires == 0 {
			return nil
		}
		if _, err := w.write(ctx, tx, q, now); err != nil {
			return err
		}
		return s.tellNotes(ctx, tx, q, &w.alerts, now)
	})
	out.Jobs += jobs
	out.FireTimes += fires
	return last, more, err
}

// plannedBefore returns the planned runs of jobs that were due by an instant, by job.
func plannedBefore(ctx context.Context, q *sqlcgen.Queries, jobs []sqlcgen.LockJobsAfterRow, dueBy time.Time) (map[int64][]plan.Stranded, error) {
	ids := make([]int64, len(jobs))
	for i, r := range jobs {
		ids[i] = r.JobID
	}
	rows, err := q.PlannedBefore(ctx, sqlcgen.PlannedBeforeParams{JobIds: ids, DueBy: dueBy})
	out := make(map[int64][]plan.Stranded)
	for _, r := range rows {
		out[r.JobID] = append(out[r.JobID], plan.Stranded{RunID: r.ID, FireTime: orZero(r.FireTime).UTC()})
	}
	return out, err
}

// PauseAll pauses the schedules of all groups that are not paused, and returns their number. Other pauses keep their reasons and ends.
func (s *Store) PauseAll(ctx context.Context, reason, by string) (int, error) {
	groups, err := s.q.UnpausedGroups(ctx)
	if err != nil {
		return 0, pgerr.Translate(err)
	}
	for i, g := range groups {
		if _, err := s.PauseGroup(ctx, g, reason, nil, by); err != nil && domain.CodeOf(err) != domain.NotFound {
			return i, err
		}
	}
	return len(groups), nil
}
