package domain

import "encoding/json"

// The range of wire ids. Executors of XXL-JOB read them as 32-bit numbers.
const MaxWireID = 1<<31 - 1

// WireID is the id that a job of a group has for executors of XXL-JOB. It is unique in its group.
type WireID struct {
	WireID     int64  `json:"wire_id"`
	JobID      JobID  `json:"job_id"`
	JobDeleted bool   `json:"job_deleted" doc:"Whether the job was deleted. Its wire id stays listed until another job gets it"`
	Source     string `json:"source" doc:"Where the job was imported from; empty: it was not imported"`
	// Imported is the JSON form of the job as the last import wrote it.
	Imported json.RawMessage `json:"imported" doc:"The job as the last import wrote it; null: it was not imported"`
}
