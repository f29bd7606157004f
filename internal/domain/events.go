package domain

import "encoding/json"

// EventTriggerSpec is what a user says of an event trigger: which events fire which job, and with what param.
type EventTriggerSpec struct {
	Name    string `json:"name"` // a pattern of event names, with the wildcards of NATS
	JobID   JobID  `json:"job_id"`
	Filter  string `json:"filter"` // CEL; empty: every event
	Param   string `json:"param"`  // a Go template; empty: the event's data as JSON
	Enabled bool   `json:"enabled"`
}

// DefaultEventTriggerSpec is what absent fields mean.
func DefaultEventTriggerSpec() EventTriggerSpec { return EventTriggerSpec{Enabled: true} }

// EventTrigger is an event trigger as the REST API shows it.
type EventTrigger struct {
	ID int64 `json:"id"`
	EventTriggerSpec
	JobName   string  `json:"job_name"`
	Group     string  `json:"group"` // the job's
	Version   int     `json:"version"`
	CreatedAt Instant `json:"created_at"`
	UpdatedAt Instant `json:"updated_at"`
}

// EventVia says how an event came.
type EventVia string

// The ways.
const (
	ViaREST EventVia = "rest"
	ViaNATS EventVia = "nats"
)

// Event is an accepted event and what became of it.
type Event struct {
	ID         RunID           `json:"id"`
	Name       string          `json:"name"`
	Source     string          `json:"source"`  // of a CloudEvent
	Type       string          `json:"type"`    // likewise
	Subject    string          `json:"subject"` // likewise
	Key        string          `json:"key"`     // what it is known by, such as its Idempotency-Key; empty: nothing but its id
	Time       Instant         `json:"time"`    // when it happened, by its sender; else when it was received
	ReceivedAt Instant         `json:"received_at"`
	Via        EventVia        `json:"via"`
	SentBy     string          `json:"sent_by"` // empty for NATS, whose messages do not say it
	DataBytes  int             `json:"data_bytes"`
	Data       json.RawMessage `json:"data"` // null where it is longer than MaxKeptEventBytes
	Deliveries []Delivery      `json:"deliveries"`
}

// MaxKeptEventBytes bounds the data that an event's record keeps. The filter and the template see all of it.
const MaxKeptEventBytes = 64 << 10

// Runs returns the runs that the event fired.
func (e *Event) Runs() []RunID {
	runs := []RunID{}
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
	JobID     JobID           `json:"job_id"`
	Group     string          `json:"group"`
	Outcome   DeliveryOutcome `json:"outcome"`
	Why       string          `json:"why"` // in words, where it did not fire
	RunID     *RunID          `json:"run_id"`
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

// EventRunID computes the id of the run that an event causes through a trigger, so that an event that is worked twice
// makes one run. The event's id begins with its time, and so does the run's.
func EventRunID(event RunID, trigger int64) RunID {
	hi, lo := event.words()
	return hashedRunID(event.Time(), "event", hi, lo, uint64(trigger))
}

// EventRun is a run that an event causes.
type EventRun struct {
	RunID   RunID
	EventID RunID
	JobID   JobID
	Param   string
}

// DeadLetter is a message that could not be taken, and why.
type DeadLetter struct {
	Seq        uint64              `json:"seq"`
	Kind       string              `json:"kind"` // result, log or event
	At         Instant             `json:"at"`
	Subject    string              `json:"subject"` // where it came from
	Error      string              `json:"error"`
	Bytes      int                 `json:"bytes"`                 // of the whole message
	Data       string              `json:"data"`                  // as text, where it is one; empty in lists
	DataBase64 []byte              `json:"data_base64,omitempty"` // what was kept of it
	Headers    map[string][]string `json:"headers,omitempty"`
}
