package event

import (
	"encoding/json"

	"github.com/belfryhq/belfry/internal/domain"
)

// TriggerSpec is the part of an event trigger that users set: which events fire which job, and with what param.
type TriggerSpec struct {
	Name    string       `json:"name"` // a pattern of event names, with NATS wildcards
	JobID   domain.JobID `json:"job_id"`
	Filter  string       `json:"filter"` // CEL; empty: every event passes
	Param   string       `json:"param"`  // a Go template; empty: the event's data as JSON
	Enabled bool         `json:"enabled"`
}

// DefaultTriggerSpec returns the defaults of absent fields.
func DefaultTriggerSpec() TriggerSpec { return TriggerSpec{Enabled: true} }

// Trigger is an event trigger as the REST API returns it.
type Trigger struct {
	ID int64 `json:"id"`
	TriggerSpec
	JobName   string         `json:"job_name"`
	Group     string         `json:"group"` // the job's
	Version   int            `json:"version"`
	CreatedAt domain.Instant `json:"created_at"`
	UpdatedAt domain.Instant `json:"updated_at"`
}

// Via says how an event arrived.
type Via string

// The values of Via.
const (
	ViaREST Via = "rest"
	ViaNATS Via = "nats"
)

// Event is an accepted event with the result of each of its triggers.
type Event struct {
	ID         domain.RunID    `json:"id"`
	Name       string          `json:"name"`
	Source     string          `json:"source"` // this and the next two are attributes of a CloudEvent
	Type       string          `json:"type"`
	Subject    string          `json:"subject"`
	Key        string          `json:"key"`  // identifies repeats of the event, such as an Idempotency-Key; empty: it has none
	Time       domain.Instant  `json:"time"` // when it happened according to its sender; otherwise when it was received
	ReceivedAt domain.Instant  `json:"received_at"`
	Via        Via             `json:"via"`
	SentBy     string          `json:"sent_by"` // a user; empty for NATS, whose messages name no sender
	DataBytes  int             `json:"data_bytes"`
	Data       json.RawMessage `json:"data"` // null if it is longer than MaxKeptBytes
	Deliveries []Delivery      `json:"deliveries"`
}

// MaxKeptBytes is the maximum size of the data that an event's record keeps. Filters and templates read longer data in full.
const MaxKeptBytes = 64 << 10

// Runs returns the runs that the event fired.
func (e *Event) Runs() []domain.RunID {
	runs := []domain.RunID{}
	for _, d := range e.Deliveries {
		if d.RunID != nil {
			runs = append(runs, *d.RunID)
		}
	}
	return runs
}

// Delivery is the result of one trigger for an event.
type Delivery struct {
	TriggerID int64           `json:"trigger_id"`
	Name      string          `json:"name"` // the trigger's pattern
	JobID     domain.JobID    `json:"job_id"`
	Group     string          `json:"group"`
	Outcome   DeliveryOutcome `json:"outcome"`
	Why       string          `json:"why"` // an English sentence if the trigger did not fire
	RunID     *domain.RunID   `json:"run_id"`
}

// DeliveryOutcome says whether a trigger fired and, if it did not, why.
type DeliveryOutcome string

// The outcomes.
const (
	DeliveryFired       DeliveryOutcome = "fired"
	DeliveryDisabled    DeliveryOutcome = "disabled"     // the trigger is disabled
	DeliveryFiltered    DeliveryOutcome = "filtered"     // its filter returned false
	DeliveryFilterError DeliveryOutcome = "filter_error" // its filter failed
	DeliveryParamError  DeliveryOutcome = "param_error"  // its template failed, or its result is too long
	DeliveryOverBudget  DeliveryOutcome = "over_budget"  // the event's triggers together exceeded their budget
	DeliveryRepeated    DeliveryOutcome = "job_fired"    // another trigger of the job fired it for this event
	DeliveryNoJob       DeliveryOutcome = "no_job"       // the job was deleted meanwhile
)

// DeliveryOutcomes lists all outcomes.
var DeliveryOutcomes = []DeliveryOutcome{DeliveryFired, DeliveryDisabled, DeliveryFiltered, DeliveryFilterError, DeliveryParamError,
	DeliveryOverBudget, DeliveryRepeated, DeliveryNoJob}

// Run is a run that an event causes.
type Run struct {
	RunID   domain.RunID
	EventID domain.RunID
	JobID   domain.JobID
	Param   string
	Trace   string // the trace that the run continues, in the form of package trace; "": it begins its own
}
