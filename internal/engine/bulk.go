package engine

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// BulkStep is the result of one batch of a bulk action.
type BulkStep struct {
	Ended                 bool          // the action has ended; there is nothing more to do
	Wait                  time.Duration // the next batch should begin after this time, because a group has no room for more runs
	Action                string
	Done, Skipped, Failed int
	Killed                KillResult // of a kill; the caller sends it to the instances
}

// RetryResult says what became of a batch of runs that are run again. New has one element for each processed run, in order.
type RetryResult struct {
	New  []RetriedRun
	Full string // why the other runs of the batch were not processed: a limit of their group; empty: all runs were processed
}

// RetriedRun is the new run of a final one, or the reason why there is none.
type RetriedRun struct {
	ID      domain.RunID // nil if no run was made
	Skipped bool         // the old run is gone or not final, or its job is gone
	Fault   string       // another reason why no run was made
}
