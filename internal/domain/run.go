package domain

import (
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/explain"
)

// Run is the durable record of one firing, or of one shard of it, as the REST API returns it.
type Run struct {
	ID           RunID    `json:"id"`
	JobID        JobID    `json:"job_id"`
	JobName      string   `json:"job_name"`
	JobVersion   int      `json:"job_version"`
	Group        string   `json:"group"`
	Cause        Cause    `json:"cause"`
	State        State    `json:"state"`
	Reason       Reason   `json:"reason"`
	Message      string   `json:"message"`
	Output       string   `json:"output"`
	Param        string   `json:"param"`
	FireTime     *Instant `json:"fire_time"`
	DueAt        *Instant `json:"due_at"`
	CreatedAt    Instant  `json:"created_at"`
	DispatchedAt *Instant `json:"dispatched_at"`
	StartedAt    *Instant `json:"started_at"`
	FinishedAt   *Instant `json:"finished_at"`
	LatenessMS   *int64   `json:"lateness_ms"` // first start minus due instant, on the database clock
	DurationMS   *int64   `json:"duration_ms"` // of the last attempt
	Attempt      int      `json:"attempt"`
	MaxAttempts  int      `json:"max_attempts"`
	Instance     string   `json:"instance"`
	// The parts of a message that the engine wrote.
	MessageParts []explain.Explanation `json:"message_parts,omitempty" doc:"The parts of a message that Belfry itself wrote; absent if the handler wrote the whole message. Their texts, joined by a colon and a space, are the message. A part with code text is the handler's own words."`
	// The route decision and its reason; nil before the run is routed.
	Route *explain.Explanation `json:"route"`
	// Why no executor has started it yet.
	Waiting *explain.Explanation `json:"waiting,omitempty"`
	// Why, and how long, the last attempt had waited when an instance took it; nil if it did not wait.
	Waited      *Waited   `json:"waited,omitempty" doc:"Why, and how long, the run waited before its last attempt: for an instance, or held by its block policy. Absent if it did not wait."`
	HeldBy      *RunID    `json:"held_by,omitempty"`
	Shard       *Shard    `json:"shard"`
	BroadcastID *RunID    `json:"broadcast_id"`
	ParentRunID *RunID    `json:"parent_run_id"`
	EventID     string    `json:"event_id"`
	TraceID     string    `json:"trace_id" doc:"The W3C id of the run's trace, also if no process records it"`
	TraceURL    string    `json:"trace_url,omitempty" doc:"The address of the trace, from the setting --trace-url; absent without it"`
	KillAskedAt *Instant  `json:"kill_requested_at,omitempty"`
	Note        string    `json:"note,omitempty"` // such as that a kill was requested and the handler still runs; see NoteIn
	Attempts    []Attempt `json:"attempts,omitempty"`
}

// NoteIn returns the run's note in a language. It is empty unless a kill was requested and the handler still runs.
func (r *Run) NoteIn(language explain.Language) string {
	if r.KillAskedAt == nil || r.State != Running || r.StartedAt == nil {
		return ""
	}
	return language.Format("kill requested, still running since %s", "已请求终止，自 %s 起仍在运行", r.StartedAt)
}

// Waited is the end of a wait.
type Waited struct {
	explain.Explanation
	DurationMS int64 `json:"duration_ms" doc:"From the due instant, in milliseconds"`
}

// Attempt is one try of a run, counted from 1.
type Attempt struct {
	Attempt  int    `json:"attempt"`
	Instance string `json:"instance"`
	// The version and the host of the executor's process, as it reported them. They are empty if it lived only for seconds.
	ExecutorVersion string   `json:"executor_version,omitempty" doc:"The version of the executor, as its process reported it"`
	Host            string   `json:"host,omitempty" doc:"The host of the executor, as its process reported it"`
	DispatchedAt    *Instant `json:"dispatched_at"`
	StartedAt       *Instant `json:"started_at"`
	FinishedAt      *Instant `json:"finished_at"`
	Outcome         string   `json:"outcome"` // succeeded, failed, cancelled; empty while it runs
	Reason          Reason   `json:"reason"`
	Message         string   `json:"message"`
	// The parts of a message that the engine wrote.
	MessageParts []explain.Explanation `json:"message_parts,omitempty" doc:"The parts of the message, as in the schema Run"`
	// LateOutcome is a result that arrived after the attempt had ended, for example after it was declared lost.
	LateOutcome string `json:"late_outcome,omitempty"`
}

// Shard is one part of a broadcast.
type Shard struct {
	Index int `json:"index"`
	Total int `json:"total"`
}

// Group is an executor group: the shared name of executors that serve the same handlers.
type Group struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	CreatedAt   Instant `json:"created_at"`
	UpdatedAt   Instant `json:"updated_at"`
	Jobs        int     `json:"jobs"`
	Instances   int     `json:"instances"`
	PauseState
	// When the group's previous token ends; null if only one token is valid.
	PreviousTokenUntil *Instant `json:"previous_token_until"`
	// Limits are the group's limits, with the defaults of those that no administrator has set.
	Limits GroupLimits `json:"limits"`
}

// Missed is one entry of a job's missed ledger: fire times that were dropped, and why.
type Missed struct {
	First  Instant              `json:"first"`
	Last   Instant              `json:"last"`
	Count  int                  `json:"count"`
	Why    *explain.Explanation `json:"why"`
	Policy Misfire              `json:"policy"`
	At     Instant              `json:"at"` // when the decision was made
}

// LogLine is one line of a run's log.
type LogLine struct {
	N       int64   `json:"n"`
	At      Instant `json:"at"`
	Level   string  `json:"level"`
	Attempt int     `json:"attempt"`
	Text    string  `json:"text"`
}

// Instance is one executor process of a group, as its heartbeat describes it.
type Instance struct {
	ID        string            `json:"id"`
	Group     string            `json:"group"`
	BootID    string            `json:"boot_id"`
	Handlers  []string          `json:"handlers"`
	Languages []string          `json:"script_languages"`
	Capacity  int               `json:"capacity"`
	Running   int               `json:"running"`
	Draining  bool              `json:"draining"`
	Labels    map[string]string `json:"labels"`
	Version   string            `json:"version"`
	Host      string            `json:"host"`
	StartedAt Instant           `json:"started_at"`
	SeenAt    Instant           `json:"seen_at"`
	// NotOffered is why Belfry offers no runs to the instance now, nil if it does. Its code is one of explain's Instance… codes.
	NotOffered *explain.Explanation `json:"not_offered,omitempty" doc:"Why Belfry offers no runs to this instance now; absent if it does"`
}

// TakesRuns reports whether the instance takes runs now, or as soon as it has room.
func (i *Instance) TakesRuns() bool {
	return i.NotOffered == nil || i.NotOffered.Code == explain.InstanceFull || i.NotOffered.Code == explain.InstanceRefused
}

// Offers reports whether the instance offers a target (JobSpec.Target).
func (i *Instance) Offers(target string) bool { return Offers(i.Handlers, i.Languages, target) }

// Offers reports whether a target is one of the given handlers and script languages.
func Offers(handlers, languages []string, target string) bool {
	if language, isScript := strings.CutPrefix(target, ScriptTarget("")); isScript {
		return slices.Contains(languages, language)
	}
	return slices.Contains(handlers, target)
}
