package engine

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Planned is the result of one planning pass.
type Planned struct {
	Runs   []Due     // for the time ring of the scheduler that planned them
	Jobs   int       // the number of jobs that were planned; a full batch means that there may be more
	Next   time.Time // the earliest due instant of the remaining jobs; zero if no job is left that is due soon
	More   bool      // more can be decided now: the batch, or a job's outage, was too large for one pass
	Missed int       // the number of fire times that went to the missed ledger
}

// Admission is a routed ring entry: a binding, or a reason to wait.
type Admission struct {
	Due
	Binding
	Def *Definition
}

// Admitted is the result of Admit. If an entry is in none of the lists, another transaction has taken, changed or ended its run.
type Admitted struct {
	Bound    []LiveRun      // bound to an instance; the caller offers them
	Waiting  []LiveRun      // queued; no instance could take them
	Held     []domain.RunID // an earlier run of the job is unfinished
	Later    []Due          // not yet due, and the block slot is taken; the caller fires them again at due
	Ended    []Change       // dropped by the block policy
	Kills    []LiveRun      // covered while an instance has them; the caller sends the instance a kill
	Released []Due          // held runs whose block slot is free now; the caller fires them
}

// Unassigned lists the runs that AssignWaiting changed without binding them.
type Unassigned struct {
	Expand   []LiveRun // broadcasts; the caller passes them to ExpandBroadcast
	Ended    []Change  // dropped by the block policy
	Kills    []LiveRun // covered while an instance has them; the caller sends the instance a kill
	Released []Due     // held runs whose block slot is free now; the caller fires them
	Later    []Due     // not yet due, and the block slot is taken; they keep waiting, and the caller checks them again at due
}

// SettleResult is the result of Settle.
type SettleResult struct {
	Dispositions []Disposition // one for each Ended, in order
	Changes      []Change
	Released     []Due // held runs whose block slot is free now; the caller fires them
	Waiting      bool  // some attempts wait for an instance again
	Joined       int   // the number of broadcasts whose last shard ended
}

// WaitingKey identifies a set of waiting runs that the same instances can take.
type WaitingKey struct {
	Group  string
	Target string // see JobSpec.Target
	Pin    string
	// Apart is the job's id if its route asks the instances first, because such runs form a separate set. Otherwise it is 0.
	Apart domain.JobID
}

// Turns describes runs of a job that are about to be routed by how often or how recently the instances were used.
type Turns struct {
	Route domain.Route
	Runs  int
	Known []string // the instances that offer the job's handler
	Open  []string // those of them with free slots, which get the runs
}

// WaitingRun is a waiting run for which AssignWaiting lets its caller choose an instance.
type WaitingRun struct {
	LiveRun
	Def *Definition
}

// Refusal is an attempt that its instance certainly will not start, in offer round Bind.
type Refusal struct {
	RunID   domain.RunID
	Attempt int
	Bind    int
	Why     explain.Note // why the run waits
	Avoid   string       // an instance to avoid if another one qualifies
}

// Started reports that the handler of an attempt runs.
type Started struct {
	RunID     domain.RunID
	Attempt   int
	Instance  string
	BootID    string
	Bind      int
	StartedAt time.Time
}

// ShardBinding is the binding of one shard of a broadcast.
type ShardBinding struct {
	Binding
	Pin string // the only instance that may run the shard
}

// Glance says what the loops of the dispatcher role may find in the database. A false field means: nothing.
type Glance struct {
	Deadlines bool // waiting runs past their start deadline
	Kills     bool // unfinished runs whose kill was requested
	Retries   bool // due retries that were not planned
	Bound     bool // due runs that are bound to an instance
	Held      bool // runs that are held by another run
	Live      bool // unfinished runs, or groups whose number of them is not zero
	Waiting   bool // runs that wait for an instance
	Dead      bool // dead rows, which can be vacuumed
	ManyDead  bool // so many that they slow down searches for due runs
}

// BoundBoot is a boot of an instance that has bound runs.
type BoundBoot struct {
	Group, Instance, BootID string
	Runs                    int
	Silent                  int // part of Runs: still queued some time after due; it is unknown whether they were started
	Running                 int // part of Runs: reported as running
	Overdue                 int // part of Runs: past their timeout and its grace period
	// Kept says that Postgres has a record of the boot. The boot has not ended before its record is deleted, whatever NATS shows.
	Kept bool
}

// KillResult is the result of a request to kill runs.
type KillResult struct {
	Bound  []LiveRun    // runs that an instance has; the caller sends it a kill
	Result SettleResult // the result for the other runs, which have ended
}

// LogChunk is a sequence of consecutive log lines, encoded by package logchunk. Group and TextBytes, the size of the
// lines' texts before they were encoded, count against the group's limit. A chunk without a group does not count.
type LogChunk struct {
	RunID       domain.RunID
	Attempt     int
	First, Last int64
	Lines       []byte
	Group       string
	TextBytes   int64
}

// AlertNote is an event of a job that causes an alert now. The transaction that records the event inserts the note as a River
// job.
type AlertNote struct {
	Kind       domain.AlertKind `json:"kind"`
	JobID      domain.JobID     `json:"job_id"`
	JobVersion int              `json:"job_version"`
	RunID      domain.RunID     `json:"run_id"` // for failed, recovered and late; shard 0 of a broadcast
	At         domain.Instant   `json:"at"`
	Count      int64            `json:"count"` // the number of events, including those folded since the last alert of this kind
	Since      domain.Instant   `json:"since"` // the time of the first of them
	Missed     *MissedAt        `json:"missed,omitempty"`
	// Folded marks a note that checks at DueAt whether events were folded, so that they are reported even without a later event.
	Folded bool      `json:"folded,omitempty"`
	DueAt  time.Time `json:"-"`
}

// MissedAt is an entry of the missed ledger.
type MissedAt struct {
	First domain.Instant `json:"first_fire_time"`
	Last  domain.Instant `json:"last_fire_time"`
	Why   string         `json:"why"` // the English sentence
	// The code of Why and its arguments. They are empty if a binary of the previous release wrote the value.
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
