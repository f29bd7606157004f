package domain

import "github.com/belfryhq/belfry/internal/explain"

// HealthState says how a job fares.
type HealthState string

// The states of a job's health.
const (
	HealthOK      HealthState = "ok"      // the newest finished run succeeded
	HealthFailing HealthState = "failing" // the newest finished run failed
	HealthUnknown HealthState = "unknown" // no run has finished yet
)

// HealthStates lists the states of a job's health.
var HealthStates = []HealthState{HealthOK, HealthFailing, HealthUnknown}

// JobHealth says how a job fares. It is at most 10 seconds behind. Only succeeded and failed runs count, and each shard of a broadcast
// counts as a run. Runs are compared by the instant in their ids. So a job is failing if one shard of its newest broadcast failed, and an old
// run that succeeds late does not end it.
type JobHealth struct {
	State        HealthState  `json:"state"`
	FailingSince *Instant     `json:"failing_since" doc:"When the first of the failed runs finished; null if the job is not failing"`
	Streak       int          `json:"streak" doc:"The number of failed runs since the last success"`
	LastSuccess  *LastSuccess `json:"last_success"`
	LastFailure  *LastFailure `json:"last_failure"`
	P50MS        *int64       `json:"p50_ms" doc:"The median duration of the last 20 succeeded runs, within 5 percent; null if there is none"`
	P95MS        *int64       `json:"p95_ms" doc:"The 95th percentile of the same durations, within 5 percent"`
	LastDay      DayCounts    `json:"last_24h"`

	Changes []explain.Explanation `json:"changes,omitempty" doc:"What changed between the last success and the last failure: job_edited, script_edited, executor_changed, instance_changed. Absent in lists, if the job is not failing, and if nothing is known to have changed"`
}

// LastSuccess is the newest run of a job that succeeded. The run itself may have been deleted after its retention.
type LastSuccess struct {
	RunID   RunID   `json:"run_id"`
	At      Instant `json:"at"`
	Version int     `json:"version" doc:"The version of the job"`

	Instance        string `json:"instance,omitempty" doc:"The instance that ran it"`
	ExecutorVersion string `json:"executor_version,omitempty" doc:"The version of the executor, as its process reported it; absent if it is not known"`
}

// LastFailure is the newest run of a job that failed.
type LastFailure struct {
	RunID        RunID                 `json:"run_id"`
	At           Instant               `json:"at"`
	Version      int                   `json:"version" doc:"The version of the job"`
	Reason       Reason                `json:"reason"`
	Message      string                `json:"message" doc:"The first 1,024 characters of the message"`
	MessageParts []explain.Explanation `json:"message_parts,omitempty" doc:"The parts of the message, as in the schema Run"`

	Instance        string `json:"instance,omitempty" doc:"The instance of the last attempt; absent if there was none"`
	ExecutorVersion string `json:"executor_version,omitempty" doc:"The version of the executor, as its process reported it; absent if it is not known"`
}

// DayCounts counts finished runs of the current hour and of the 23 hours before it, by the instant when they were settled. A count of more than
// 32,767 in one of the past hours counts as 32,767.
type DayCounts struct {
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
}
