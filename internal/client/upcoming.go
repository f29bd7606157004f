package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Upcoming holds the next fire times of all jobs.
type Upcoming struct {
	From    domain.Instant `json:"from"`
	Until   domain.Instant `json:"until"`
	Through domain.Instant `json:"through"`
	Cut     bool           `json:"cut"`
	Items   []struct {
		FireTime domain.Instant `json:"fire_time"`
		DueAt    domain.Instant `json:"due_at"`
		JobID    domain.JobID   `json:"job_id"`
		JobName  string         `json:"job_name"`
		Group    string         `json:"group"`
		RunID    *domain.RunID  `json:"run_id"`
	} `json:"items"`
}

// Upcoming lists up to limit fire times within a span from now on.
func (c *Client) Upcoming(ctx context.Context, within time.Duration, group string, limit int) (Upcoming, error) {
	q := values("within", within.String(), "group", group, "limit", strconv.Itoa(limit))
	return answer[Upcoming](ctx, c, http.MethodGet, "/upcoming", q, nil)
}
