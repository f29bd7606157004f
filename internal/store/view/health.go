package view

import (
	"context"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
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

func toHealth(r sqlcgen.HealthOfJobsRow) *domain.JobHealth {
	hour := jobhealth.Hour(r.Now)
	h := &domain.JobHealth{State: domain.HealthOK}
	if r.SuccessRun != nil {
		p50, p95 := jobhealth.Milliseconds(jobhealth.Quantile(r.Durations, 0.5)), jobhealth.Milliseconds(jobhealth.Quantile(r.Durations, 0.95))
		h.P50MS, h.P95MS = &p50, &p95
		h.LastSuccess = &domain.LastSuccess{RunID: *r.SuccessRun, At: domain.At(orZero(r.SuccessAt)), Version: int(orZero(r.SuccessVersion))}
		h.LastDay.Succeeded = jobhealth.Hours{Hour: orZero(r.Hour), Runs: orZero(r.HourSucceeded), Past: r.PastSucceeded}.Day(hour)
	}
	if r.Run != nil {
		message := orZero(r.Message)
		h.LastFailure = &domain.LastFailure{RunID: *r.Run, At: domain.At(orZero(r.FailedAt)), Version: int(orZero(r.Version)),
			Reason: domain.Reason(orZero(r.Reason)), Message: message, MessageParts: explain.Notes(orZero(r.MessageNotes)).Parts(message)}
		h.LastDay.Failed = jobhealth.Hours{Hour: orZero(r.FailedHour), Runs: orZero(r.HourFailed), Past: r.PastFailed}.Day(hour)
	}
	if orZero(r.Failing) {
		h.State, h.FailingSince, h.Streak = domain.HealthFailing, instant(r.FailingSince), int(orZero(r.Streak))
	}
	return h
}
