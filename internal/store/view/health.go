package view

import (
	"bytes"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/jobchange"
	"github.com/belfryhq/belfry/internal/store/jobhealth"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// AddHealth sets the health of each job, as of the last roll-up.
func (s *Store) AddHealth(ctx context.Context, jobs []domain.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = int64(j.ID)
	}
	rows, err := s.q.HealthOfJobs(ctx, ids)
	if err != nil {
		return pgerr.Translate(err)
	}
	of := make(map[domain.JobID]*domain.JobHealth, len(rows))
	for _, r := range rows {
		of[domain.JobID(r.JobID)] = toHealth(r)
	}
	for i, j := range jobs {
		if jobs[i].Health = of[j.ID]; jobs[i].Health == nil {
			jobs[i].Health = &domain.JobHealth{State: domain.HealthUnknown}
		}
	}
	return nil
}

// AddChanges sets what changed between the last success and the last failure of a failing job whose health is set.
func (s *Store) AddChanges(ctx context.Context, j *domain.Job) error {
	h := j.Health
	if h.State != domain.HealthFailing || h.LastSuccess == nil || h.LastFailure == nil {
		return nil
	}
	changes, err := jobchange.Of(ctx, s.pool, []jobchange.Failing{{Job: j.ID, Success: *h.LastSuccess, Failure: *h.LastFailure}})
	if err == nil {
		h.Changes = changes[0]
	}
	return err
}

// lookBack is how many runs of a job before a failed run are searched for a success.
const lookBack = 1000

// SinceSuccess returns the last success of the job before a failed run, and the changes since then. The success is nil if the job has not succeeded
// before. It is also nil if the success is neither one of the 1,000 runs of the job before this run nor the newest success of the job.
func (s *Store) SinceSuccess(ctx context.Context, run domain.Run) (*domain.LastSuccess, []explain.Explanation, error) {
	success, err := s.successBefore(ctx, run)
	if success == nil || err != nil {
		return nil, nil, err
	}
	failure := domain.LastFailure{Version: run.JobVersion, Instance: run.Instance}
	if a := attemptOf(&run, int32(run.Attempt)); a != nil {
		failure.ExecutorVersion = a.ExecutorVersion
	}
	changes, err := jobchange.Of(ctx, s.pool, []jobchange.Failing{{Job: run.JobID, Success: *success, Failure: failure}})
	if err != nil {
		return nil, nil, err
	}
	return success, changes[0], nil
}

// successBefore looks in the history, and then in the health of the job, which keeps the newest success also after its retention. Shards of the
// same broadcast are not before the run.
func (s *Store) successBefore(ctx context.Context, run domain.Run) (*domain.LastSuccess, error) {
	before := domain.FirstRunID(run.ID.Time())
	r, err := s.q.SuccessBefore(ctx, sqlcgen.SuccessBeforeParams{JobID: int64(run.JobID), Before: before, MaxRows: lookBack})
	if err == nil {
		return &domain.LastSuccess{RunID: r.ID, At: domain.At(r.FinishedAt), Version: int(r.JobVersion), Instance: r.Instance, ExecutorVersion: r.Executor}, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return nil, pgerr.Translate(err)
	}
	rows, err := s.q.HealthOfJobs(ctx, []int64{int64(run.JobID)})
	if err != nil || len(rows) == 0 {
		return nil, pgerr.Translate(err)
	}
	newest := toHealth(rows[0]).LastSuccess
	if newest == nil || bytes.Compare(newest.RunID[:], before[:]) >= 0 {
		return nil, nil
	}
	return newest, nil
}

func toHealth(r sqlcgen.HealthOfJobsRow) *domain.JobHealth {
	hour := jobhealth.Hour(r.Now)
	h := &domain.JobHealth{State: domain.HealthOK}
	if r.SuccessRun != nil {
		p50, p95 := jobhealth.Milliseconds(jobhealth.Quantile(r.Durations, 0.5)), jobhealth.Milliseconds(jobhealth.Quantile(r.Durations, 0.95))
		h.P50MS, h.P95MS = &p50, &p95
		h.LastSuccess = &domain.LastSuccess{RunID: *r.SuccessRun, At: domain.At(orZero(r.SuccessAt)), Version: int(orZero(r.SuccessVersion)),
			Instance: orZero(r.SuccessInstance), ExecutorVersion: orZero(r.SuccessExecutor)}
		h.LastDay.Succeeded = jobhealth.Hours{Hour: orZero(r.Hour), Runs: orZero(r.HourSucceeded), Past: r.PastSucceeded}.Day(hour)
	}
	if r.Run != nil {
		message := orZero(r.Message)
		h.LastFailure = &domain.LastFailure{RunID: *r.Run, At: domain.At(orZero(r.FailedAt)), Version: int(orZero(r.Version)),
			Reason: domain.Reason(orZero(r.Reason)), Message: message, MessageParts: explain.Notes(orZero(r.MessageNotes)).Parts(message),
			Instance: orZero(r.Instance), ExecutorVersion: orZero(r.Executor)}
		h.LastDay.Failed = jobhealth.Hours{Hour: orZero(r.FailedHour), Runs: orZero(r.HourFailed), Past: r.PastFailed}.Day(hour)
	}
	if orZero(r.Failing) {
		h.State, h.FailingSince, h.Streak = domain.HealthFailing, instant(r.FailingSince), int(orZero(r.Streak))
	}
	return h
}
