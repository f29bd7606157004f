package view

import (
	"context"

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
