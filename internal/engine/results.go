package engine

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Planned is what one pass of planning made.
type Planned struct {
	Runs   []Due     // for the ring of the scheduler that planned them
	Jobs   int       // how many were taken; a full batch means that there may be more
	Next   time.Time // jobs are left that are due then or later; zero if all were taken that are due soon
	More   bool      // there is more to decide now: the batch, or a job's outage, was too long for one pass
	Missed int       // how many fire times went to the ledger
}

// Admission is a routed ring entry: a binding, or a reason to wait.
type Admission struct {
	Due
	Binding
	Def *Definition
}

// Admitted is what Admit did. An entry that is in none of the lists was taken, changed or ended by somebody else.
type Admitted struct {
	Bound    []LiveRun      // offer them
	Waiting  []LiveRun      // queued; no instance could take them
	Held     []domain.RunID // an earlier run of the job is unfinished
	Later    []Due          // not yet due, and the slot is taken: try again at due
	Ended    []Change       // dropped by the block policy
	Kills    []LiveRun      // covered, and an instance has them: tell it
	Released []Due          // held runs whose turn has come: fire them
}

// Unassigned is what AssignWaiting did to runs other than to bind them.
type Unassigned struct {
	Expand   []LiveRun // broadcasts whose turn is ExpandBroadcast's
	Ended    []Change  // dropped by the block policy
	Kills    []LiveRun // covered, and an instance has them: tell it
	Released []Due     // held runs whose turn has come: fire them
	Later    []Due     // not yet due, and the slot is taken: they wait on, and are to be looked at again at due
}

// SettleResult is what Settle did.
type SettleResult struct {
	Dispositions []Disposition // one for each Ended, in order
	Changes      []Change
	Released     []Due // held runs whose turn has come: fire them
	Waiting      bool  // attempts were put back to wait for an instance
	Joined       int   // broadcasts whose last shard ended
}

// WaitingKey names runs that wait for the same kind of room.
type WaitingKey struct {
	Group  string
	Target string // as JobSpec.Target
	Pin    string
	// Apart is the job whose runs wait apart from all others, as its instances are asked first; 0 for most.
	Apart domain.JobID
}

// Turns are runs of a job about to be routed by how its instances were used.
type Turns struct {
	Route domain.Route
	Runs  int
	Known []string // the instances that offer the job's handler
	Open  []string // those of them that have room, which get the runs
}

// WaitingRun is a run that AssignWaiting offers to its caller's choice.
type WaitingRun struct {
	LiveRun
	Def *Definition
}

// Refusal is an attempt that its instance surely will not start, in the offer round Bind.
type Refusal struct {
	RunID   domain.RunID
	Attempt int
	Bind    int
	Why     explain.Note // why it waits again
	Avoid   string       // an instance to pass over, if another one qualifies
}

// Started is an attempt whose handler runs.
type Started struct {
	RunID     domain.RunID
	Attempt   int
	Instance  string
	BootID    string
	Bind      int
	StartedAt time.Time
}

// ShardBinding is where one shard of a broadcast goes.
type ShardBinding struct {
	Binding
	Pin string // the shard may run there only
}

// BoundBoot is a boot of an instance that runs are bound to.
type BoundBoot struct {
	Group, Instance, BootID string
	Runs                    int
	Silent                  int // of Runs: still queued some time after due, and nobody knows whether they were started
	Running                 int // of Runs: said to run
	Overdue                 int // of Runs: past their timeout and its grace
}

// KillResult is what a request to kill came to.
type KillResult struct {
	Bound  []LiveRun    // an instance has them: tell it
	Result SettleResult // of those that no instance has: they have ended
}

// LogChunk is a run of consecutive log lines, encoded by package logchunk.
type LogChunk struct {
	RunID       domain.RunID
	Attempt     int
	First, Last int64
	Lines       []byte
}

// AlertNote is a turn of a job that is to be told now. It becomes a River job in the transaction that records what
// happened.
type AlertNote struct {
	Kind       domain.AlertKind `json:"kind"`
	JobID      domain.JobID     `json:"job_id"`
	JobVersion int              `json:"job_version"`
	RunID      domain.RunID     `json:"run_id"` // of failed, recovered and late; of a broadcast, its shard 0
	At         domain.Instant   `json:"at"`
	Count      int64            `json:"count"` // how many, with those that were folded since the last alert of this kind
	Since      domain.Instant   `json:"since"` // when the first of them came
	Missed     *MissedAt        `json:"missed,omitempty"`
	// Folded asks, at DueAt, whether anything was folded meanwhile, so that it is told even if nothing follows.
	Folded bool      `json:"folded,omitempty"`
	DueAt  time.Time `json:"-"`
}

// MissedAt is what a ledger entry says.
type MissedAt struct {
	First domain.Instant `json:"first_fire_time"`
	Last  domain.Instant `json:"last_fire_time"`
	Why   string         `json:"why"` // the English sentence
	// Why as a code with arguments. They are missing in what a binary of the previous release wrote.
	Code explain.Code `json:"code,omitempty"`
	Args explain.Args `json:"args,omitempty"`
}

// Reason returns why the fire times were missed.
func (m *MissedAt) Reason() *explain.Explanation {
	if m.Code == "" {
		return explain.Sentence(m.Why)
	}
	return &explain.Explanation{Code: m.Code, Args: m.Args, Text: m.Why}
}
