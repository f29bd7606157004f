package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/firecheck"
)

// FireScope selects what an audit of fire times looks at; job 0 is all.
type FireScope struct {
	Since, Until domain.Instant
	Job          domain.JobID
}

// AuditFires returns one page of an audit of fire times. The next one begins at its Next, and is the page of the
// span that this one names.
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

// Why asks what became of an instant of a job: RFC 3339, or a local time in the job's zone.
func (c *Client) Why(ctx context.Context, id domain.JobID, at string) (firecheck.Why, error) {
	return answer[firecheck.Why](ctx, c, http.MethodGet, jobPath(id)+"/why", values("at", at), nil)
}
