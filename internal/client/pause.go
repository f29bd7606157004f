package client

import (
	"context"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
)

// PauseGroup pauses the schedules of a group's jobs until an instant, or until ResumeGroup.
func (c *Client) PauseGroup(ctx context.Context, name, reason string, until *domain.Instant) (domain.Group, error) {
	body := struct {
		Reason string          `json:"reason"`
		Until  *domain.Instant `json:"until,omitempty"`
	}{reason, until}
	return answer[domain.Group](ctx, c, http.MethodPost, groupPath(name)+"/pause", nil, body)
}

// ResumeGroup ends a group's pause.
func (c *Client) ResumeGroup(ctx context.Context, name string) (domain.Group, error) {
	return answer[domain.Group](ctx, c, http.MethodPost, groupPath(name)+"/resume", nil, struct{}{})
}
