package firecheck

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Fate is what happened to a fire time.
type Fate string

// The fates of a fire time. FateUnexplained and FateDoubled indicate a bug or manual SQL.
const (
	FateRan           Fate = "ran"            // its run started in time
	FateLate          Fate = "late"           // its run started late, or has not started and is already late
	FateHeld          Fate = "held"           // its run waits for another run of the job
	FateWaiting       Fate = "waiting"        // its run waits for an executor
	FateNotStarted    Fate = "not_started"    // its run ended before any handler started
	FateDoubled       Fate = "doubled"        // it has more than one run
	FateUncertain     Fate = "uncertain"      // it may have run before the database was restored to an earlier state
	FateMissed        Fate = "missed"         // it is in the missed ledger
	FateDisabled      Fate = "disabled"       // the job was disabled at that time
	FateEdited        Fate = "edited"         // the version that had it ended before its due instant
	FateNotDue        Fate = "not_due"        // its due instant is in the future
	FateUndecided     Fate = "undecided"      // planning has not decided it yet
	FateSchedulerAway Fate = "scheduler_away" // planning has not decided it because no scheduler is running
	FatePaused        Fate = "paused"         // the job or its group is paused; the misfire policy decides after the pause
	FateRetention     Fate = "retention"      // the runs of its day are no longer kept
	FateUnexplained   Fate = "unexplained"    // it has neither a run nor a reason: a bug or manual SQL
)

// Fates lists all fates, the worst first.
var Fates = []Fate{
	FateUnexplained, FateDoubled, FateUncertain, FateMissed, FateSchedulerAway, FateNotStarted, FateLate, FateHeld, FateWaiting,
	FateUndecided, FatePaused, FateEdited, FateDisabled, FateRetention, FateNotDue, FateRan,
}

// Item is the finding of consecutive fire times of a job that share a fate and its cause.
type Item struct {
	JobID      domain.JobID   `json:"job_id"`
	JobName    string         `json:"job_name"`
	Group      string         `json:"group"`
	Fate       Fate           `json:"fate"`
	Cause      string         `json:"cause"` // identifies the common cause of the fire times
	First      domain.Instant `json:"first"`
	Last       domain.Instant `json:"last"`
	Count      int            `json:"count"`
	LatenessMS *int64         `json:"lateness_ms,omitempty"` // the maximum
	RunID      *domain.RunID  `json:"run_id,omitempty"`      // of the first fire time
	Text       string         `json:"text"`                  // of the first fire time, a phrase
}

// Page is one page of a fire check.
type Page struct {
	Since  domain.Instant `json:"since"`
	Until  domain.Instant `json:"until"`
	Counts map[Fate]int   `json:"counts"` // fire times of this page by fate
	Items  []Item         `json:"items"`  // all except those that ran
	Jobs   int            `json:"jobs"`   // number of jobs that this page finished
	OfJobs int            `json:"of_jobs"`
	Next   string         `json:"next_cursor"`
}

// Why is the explanation of one instant of a job.
type Why struct {
	JobID      domain.JobID    `json:"job_id"`
	JobName    string          `json:"job_name"`
	Group      string          `json:"group"`
	At         domain.Instant  `json:"at"`
	TimeZone   string          `json:"time_zone"` // of the job; the answer uses it
	IsFireTime bool            `json:"is_fire_time"`
	Fate       Fate            `json:"fate,omitempty"` // if it is a fire time
	Answer     string          `json:"answer"`
	Version    int             `json:"version"` // the job's version that was in force then; 0: none
	DueAt      *domain.Instant `json:"due_at,omitempty"`
	RunID      *domain.RunID   `json:"run_id,omitempty"`
	Before     *domain.Instant `json:"fire_time_before,omitempty"` // the nearest fire times before and after, by that version
	After      *domain.Instant `json:"fire_time_after,omitempty"`
}

// Unexplained is a sequence of unexplained fire times of a job.
type Unexplained struct {
	JobID     domain.JobID
	JobName   string
	Group     string
	Version   int
	Misfire   domain.Misfire
	FireTimes []time.Time // in order, without gaps
	Text      string
}

// Cursor is the position at which a fire check continues: after Job or, if Due is set, within Job after that due instant.
type Cursor struct {
	Job domain.JobID
	Due time.Time
}

// Round is the progress of the periodic fire check.
type Round struct {
	Through time.Time // all fire times that were due by then have been checked
	Upto    time.Time // the end of the current round; zero: there is none
	Cursor  Cursor
	BeganAt time.Time
}
