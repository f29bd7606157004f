package engine

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/trace"
)

// Definition is one version of a job, which never changes.
type Definition struct {
	JobID     domain.JobID
	Version   int
	CreatedAt time.Time // when the job was created; the anchor of fixed_rate
	domain.JobSpec
}

// VersionKey identifies one version of a job.
type VersionKey struct {
	Job     domain.JobID
	Version int
}

// Definitions maps keys to versions of jobs.
type Definitions map[VersionKey]*Definition

// Of returns one version, or nil if it is not in the map.
func (d Definitions) Of(job domain.JobID, version int) *Definition {
	return d[VersionKey{job, version}]
}

// WaitsAs returns the WaitingKey of the job's runs that may run on the instance pin only, or on any instance if pin is "".
func (d *Definition) WaitsAs(pin string) WaitingKey {
	k := WaitingKey{Group: d.Group, Target: d.Target(), Pin: pin}
	if pin == "" && d.Route.Asks() {
		k.Apart = d.JobID
	}
	return k
}

// Due is the entry of a planned run in a time ring: its id, and the values that the compare-and-set of Fire checks. Fire therefore
// ignores a run that was edited, killed or taken in the meantime.
type Due struct {
	RunID      domain.RunID
	JobID      domain.JobID
	JobVersion int
	Attempt    int
	DueAt      time.Time
	Pin        string       // the only instance that may take it
	Avoid      string       // the instance that just lost it
	Broadcast  domain.RunID // for a shard: its broadcast, which owns the block slot
	AtDue      bool         // it was fired ahead of its due instant and its block slot was taken; fire it again at due
}

// Owner returns the owner of the run's block slot: the run itself or, for a shard, its broadcast.
func (d *Due) Owner() domain.RunID {
	if !d.Broadcast.IsZero() {
		return d.Broadcast
	}
	return d.RunID
}

// Binding is the decision to give a run to an instance. If Instance is empty, the run waits for the reason Waiting.
type Binding struct {
	Instance string
	BootID   string
	Route    explain.Note
	Waiting  explain.Note
}

// LiveRun is an unfinished run as stored in Postgres.
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
	Trace         string  // the trace that the run continues, in the form of package trace; "": it begins its own
	Shard         *domain.Shard
	BroadcastID   *domain.RunID
	ParentRunID   *domain.RunID
	KillRequested bool
	KillReason    domain.Reason
	Def           *Definition // its version of the job; nil: not loaded
}

// Due returns the run's entry for a time ring.
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

// Context returns the run's place in its trace.
func (r *LiveRun) Context() trace.Context {
	first := r.ID
	if r.BroadcastID != nil {
		first = *r.BroadcastID
	}
	return trace.Of(r.Trace, first)
}

// Ended says how an attempt ended. It comes from the instance that ran it or from a reconciler. Settle changes the run only if the
// run is still in this attempt and bound to this boot of this instance (both empty: unbound).
type Ended struct {
	RunID      domain.RunID
	Attempt    int
	Bind       int // the offer round; 0: unknown
	Instance   string
	BootID     string
	Group      string // "" if it comes from a reconciler
	Outcome    domain.Outcome
	Reason     domain.Reason
	Message    string       // the handler's own words
	Why        explain.Note // the engine's explanation of an end that it found itself; it replaces Message
	Output     string
	RetryAfter time.Duration // 0: the job's backoff
	Permanent  bool          // no retry
	StartedAt  time.Time     // zero: never started
	FinishedAt time.Time
	LastLine   int64
	// ClaimsLost says that the reporter calls the attempt lost. Only a gateway may do so: Settle believes it if Postgres has a record that the
	// attempt was sent through one.
	ClaimsLost bool
}

// Said returns the message of the attempt.
func (e *Ended) Said() string {
	if e.Why != "" {
		return e.Why.English()
	}
	return e.Message
}

// Disposition is the result of settling an Ended.
type Disposition string

// The dispositions. After any of them, the executor can discard the result.
const (
	Settled    Disposition = "settled"     // it changed the run
	Repeat     Disposition = "repeat"      // the same result was settled before
	Late       Disposition = "late"        // its attempt had already ended without it; it is stored with the attempt
	UnknownRun Disposition = "unknown_run" // the run does not exist: a dead letter
	Raced      Disposition = "raced"       // a reconciler's finding that is no longer true
	WrongGroup Disposition = "wrong_group" // the run belongs to another group: a dead letter
)

// Change reports that a run entered a state.
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
	LatenessMS *int64 // for final runs
}

// FollowUp is work that a settled result causes. The transaction that settles the result inserts it as a River job.
type FollowUp struct {
	// Retry plans the next attempt of RunID; Attempt has ended.
	Retry   bool
	RunID   domain.RunID
	Attempt int
	// Without Retry, the follow-up creates a run of ChildJob because the parent RunID ended at EndedAt.
	ChildJob domain.JobID
	EndedAt  time.Time
	// If Alert is set, the follow-up sends this alert instead.
	Alert *AlertNote
}
