package client

import (
	"context"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
)

// PauseGroup pauses the schedules of a group's jobs until an instant, or until ResumeGroup.
func (c *Client) PauseGroup(ctx context.Context, name, reason string, until *domain.Instant) (domain.Group, error) {
	return answer[domain.Group](ctx, c, http.MethodPost, groupPath(name)+"/pause", nil, pauseBody{reason, until})
}

type pauseBody struct {
	Reason string          `json:"reason"`
	Until  *domain.Instant `json:"until,omitempty"`
}

// ResumeGroup ends a group's pause.
func (c *Client) ResumeGroup(ctx context.Context, name string) (domain.Group, error) {
	return answer[domain.Group](ctx, c, http.MethodPost, groupPath(name)+"/resume", nil, struct{}{})
}

// PauseJob pauses the schedule of a job until an instant, or until ResumeJob.
func (c *Client) PauseJob(ctx context.Context, id domain.JobID, reason string, until *domain.Instant) (domain.Job, error) {
	return answer[domain.Job](ctx, c, http.MethodPost, jobPath(id)+"/pause", nil, pauseBody{reason, until})
}

// ResumeJob ends the pause of a job. A pause of its group stays.
func (c *Client) ResumeJob(ctx context.Context, id domain.JobID) (domain.Job, error) {
	return answer[domain.Job](ctx, c, http.MethodPost, jobPath(id)+"/resume", nil, struct{}{})
}
