package domain

// State is the state of a run.
type State string

// The states of a run. The last four are final and never change.
const (
	Pending   State = "pending"   // planned: not yet due, or held by its block policy
	Queued    State = "queued"    // due; no executor has started it yet
	Running   State = "running"   // an executor runs its handler
	Retrying  State = "retrying"  // waits for its next attempt
	Succeeded State = "succeeded" // the handler returned without an error
	Failed    State = "failed"    // it failed, and no retry is left
	Cancelled State = "cancelled" // killed, covered by a newer run, or its job was deleted
	Skipped   State = "skipped"   // its block policy dropped it before it started
)

// Causes lists all causes.
var Causes = []Cause{CauseSchedule, CauseMisfire, CauseManual, CauseAPI, CauseEvent, CauseChild, CauseBackfill}

// States lists all states in the order in which a run passes through them.
var States = []State{Pending, Queued, Running, Retrying, Succeeded, Failed, Cancelled, Skipped}

// Final reports whether the state never changes again.
func (s State) Final() bool {
	switch s {
	case Succeeded, Failed, Cancelled, Skipped:
		return true
	case Pending, Queued, Running, Retrying:
	}
	return false
}

// transitions is the complete state machine. A state without an entry is final.
//
//   - pending → queued: the run is fired. pending → final: it is killed, its job is deleted, or its block policy drops it.
//   - queued → pending: the route chooses an instance for a waiting run, and another run of the job blocks it there. It is held.
//   - queued → queued: the same attempt gets a new binding. This is no transition and therefore not in the table.
//   - queued → final without running in between is the rule for short runs: `running` is only written for
//     those that last over a second.
//   - running → queued happens when an instance reports that it could not start what it had accepted.
var transitions = map[State][]State{
	Pending:  {Queued, Failed, Cancelled, Skipped},
	Queued:   {Pending, Running, Retrying, Succeeded, Failed, Cancelled, Skipped},
	Running:  {Queued, Retrying, Succeeded, Failed, Cancelled},
	Retrying: {Queued, Failed, Cancelled},
}

// CanBecome reports whether a run in state s may change to state t.
func (s State) CanBecome(t State) bool {
	for _, next := range transitions[s] {
		if next == t {
			return true
		}
	}
	return false
}

// Reason says why a run ended or retries, beyond its state.
type Reason string

// The reasons of a final or retrying run.
const (
	NoReason              Reason = ""
	ReasonHandlerError    Reason = "handler_error"
	ReasonHandlerPanic    Reason = "handler_panic"
	ReasonHandlerNotFound Reason = "handler_not_found"
	ReasonTimeout         Reason = "timeout"
	ReasonLost            Reason = "lost"    // its instance died
	ReasonDrained         Reason = "drained" // its instance shut down before the handler ended
	ReasonNoExecutor      Reason = "no_executor"
	ReasonQueueFull       Reason = "queue_full"
	ReasonKilled          Reason = "killed"
	ReasonDiscarded       Reason = "discarded"
	ReasonCovered         Reason = "covered"
	ReasonJobDeleted      Reason = "job_deleted"
	ReasonBadScript       Reason = "bad_script"
	ReasonUnsupported     Reason = "unsupported"
)

// Reasons lists all reasons.
var Reasons = []Reason{
	ReasonHandlerError, ReasonHandlerPanic, ReasonHandlerNotFound, ReasonTimeout, ReasonLost, ReasonDrained, ReasonNoExecutor,
	ReasonQueueFull, ReasonKilled, ReasonDiscarded, ReasonCovered, ReasonJobDeleted, ReasonBadScript, ReasonUnsupported,
}

// Reported returns the reason if an executor may report it, otherwise ReasonHandlerError.
func (r Reason) Reported() Reason {
	switch r {
	case NoReason, ReasonHandlerError, ReasonHandlerPanic, ReasonHandlerNotFound, ReasonTimeout, ReasonDrained, ReasonKilled, ReasonCovered,
		ReasonBadScript, ReasonUnsupported:
		return r
	case ReasonLost, ReasonNoExecutor, ReasonQueueFull, ReasonDiscarded, ReasonJobDeleted:
	}
	return ReasonHandlerError
}

// RetryAtOnce reports whether the next attempt, if the retry policy allows one, starts without the job's backoff, because the
// instance caused the end of the attempt and not the job.
func (r Reason) RetryAtOnce() bool { return r == ReasonDrained }

// AvoidsInstance reports whether the next attempt goes to another instance, if one qualifies.
func (r Reason) AvoidsInstance() bool { return r == ReasonLost || r == ReasonDrained }

// Cause says why a run exists.
type Cause string

// The causes of a run.
const (
	CauseSchedule Cause = "schedule"
	CauseMisfire  Cause = "misfire"
	CauseManual   Cause = "manual"
	CauseAPI      Cause = "api"
	CauseEvent    Cause = "event"
	CauseChild    Cause = "child"
	CauseBackfill Cause = "backfill"
)

// Outcome is the result of an attempt as the executor reports it.
type Outcome string

// The outcomes of an attempt. Unstarted means that the executor could not start an attempt that it had accepted. The same
// attempt is then routed again.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeUnstarted Outcome = "unstarted"
	// OutcomeSkipped never comes from an executor: the block policy dropped the run before it started.
	OutcomeSkipped Outcome = "skipped"
)
