package domain

import "time"

// Trigger is a request to run a job outside its schedule.
type Trigger struct {
	Param    *string    // nil: the job's
	Instance string     // "": the job's route chooses
	FireTime *time.Time // the nominal instant that the handler sees; nil: now
	Cause    Cause      // CauseManual or CauseAPI
	Trace    string     // the trace that the run continues, in the form of package trace; "": it begins its own
}

// Retry says how a retry of a final run differs from that run.
type Retry struct {
	Param    *string // nil: the param with which the run was triggered, or else the job's
	Instance string  // "": the job's route chooses
}
