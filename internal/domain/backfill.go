package domain

import (
	"fmt"
	"time"
)

// Backfill asks for a run of a job for each fire time of a range, whatever runs there are of them.
type Backfill struct {
	From, To time.Time // from From on and before To; what lies ahead is left out
	Max      int       // fire times at most, from the first on; 0: BackfillDefault
	DryRun   bool      // only says which fire times there are
}

// The bounds of one backfill. A job's held runs have the same bound, so that a serial job can take one whole.
const (
	BackfillDefault = 100
	BackfillMax     = MaxHeldRuns
)

// Backfilled is what came of a Backfill.
type Backfilled struct {
	RunIDs    []RunID   `json:"run_ids"`
	FireTimes []Instant `json:"fire_times"` // of the runs, in the same order
	Next      *Instant  `json:"next_from"`  // where the range goes on behind Max; null: this is all
}

// Check returns what is wrong with the range, as an Invalid error.
func (b *Backfill) Check(now time.Time) error {
	var f Faults
	if b.From.IsZero() {
		f.Add("from", "is required: the first fire time that may be meant")
	}
	switch {
	case b.To.IsZero():
		f.Add("to", "is required: fire times before it are meant")
	case !b.To.After(b.From):
		f.Add("to", "must be after from")
	case b.From.After(now):
		f.Add("from", "lies ahead; what is to come fires by itself")
	}
	if b.Max < 0 || b.Max > BackfillMax {
		f.Add("max", fmt.Sprintf("must be 1 to %d", BackfillMax))
	}
	return f.Err("the backfill is not valid")
}
