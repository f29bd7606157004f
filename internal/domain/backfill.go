package domain

import (
	"fmt"
	"time"
)

// Backfill requests a run of a job for each fire time in a range, even if a fire time already has a run.
type Backfill struct {
	From, To time.Time // From is included, To is not; future fire times are left out
	Max      int       // maximum number of fire times, counted from the first; 0: BackfillDefault
	DryRun   bool      // only return the fire times
}

// The bounds of one backfill. BackfillMax equals the bound of held runs, so that a serial job can hold a whole backfill.
const (
	BackfillDefault = 100
	BackfillMax     = MaxHeldRuns
)

// Backfilled is the result of a Backfill.
type Backfilled struct {
	RunIDs    []RunID   `json:"run_ids"`
	FireTimes []Instant `json:"fire_times"` // of the runs, in the same order
	Next      *Instant  `json:"next_from"`  // where to continue if Max ended the backfill; null: it is complete
}

// Check returns an Invalid error that names each faulty field.
func (b *Backfill) Check(now time.Time) error {
	var f Faults
	if b.From.IsZero() {
		f.Add("from", "is required: the start of the range, included")
	}
	switch {
	case b.To.IsZero():
		f.Add("to", "is required: the end of the range, not included")
	case !b.To.After(b.From):
		f.Add("to", "must be after from")
	case b.From.After(now):
		f.Add("from", "lies in the future; future fire times need no backfill")
	}
	if b.Max < 0 || b.Max > BackfillMax {
		f.Add("max", fmt.Sprintf("must be 1 to %d", BackfillMax))
	}
	return f.Err("the backfill is not valid")
}
