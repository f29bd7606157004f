package runstats

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/jobhealth"
	"github.com/belfryhq/belfry/internal/store/runstats/sqlcgen"
)

// byJob leaves the planner no other path to the health of jobs than one look into the index for each job. The planner estimates that as more
// expensive than reading the whole index.
func byJob(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET LOCAL enable_indexscan = on; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off`)
	return err
}

// addHealth adds the window's runs to the health of their jobs. hi is the end of the window. Successes come first, because failures count from
// the newest success on. Only one roll-up works at a time, so the order of the rows' locks does not matter.
func (w *window) addHealth(ctx context.Context, q *sqlcgen.Queries, hi time.Time) error {
	hour := jobhealth.Hour(hi)
	slices.Sort(w.ids) // neighbours share pages of the tables
	if err := w.addVersions(ctx, q); err != nil {
		return err
	}
	if err := w.addSuccesses(ctx, q, hour); err != nil {
		return err
	}
	return w.addFailures(ctx, q, hour)
}

func (w *window) addSuccesses(ctx context.Context, q *sqlcgen.Queries, hour int32) error {
	ids := w.jobsThat(func(j *jobRuns) bool { return len(j.durations) > 0 })
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		slices.Reverse(w.jobs[id].durations)
	}
	n, err := q.AddSuccesses(ctx, w.successes(ids, hour))
	if err != nil {
		return err
	}
	if n < int64(len(ids)) {
		created, err := q.CreateHealth(ctx, sqlcgen.CreateHealthParams{Hour: hour, JobIds: ids}) // not for deleted jobs
		if err != nil {
			return err
		}
		slices.Sort(created)
		if _, err := q.AddSuccesses(ctx, w.successes(created, hour)); err != nil {
			return err
		}
	}
	return w.recover(ctx, q, ids)
}

func (w *window) successes(ids []int64, hour int32) sqlcgen.AddSuccessesParams {
	p := sqlcgen.AddSuccessesParams{Hour: hour, JobIds: ids, Runs: make([]domain.RunID, len(ids)), Ats: make([]time.Time, len(ids)),
		Versions: make([]int32, len(ids)), Durations: make([][]byte, len(ids)), Instances: make([]string, len(ids)), Executors: make([]string, len(ids))}
	for i, id := range ids {
		j := w.jobs[id]
		p.Runs[i], p.Ats[i], p.Versions[i], p.Durations[i] = j.success.ID, j.success.At, j.success.Version, j.durations
		p.Instances[i], p.Executors[i] = j.place.instance, j.place.version
	}
	return p
}

// recover ends the streaks of the jobs whose success is newer than their newest failure.
func (w *window) recover(ctx context.Context, q *sqlcgen.Queries, ids []int64) error {
	failing, err := failingAmong(ctx, q, ids)
	if err != nil {
		return err
	}
	var p sqlcgen.RecoverParams
	for _, f := range failing {
		if success := w.jobs[f.JobID].success.ID; jobhealth.Older(f.Run, success) {
			p.JobIds, p.Runs = append(p.JobIds, f.JobID), append(p.Runs, success)
		}
	}
	if len(p.JobIds) == 0 {
		return nil
	}
	return q.Recover(ctx, p)
}

// failingAmong returns the failing jobs among some jobs, which are sorted by id. Usually few jobs are failing, so it reads all failing jobs. If there
// are more of them than jobs, it looks for each job instead.
func failingAmong(ctx context.Context, q *sqlcgen.Queries, ids []int64) ([]sqlcgen.FailingAmongRow, error) {
	all, err := q.FailingJobs(ctx, int32(len(ids)))
	if err != nil {
		return nil, err
	}
	if len(all) == len(ids) {
		return q.FailingAmong(ctx, ids)
	}
	var among []sqlcgen.FailingAmongRow
	for _, f := range all {
		if _, found := slices.BinarySearch(ids, f.JobID); found {
			among = append(among, sqlcgen.FailingAmongRow(f))
		}
	}
	return among, nil
}

func (w *window) addFailures(ctx context.Context, q *sqlcgen.Queries, hour int32) error {
	ids := w.jobsThat(func(j *jobRuns) bool { return j.failed != nil })
	if len(ids) == 0 {
		return nil
	}
	before, err := q.Failures(ctx, ids)
	if err != nil {
		return err
	}
	var known, first sqlcgen.UpdateFailuresParams
	for _, b := range before {
		p := &known
		if b.Run.IsZero() {
			p = &first
		}
		now := w.jobs[b.JobID].failed
		f := failures(b).Add(b.SuccessRun, now.runs, hour)
		p.JobIds = append(p.JobIds, b.JobID)
		p.Failings = append(p.Failings, f.Failing)
		p.Streaks = append(p.Streaks, f.Streak)
		p.Versions = append(p.Versions, f.Newest.Version)
		p.Hours = append(p.Hours, f.Hours.Hour)
		p.Runs = append(p.Runs, f.Hours.Runs)
		p.Sinces = append(p.Sinces, f.Since)
		p.Ats = append(p.Ats, f.Newest.At)
		p.FailedRuns = append(p.FailedRuns, f.Newest.ID)
		p.RecoveredBys = append(p.RecoveredBys, f.Recovered)
		p.Pasts = append(p.Pasts, append([]byte{}, f.Hours.Past...)) // not null
		p.Reasons = append(p.Reasons, now.reason)
		p.Messages = append(p.Messages, now.message)
		p.Notes = append(p.Notes, now.notes)
		p.Instances = append(p.Instances, now.place.instance)
		p.Executors = append(p.Executors, now.place.version)
	}
	if len(known.JobIds) > 0 {
		if err := q.UpdateFailures(ctx, known); err != nil {
			return err
		}
	}
	if len(first.JobIds) == 0 {
		return nil
	}
	return q.InsertFailures(ctx, sqlcgen.InsertFailuresParams(first))
}

func failures(r sqlcgen.FailuresRow) jobhealth.Failures {
	if r.Run.IsZero() {
		return jobhealth.Failures{}
	}
	return jobhealth.Failures{
		Failing: r.Failing, Streak: r.Streak, Since: r.FailingSince, Recovered: r.RecoveredBy,
		Newest: jobhealth.Run{ID: r.Run, At: r.FailedAt, Version: r.Version},
		Hours:  jobhealth.Hours{Hour: r.Hour, Runs: r.HourFailed, Past: r.PastFailed},
	}
}
