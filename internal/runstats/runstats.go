package runstats

import (
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Counts contains the counts of runs that finished within a period.
type Counts struct {
	Runs      int64 `json:"runs"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	Skipped   int64 `json:"skipped"`
	// SuccessRate is succeeded / (succeeded + failed); nil if both are 0.
	SuccessRate *float64 `json:"success_rate"`
	// The median and the 99th percentile of the lateness of first starts, in milliseconds; nil if no run started.
	LatenessP50MS *int64 `json:"lateness_p50_ms"`
	LatenessP99MS *int64 `json:"lateness_p99_ms"`
	// Reasons counts the runs that did not succeed, by reason.
	Reasons map[string]int64 `json:"reasons"`
	// MeanDurationMS is the mean time from the start of the last attempt to its end; nil if no run finished.
	MeanDurationMS *int64 `json:"mean_duration_ms"`
}

// Point counts the runs that finished in one step of a series, which starts at At.
type Point struct {
	At domain.Instant `json:"at"`
	Counts
}

// Series is a time series of finished runs. It includes steps without finished runs, as zeros.
type Series struct {
	From           domain.Instant  `json:"from"`
	To             domain.Instant  `json:"to"`
	Step           domain.Duration `json:"step"`
	CountedThrough domain.Instant  `json:"counted_through"`
	Total          Counts          `json:"total"`
	Points         []Point         `json:"points"`
}

// Live contains the current counts of unfinished runs and instances.
type Live struct {
	Pending   int64 `json:"pending"` // due, and about to be fired
	Held      int64 `json:"held"`
	Queued    int64 `json:"queued"`
	Running   int64 `json:"running"`
	Retrying  int64 `json:"retrying"`
	Instances int   `json:"instances"` // instances with heartbeats, including those that drain
	Draining  int   `json:"draining"`
	Slots     int   `json:"slots"`
	SlotsUsed int   `json:"slots_used"`
	Groups    int   `json:"groups"`
	Jobs      int64 `json:"jobs"`
	Enabled   int64 `json:"jobs_enabled"`
}

// RecentFailure is a run that failed recently.
type RecentFailure struct {
	RunID      domain.RunID    `json:"run_id"`
	JobID      domain.JobID    `json:"job_id"`
	JobName    string          `json:"job_name"`
	Group      string          `json:"group"`
	Reason     domain.Reason   `json:"reason"`
	Message    string          `json:"message"`
	FinishedAt *domain.Instant `json:"finished_at"`
	// The parts of a message that the engine wrote.
	MessageParts []explain.Explanation `json:"message_parts,omitempty" doc:"The parts of the message, as in the schema Run"`
}

// RecentMissed is a recent entry of a job in the missed ledger.
type RecentMissed struct {
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"` // name and group are those at that time
	Group   string       `json:"group"`
	domain.Missed
}

// Overview is the content of the console's overview page.
type Overview struct {
	From           domain.Instant  `json:"from"`
	To             domain.Instant  `json:"to"`
	CountedThrough domain.Instant  `json:"counted_through"`
	Counts         Counts          `json:"counts"`
	Missed         int64           `json:"missed"` // fire times that went to the missed ledger between From and To
	Now            Live            `json:"now"`
	RecentFailures []RecentFailure `json:"recent_failures"`
	RecentMissed   []RecentMissed  `json:"recent_missed"` // entries of the missed ledger between From and To
}
