package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
)

// WireIDs lists up to most wire ids of a group.
func (c *Client) WireIDs(ctx context.Context, group string, most int) ([]domain.WireID, error) {
	return list[domain.WireID](ctx, c, groupPath(group)+"/wire-ids", nil, most)
}

// SetWireID gives a wire id to a job of the group, and notes what was imported. If the id belongs to another job, or the job has another
// id, the error has status 409.
func (c *Client) SetWireID(ctx context.Context, group string, w domain.WireID) error {
	body := map[string]any{"job_id": w.JobID, "source": w.Source}
	if len(w.Imported) > 0 {
		body["imported"] = w.Imported
	}
	return c.call(ctx, http.MethodPut, fmt.Sprintf("%s/wire-ids/%d", groupPath(group), w.WireID), nil, body, nil)
}
