package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/internal/domain"
)

// Backfill is a range of fire times to run a job for.
type Backfill struct {
	From domain.Instant `json:"from"`
	To   domain.Instant `json:"to"`
	Max  int            `json:"max,omitempty"`
}

// BackfillJob plans a run for each fire time of a range. A dry run only returns the fire times.
func (c *Client) BackfillJob(ctx context.Context, id domain.JobID, b Backfill, dryRun bool) (domain.Backfilled, error) {
	var q url.Values
	if dryRun {
		q = url.Values{"dry_run": {"true"}}
	}
	return answer[domain.Backfilled](ctx, c, http.MethodPost, jobPath(id)+"/backfill", q, b)
}
