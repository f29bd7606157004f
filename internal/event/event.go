package event

import (
	"encoding/json"

	"github.com/belfryhq/belfry/internal/domain"
)

// TriggerSpec is what a user says of an event trigger: which events fire which job, and with what param.
type TriggerSpec struct {
	Name    string       `json:"name"` // a pattern of event names, with the wildcards of NATS
	JobID   domain.JobID `json:"job_id"`
	Filter  string       `json:"filter"` // CEL; empty: every event
	Param   string       `json:"param"`  // a Go template; empty: the event's data as JSON
	Enabled bool         `json:"enabled"`
}

// DefaultTriggerSpec is what absent fields mean.
func DefaultTriggerSpec() TriggerSpec { return TriggerSpec{Enabled: true} }

// Trigger is an event trigger as the REST API shows it.
type Trigger struct {
	ID int64 `json:"id"`
	TriggerSpec
	JobName   string         `json:"job_name"`
	Group     string         `json:"group"` // the job's
	Version   int            `json:"version"`
	CreatedAt domain.Instant `json:"created_at"`
	UpdatedAt domain.Instant `json:"updated_at"`
}

// Via says how an event came.
type Via string

// The ways.
const (
	ViaREST Via = "rest"
	ViaNATS Via = "nats"
)

// Event is an accepted event and what became of it.
type Event struct {
	ID         domain.RunID    `json:"id"`
	Name       string          `json:"name"`
	Source     string          `json:"source"`  // of a CloudEvent
	Type       string          `json:"type"`    // likewise
	Subject    string          `json:"subject"` // likewise
	Key        string          `json:"key"`     // what it is known by, such as its Idempotency-Key; empty: nothing but its id
	Time       domain.Instant  `json:"time"`    // when it happened, by its sender; else when it was received
	ReceivedAt domain.Instant  `json:"received_at"`
	Via        Via             `json:"via"`
	SentBy     string          `json:"sent_by"` // empty for NATS, whose messages do not say it
	DataBytes  int             `json:"data_bytes"`
	Data       json.RawMessage `json:"data"` // null where it is longer than MaxKeptBytes
	Deliveries []Delivery      `json:"deliveries"`
}

// MaxKeptBytes bounds the data that an event's record keeps. The filter and the template see all of it.
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

// Delivery says what one event trigger made of an event.
type Delivery struct {
	TriggerID int64           `json:"trigger_id"`
	Name      string          `json:"name"` // the trigger's pattern
	JobID     domain.JobID    `json:"job_id"`
	Group     string          `json:"group"`
	Outcome   DeliveryOutcome `json:"outcome"`
	Why       string          `json:"why"` // in words, where it did not fire
	RunID     *domain.RunID   `json:"run_id"`
}

// DeliveryOutcome says whether a trigger fired, or why not.
type DeliveryOutcome string

// The outcomes.
const (
	DeliveryFired       DeliveryOutcome = "fired"
	DeliveryDisabled    DeliveryOutcome = "disabled"     // the trigger is
	DeliveryFiltered    DeliveryOutcome = "filtered"     // its filter said false
	DeliveryFilterError DeliveryOutcome = "filter_error" // its filter failed
	DeliveryParamError  DeliveryOutcome = "param_error"  // its template failed, or what it made is too long
	DeliveryOverBudget  DeliveryOutcome = "over_budget"  // the event's triggers together cost too much
	DeliveryRepeated    DeliveryOutcome = "job_fired"    // another trigger of the job fired it for this event
	DeliveryNoJob       DeliveryOutcome = "no_job"       // the job was deleted meanwhile
)

// DeliveryOutcomes are all outcomes.
var DeliveryOutcomes = []DeliveryOutcome{DeliveryFired, DeliveryDisabled, DeliveryFiltered, DeliveryFilterError, DeliveryParamError,
	DeliveryOverBudget, DeliveryRepeated, DeliveryNoJob}

// Run is a run that an event causes.
type Run struct {
	RunID   domain.RunID
	EventID domain.RunID
	JobID   domain.JobID
	Param   string
}
