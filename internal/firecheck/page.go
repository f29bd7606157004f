package firecheck

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Fate is what became of a fire time.
type Fate string

// The fates of a fire time. FateUnexplained is the only one that must not be.
const (
	FateRan           Fate = "ran"            // it has its run, which started in time or is about to
	FateLate          Fate = "late"           // its run started late, or is late already
	FateHeld          Fate = "held"           // its run waits for another run of the job
	FateWaiting       Fate = "waiting"        // its run waits for an executor
	FateNotStarted    Fate = "not_started"    // its run ended before any handler started
	FateDoubled       Fate = "doubled"        // it has more than its one run
	FateMissed        Fate = "missed"         // it is in the missed ledger
	FateDisabled      Fate = "disabled"       // the job was disabled then
	FateEdited        Fate = "edited"         // the version that had it ended before its due instant
	FateNotDue        Fate = "not_due"        // its due instant is still to come
	FateUndecided     Fate = "undecided"      // planning has not come to it yet
	FateSchedulerAway Fate = "scheduler_away" // planning has not come to it, as no scheduler is at work
	FatePaused        Fate = "paused"         // its group is paused: the misfire policy decides when that is over
	FateRetention     Fate = "retention"      // the runs of its day are no longer kept
	FateUnexplained   Fate = "unexplained"    // neither a run nor a reason: a bug, or somebody's SQL
)

// Fates are all fates, the worst first.
var Fates = []Fate{
	FateUnexplained, FateDoubled, FateMissed, FateSchedulerAway, FateNotStarted, FateLate, FateHeld, FateWaiting,
	FateUndecided, FatePaused, FateEdited, FateDisabled, FateRetention, FateNotDue, FateRan,
}

// Item says what became of neighbouring fire times of a job that share a fate and its cause.
type Item struct {
	JobID      domain.JobID   `json:"job_id"`
	JobName    string         `json:"job_name"`
	Group      string         `json:"group"`
	Fate       Fate           `json:"fate"`
	Cause      string         `json:"cause"` // tells what the fire times of one finding share
	First      domain.Instant `json:"first"`
	Last       domain.Instant `json:"last"`
	Count      int            `json:"count"`
	LatenessMS *int64         `json:"lateness_ms,omitempty"` // the worst
	RunID      *domain.RunID  `json:"run_id,omitempty"`      // of the first
	Text       string         `json:"text"`                  // of the first, in words
}

// Page is one page of an audit of fire times.
type Page struct {
	Since  domain.Instant `json:"since"`
	Until  domain.Instant `json:"until"`
	Counts map[Fate]int   `json:"counts"` // fire times of this page by fate
	Items  []Item         `json:"items"`  // all but those that ran
	Jobs   int            `json:"jobs"`   // that this page finished
	OfJobs int            `json:"of_jobs"`
	Next   string         `json:"next_cursor"`
}

// Why answers what became of one instant of a job.
type Why struct {
	JobID      domain.JobID    `json:"job_id"`
	JobName    string          `json:"job_name"`
	Group      string          `json:"group"`
	At         domain.Instant  `json:"at"`
	TimeZone   string          `json:"time_zone"` // the job's, in which the answer speaks
	IsFireTime bool            `json:"is_fire_time"`
	Fate       Fate            `json:"fate,omitempty"` // of a fire time
	Answer     string          `json:"answer"`
	Version    int             `json:"version"` // of the job that held then; 0 where none did
	DueAt      *domain.Instant `json:"due_at,omitempty"`
	RunID      *domain.RunID   `json:"run_id,omitempty"`
	Before     *domain.Instant `json:"fire_time_before,omitempty"` // the nearest ones, by the version that held then
	After      *domain.Instant `json:"fire_time_after,omitempty"`
}

// Unexplained is neighbouring fire times of a job that are unexplained.
type Unexplained struct {
	JobID     domain.JobID
	JobName   string
	Group     string
	Version   int
	Misfire   domain.Misfire
	FireTimes []time.Time // in order; the job has no other between them
	Text      string
}

// Cursor is where an audit of fire times goes on: after Job, or, if Due is set, within it after that due instant.
type Cursor struct {
	Job domain.JobID
	Due time.Time
}

// Round is how far the periodic audit of fire times has come.
type Round struct {
	Through time.Time // all that was due by then has been looked at
	Upto    time.Time // the end of the round under way; zero: none is
	Cursor  Cursor
	BeganAt time.Time
}
