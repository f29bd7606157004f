package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/firecheck"
)

// FireScope selects the fire times to check. Job 0 means all jobs.
type FireScope struct {
	Since, Until domain.Instant
	Job          domain.JobID
}

// AuditFires returns one page of the fire check. For the next page, pass its Next as cursor and its Since and Until as scope.
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

// Why explains what happened to a job at an instant, given in RFC 3339 or as a local time in the job's time zone.
func (c *Client) Why(ctx context.Context, id domain.JobID, at string) (firecheck.Why, error) {
	return answer[firecheck.Why](ctx, c, http.MethodGet, jobPath(id)+"/why", values("at", at), nil)
}
