package engine

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Definition is one version of a job, which never changes.
type Definition struct {
	JobID     domain.JobID
	Version   int
	CreatedAt time.Time // of the job, the anchor of fixed_rate
	domain.JobSpec
}

// VersionKey names one version of a job.
type VersionKey struct {
	Job     domain.JobID
	Version int
}

// Definitions are versions of jobs.
type Definitions map[VersionKey]*Definition

// Of returns one version, nil if it is not among them.
func (d Definitions) Of(job domain.JobID, version int) *Definition {
	return d[VersionKey{job, version}]
}

// WaitsAs names the room that runs of the job wait for which may run on the given instance only, or on any where it is "".
func (d *Definition) WaitsAs(pin string) WaitingKey {
	k := WaitingKey{Group: d.Group, Target: d.Target(), Pin: pin}
	if pin == "" && d.Route.Asks() {
		k.Apart = d.JobID
	}
	return k
}

// Due is what a ring holds of a planned run: its id, and what Fire's compare-and-set checks, so that a run that
// was edited, killed or taken by another since is left alone.
type Due struct {
	RunID      domain.RunID
	JobID      domain.JobID
	JobVersion int
	Attempt    int
	DueAt      time.Time
	Pin        string       // the only instance that may take it
	Avoid      string       // the instance that just lost it
	Broadcast  domain.RunID // of a shard: its broadcast, which owns the block slot
	AtDue      bool         // it was fired ahead of due and found its block slot taken: fire it at due
}

// Owner is who owns the run's block slot: the run, or the broadcast that it is a shard of.
func (d *Due) Owner() domain.RunID {
	if !d.Broadcast.IsZero() {
		return d.Broadcast
	}
	return d.RunID
}

// Binding is the decision to give a run to an instance, or, where Instance is empty, the reason to wait.
type Binding struct {
	Instance string
	BootID   string
	Route    explain.Note
	Waiting  explain.Note
}

// LiveRun is an unfinished run as Postgres holds it.
type LiveRun struct {
	ID            domain.RunID
	JobID         domain.JobID
	JobVersion    int
	Group         string
	Cause         domain.Cause
	State         domain.State
	Attempt       int
	Bind          int
	FireTime      *time.Time
	DueAt         time.Time
	BoundAt       *time.Time
	StartedAt     *time.Time
	Instance      string
	BootID        string
	Pin           string
	Avoid         string
	Param         *string // nil: the definition's
	Shard         *domain.Shard
	BroadcastID   *domain.RunID
	ParentRunID   *domain.RunID
	KillRequested bool
	KillReason    domain.Reason
	Def           *Definition // its version of the job; nil: not at hand
}

// Due returns what a ring holds of the run.
func (r *LiveRun) Due() Due {
	var broadcast domain.RunID
	if r.BroadcastID != nil {
		broadcast = *r.BroadcastID
	}
	return Due{
		RunID: r.ID, JobID: r.JobID, JobVersion: r.JobVersion, Attempt: r.Attempt, DueAt: r.DueAt,
		Pin: r.Pin, Avoid: r.Avoid, Broadcast: broadcast, AtDue: true,
	}
}

// Ended says how an attempt ended, whoever says so: the instance that ran it, or a reconciler. Settling acts only
// if the run still is in exactly this attempt, bound to exactly this boot of this instance (both empty: unbound).
type Ended struct {
	RunID      domain.RunID
	Attempt    int
	Bind       int // the offer round that is meant; 0: not said
	Instance   string
	BootID     string
	Group      string // "" when a reconciler says it
	Outcome    domain.Outcome
	Reason     domain.Reason
	Message    string
	Output     string
	RetryAfter time.Duration // 0: the job's backoff
	Permanent  bool          // no retry
	StartedAt  time.Time     // zero: never started
	FinishedAt time.Time
	LastLine   int64
}

// Disposition is what settling did with an Ended.
type Disposition string

// The dispositions. All of them free the executor of the result.
const (
	Settled    Disposition = "settled"     // it changed the run
	Repeat     Disposition = "repeat"      // it had been settled before
	Late       Disposition = "late"        // its attempt had been ended without it; kept beside the attempt
	UnknownRun Disposition = "unknown_run" // there is no such run: a dead letter
	Raced      Disposition = "raced"       // a reconciler's finding that was no longer true
	WrongGroup Disposition = "wrong_group" // the run is another group's: a dead letter
)

// Change tells that a run came into a state.
type Change struct {
	RunID      domain.RunID
	JobID      domain.JobID
	JobVersion int
	Group      string
	Cause      domain.Cause
	State      domain.State
	Reason     domain.Reason
	FireTime   *time.Time
	Attempt    int
	LatenessMS *int64 // of a final run
}

// FollowUp is work that a settled result causes. It becomes a River job in the transaction that settles.
type FollowUp struct {
	// Retry re-plans RunID after its Attempt, which has ended.
	Retry   bool
	RunID   domain.RunID
	Attempt int
	// Otherwise ChildJob is to run because the parent RunID ended at EndedAt.
	ChildJob domain.JobID
	EndedAt  time.Time
	// Or, where it is set, Alert is to be told.
	Alert *AlertNote
}
