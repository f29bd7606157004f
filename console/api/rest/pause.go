package rest

import (
	"time"

	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/internal/domain"
)

// PauseBody is the body of a request that pauses a group or a job.
type PauseBody struct {
	Reason string          `json:"reason" doc:"The reason. It is shown with the group or the job, and with fire times that were missed because of the pause"`
	Until  *domain.Instant `json:"until,omitempty" doc:"The end of the pause. Default: the pause lasts until it is resumed"`
}

// DecodePause decodes a PauseBody. The error is Invalid and names all faulty fields.
func (b *JSONBody) DecodePause() (reason string, until *time.Time, err error) {
	var p PauseBody
	shape := b.Decode(&p)
	if p.Until != nil {
		until = &p.Until.Time
	}
	return p.Reason, until, strict.AlsoFaulty(shape, domain.CheckPause(p.Reason, until, time.Now()))
}
