package engine

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// TracedRun is a final run as its spans show it.
type TracedRun struct {
	ID          domain.RunID
	First       domain.RunID // for a shard: its broadcast; otherwise the run itself
	ParentRunID *domain.RunID
	Trace       string // as in LiveRun
	JobID       domain.JobID
	JobVersion  int
	JobName     string // "" if the job's version is gone
	Group       string
	Cause       domain.Cause
	State       domain.State
	Reason      domain.Reason
	Attempt     int       // the last one
	Shard       *int      // the shard's index; nil: no broadcast
	FireTime    time.Time // zero: none
	CreatedAt   time.Time
	FinishedAt  time.Time
	LatenessMS  *int64
	Attempts    []TracedAttempt // in order
}

// TracedAttempt is an attempt of a final run. Zero instants are unknown: an attempt without DispatchedAt reached no instance.
type TracedAttempt struct {
	Attempt      int
	Instance     string
	Outcome      domain.State
	Reason       domain.Reason
	DispatchedAt time.Time
	StartedAt    time.Time
	FinishedAt   time.Time
}
