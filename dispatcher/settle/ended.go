package settle

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// maxRetryAfter is the longest wait that a result can ask for. A job's backoff has the same bound.
const maxRetryAfter = 7 * 24 * time.Hour

// EndedOf validates a result and converts it. The caller takes the group from the message's subject, because the executor's token
// permits only subjects of its group.
func EndedOf(group string, r wire.Result) (engine.Ended, error) {
	id, err := domain.ParseRunID(r.RunID)
	if err != nil {
		return engine.Ended{}, fmt.Errorf("run_id %q: %w", r.RunID, err)
	}
	e := engine.Ended{
		RunID: id, Attempt: r.Attempt, Bind: r.Bind, Instance: r.Instance, BootID: r.BootID, Group: group,
		Outcome: domain.Outcome(r.Outcome), Reason: domain.Reason(r.Reason).Reported(), Message: r.Message, Output: r.Output,
		RetryAfter: time.Duration(min(r.RetryAfterMS, maxRetryAfter.Milliseconds())) * time.Millisecond, Permanent: r.Permanent,
		StartedAt: r.StartedAt.Time, FinishedAt: r.FinishedAt.Time, LastLine: r.LastLine,
		ClaimsLost: r.Outcome == wire.Failed && domain.Reason(r.Reason) == domain.ReasonLost,
	}
	switch e.Outcome {
	case domain.OutcomeFailed:
		if e.Reason == domain.NoReason || e.Reason == domain.ReasonCovered { // a covered attempt is cancelled, never failed
			e.Reason = domain.ReasonHandlerError
		}
	case domain.OutcomeSucceeded, domain.OutcomeCancelled, domain.OutcomeUnstarted:
	case domain.OutcomeSkipped:
		return e, fmt.Errorf("run %s: an executor cannot report the outcome %q", id, r.Outcome)
	default:
		return e, fmt.Errorf("run %s: outcome %q is not known", id, r.Outcome)
	}
	if !wire.ValidInstance(r.Instance) || !wire.ValidBootID(r.BootID) || r.Attempt < 1 || r.Attempt > domain.MaxRetries+1 || e.LastLine < 0 || e.RetryAfter < 0 {
		return e, fmt.Errorf("run %s: instance, boot_id, attempt, last_line or retry_after_ms is missing or out of range", id)
	}
	if e.FinishedAt.IsZero() {
		return e, fmt.Errorf("run %s: finished_at is missing", id)
	}
	return e, nil
}

// FromStatus returns the end of an attempt whose result the instance still keeps. It returns nothing if the status has no
// result, because the result was settled a short time ago.
func (r *Recorder) FromStatus(run *engine.LiveRun, st wire.Status) []engine.Ended {
	if st.Result == nil {
		return nil
	}
	e, err := EndedOf(run.Group, *st.Result)
	if err != nil || e.RunID != run.ID || e.Attempt != run.Attempt {
		r.log.Warn("a status answer has an invalid result, ignoring the result", "run_id", run.ID, "trace_id", run.Context().Trace, "err", err)
		return nil
	}
	return []engine.Ended{e}
}

// of returns an Ended without an outcome for a run's current attempt.
func (r *Recorder) of(run *engine.LiveRun) engine.Ended {
	return engine.Ended{
		RunID: run.ID, Attempt: run.Attempt, Instance: run.Instance, BootID: run.BootID, Bind: run.Bind, FinishedAt: r.store.Now(),
	}
}

// Lost returns the end of a run's current attempt whose instance died or no longer knows it.
func (r *Recorder) Lost(run *engine.LiveRun, why explain.Note) engine.Ended {
	e := r.of(run)
	e.Outcome, e.Reason, e.Why = domain.OutcomeFailed, domain.ReasonLost, why
	return e
}

// TimedOut returns the end of a run's current attempt whose instance did not report the end in time.
func (r *Recorder) TimedOut(run *engine.LiveRun) engine.Ended {
	e := r.of(run)
	e.Outcome, e.Reason, e.Why = domain.OutcomeFailed, domain.ReasonTimeout, explain.Of(explain.NoReport)
	return e
}

// Killed returns the end of an attempt that had not started when it was killed.
func (r *Recorder) Killed(run *engine.LiveRun) engine.Ended {
	e := r.of(run)
	e.Outcome, e.Reason, e.Why = domain.OutcomeCancelled, run.KillReason, explain.Of(explain.NeverStarted)
	return e
}

// KilledUnbound is Killed for a run that no instance has.
func (r *Recorder) KilledUnbound(run *engine.LiveRun) engine.Ended {
	return engine.Ended{
		RunID: run.ID, Attempt: run.Attempt, Outcome: domain.OutcomeCancelled, Reason: run.KillReason, FinishedAt: r.store.Now(),
		Why: explain.Of(explain.NeverStarted),
	}
}

// Unsendable returns the end of an attempt whose offer has size bytes, which is more than the limit of a message.
func (r *Recorder) Unsendable(run *engine.LiveRun, size, limit int) engine.Ended {
	e := r.of(run)
	e.Outcome, e.Reason, e.Permanent, e.Why = domain.OutcomeFailed, domain.ReasonUnsupported, true, explain.Of(explain.OfferTooLarge, size, limit)
	return e
}

// NoExecutor returns the end of a run that no instance could take.
func (r *Recorder) NoExecutor(run domain.RunID, attempt int, why explain.Note) engine.Ended {
	return engine.Ended{
		RunID: run, Attempt: attempt, Outcome: domain.OutcomeFailed, Reason: domain.ReasonNoExecutor, Permanent: true,
		Why: why, FinishedAt: r.store.Now(),
	}
}

// EndedBefore returns the end of an attempt whose instance has kept only the outcome.
func (r *Recorder) EndedBefore(run *engine.LiveRun, outcome string) engine.Ended {
	e := r.of(run)
	e.Why = explain.Of(explain.OutputLost)
	switch outcome {
	case wire.Succeeded:
		e.Outcome = domain.OutcomeSucceeded
	case wire.Cancelled:
		e.Outcome, e.Reason = domain.OutcomeCancelled, domain.ReasonKilled
	default:
		e.Outcome, e.Reason = domain.OutcomeFailed, domain.ReasonHandlerError
	}
	return e
}
