package domain

import "time"

// Trigger asks for runs of a job outside its schedule.
type Trigger struct {
	Param    *string    // nil: the job's
	Instance string     // "": routed as usual
	FireTime *time.Time // nil: now; the nominal instant that the handler sees
	Cause    Cause      // CauseManual or CauseAPI
}
