package domain

import "time"

// FireFate is what became of a fire time.
type FireFate string

// The fates of a fire time. FateUnexplained is the only one that must not be.
const (
	FateRan           FireFate = "ran"            // it has its run, which started in time or is about to
	FateLate          FireFate = "late"           // its run started late, or is late already
	FateHeld          FireFate = "held"           // its run waits for another run of the job
	FateWaiting       FireFate = "waiting"        // its run waits for an executor
	FateNotStarted    FireFate = "not_started"    // its run ended before any handler started
	FateDoubled       FireFate = "doubled"        // it has more than its one run
	FateMissed        FireFate = "missed"         // it is in the missed ledger
	FateDisabled      FireFate = "disabled"       // the job was disabled then
	FateEdited        FireFate = "edited"         // the version that had it ended before its due instant
	FateNotDue        FireFate = "not_due"        // its due instant is still to come
	FateUndecided     FireFate = "undecided"      // planning has not come to it yet
	FateSchedulerAway FireFate = "scheduler_away" // planning has not come to it, as no scheduler is at work
	FatePaused        FireFate = "paused"         // its group is paused: the misfire policy decides when that is over
	FateRetention     FireFate = "retention"      // the runs of its day are no longer kept
	FateUnexplained   FireFate = "unexplained"    // neither a run nor a reason: a bug, or somebody's SQL
)

// FireFates are all fates, the worst first.
var FireFates = []FireFate{
	FateUnexplained, FateDoubled, FateMissed, FateSchedulerAway, FateNotStarted, FateLate, FateHeld, FateWaiting,
	FateUndecided, FatePaused, FateEdited, FateDisabled, FateRetention, FateNotDue, FateRan,
}

// FireFinding says what became of neighbouring fire times of a job that share a fate and its cause.
type FireFinding struct {
	JobID      JobID    `json:"job_id"`
	JobName    string   `json:"job_name"`
	Group      string   `json:"group"`
	Fate       FireFate `json:"fate"`
	Cause      string   `json:"cause"` // tells what the fire times of one finding share
	First      Instant  `json:"first"`
	Last       Instant  `json:"last"`
	Count      int      `json:"count"`
	LatenessMS *int64   `json:"lateness_ms,omitempty"` // the worst
	RunID      *RunID   `json:"run_id,omitempty"`      // of the first
	Text       string   `json:"text"`                  // of the first, in words
}

// FireAudit is one page of an audit of fire times.
type FireAudit struct {
	Since  Instant          `json:"since"`
	Until  Instant          `json:"until"`
	Counts map[FireFate]int `json:"counts"` // fire times of this page by fate
	Items  []FireFinding    `json:"items"`  // all but those that ran
	Jobs   int              `json:"jobs"`   // that this page finished
	OfJobs int              `json:"of_jobs"`
	Next   string           `json:"next_cursor"`
}

// Why answers what became of one instant of a job.
type Why struct {
	JobID      JobID    `json:"job_id"`
	JobName    string   `json:"job_name"`
	Group      string   `json:"group"`
	At         Instant  `json:"at"`
	TimeZone   string   `json:"time_zone"` // the job's, in which the answer speaks
	IsFireTime bool     `json:"is_fire_time"`
	Fate       FireFate `json:"fate,omitempty"` // of a fire time
	Answer     string   `json:"answer"`
	Version    int      `json:"version"` // of the job that held then; 0 where none did
	DueAt      *Instant `json:"due_at,omitempty"`
	RunID      *RunID   `json:"run_id,omitempty"`
	Before     *Instant `json:"fire_time_before,omitempty"` // the nearest ones, by the version that held then
	After      *Instant `json:"fire_time_after,omitempty"`
}

// FireGap is neighbouring fire times of a job that are unexplained.
type FireGap struct {
	JobID     JobID
	JobName   string
	Group     string
	Version   int
	Misfire   Misfire
	FireTimes []time.Time // in order; the job has no other between them
	Text      string
}

// FireCursor is where an audit of fire times goes on: after Job, or, if Due is set, within it after that due instant.
type FireCursor struct {
	Job JobID
	Due time.Time
}

// FireRound is how far the periodic audit of fire times has come.
type FireRound struct {
	Through time.Time // all that was due by then has been looked at
	Upto    time.Time // the end of the round under way; zero: none is
	Cursor  FireCursor
	BeganAt time.Time
}
