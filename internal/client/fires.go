package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/firecheck"
)

// FireScope selects fire times for the fire check. Job 0 stands for all jobs.
type FireScope struct {
	Since, Until domain.Instant
	Job          domain.JobID
}

// AuditFires returns one page of the fire check. The cursor of the next page is this page's Next. The request for it must have
// the span that this page contains.
func (c *Client) AuditFires(ctx context.Context, f FireScope, cursor string) (firecheck.Page, error) {
	q := values("cursor", cursor, "since", f.Since.String())
	if !f.Until.IsZero() {
		q.Set("until", f.Until.String())
	}
	if f.Job != 0 {
		q.Set("job_id", strconv.FormatInt(int64(f.Job), 10))
	}
	return answer[firecheck.Page](ctx, c, http.MethodGet, "/audit/fires", q, nil)
}

// Why explains an instant of a job. The instant is in RFC 3339, or a local time in the job's zone.
func (c *Client) Why(ctx context.Context, id domain.JobID, at string) (firecheck.Why, error) {
	return answer[firecheck.Why](ctx, c, http.MethodGet, jobPath(id)+"/why", values("at", at), nil)
}
