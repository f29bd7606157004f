package runstats

import "github.com/belfryhq/belfry/internal/domain"

// Counts says what finished within some stretch of time.
type Counts struct {
	Runs      int64 `json:"runs"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	Skipped   int64 `json:"skipped"`
	// SuccessRate is succeeded of succeeded and failed; nil where there is neither.
	SuccessRate *float64 `json:"success_rate"`
	// Lateness of first starts: half, and 99 of 100, started within so many milliseconds; nil where none started.
	LatenessP50MS *int64 `json:"lateness_p50_ms"`
	LatenessP99MS *int64 `json:"lateness_p99_ms"`
	// Reasons counts those that did not succeed, by reason.
	Reasons map[string]int64 `json:"reasons"`
	// MeanDurationMS is the mean time from the start of the last attempt to its end; nil where nothing finished.
	MeanDurationMS *int64 `json:"mean_duration_ms"`
}

// Point is what finished from At on, for one step.
type Point struct {
	At domain.Instant `json:"at"`
	Counts
}

// Series is a time series of finished runs. Steps in which nothing finished are there, with zeros.
type Series struct {
	From           domain.Instant  `json:"from"`
	To             domain.Instant  `json:"to"`
	Step           domain.Duration `json:"step"`
	CountedThrough domain.Instant  `json:"counted_through"`
	Total          Counts          `json:"total"`
	Points         []Point         `json:"points"`
}

// Live is how things stand now.
type Live struct {
	Pending   int64 `json:"pending"` // due, and about to be fired
	Held      int64 `json:"held"`
	Queued    int64 `json:"queued"`
	Running   int64 `json:"running"`
	Retrying  int64 `json:"retrying"`
	Instances int   `json:"instances"` // that send heartbeats, those that drain among them
	Draining  int   `json:"draining"`
	Slots     int   `json:"slots"`
	SlotsUsed int   `json:"slots_used"`
	Groups    int   `json:"groups"`
	Jobs      int64 `json:"jobs"`
	Enabled   int64 `json:"jobs_enabled"`
}

// RecentFailure is a run that failed lately.
type RecentFailure struct {
	RunID      domain.RunID    `json:"run_id"`
	JobID      domain.JobID    `json:"job_id"`
	JobName    string          `json:"job_name"`
	Group      string          `json:"group"`
	Reason     domain.Reason   `json:"reason"`
	Message    string          `json:"message"`
	FinishedAt *domain.Instant `json:"finished_at"`
}

// RecentMissed is an entry that a job lately got in the missed ledger.
type RecentMissed struct {
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"` // as it was then, as is the group
	Group   string       `json:"group"`
	domain.Missed
}

// Overview is the state of things at a glance.
type Overview struct {
	From           domain.Instant  `json:"from"`
	To             domain.Instant  `json:"to"`
	CountedThrough domain.Instant  `json:"counted_through"`
	Counts         Counts          `json:"counts"`
	Missed         int64           `json:"missed"` // fire times that went to the missed ledger from From to To
	Now            Live            `json:"now"`
	RecentFailures []RecentFailure `json:"recent_failures"`
	RecentMissed   []RecentMissed  `json:"recent_missed"` // entries of the missed ledger, from From to To
}
