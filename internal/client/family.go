package client

import (
	"context"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
)

// Shards is a broadcast with all its shards.
type Shards struct {
	BroadcastID *domain.RunID        `json:"broadcast_id"`
	Total       int                  `json:"total"`
	Counts      map[domain.State]int `json:"counts"`
	Items       []domain.Run         `json:"items"`
}

// Relative is a run that another run caused.
type Relative struct {
	ID      domain.RunID `json:"id"`
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"`
	Group   string       `json:"group"`
	State   domain.State `json:"state"`
}

// RunDetail is a run with its attempts and the child runs that its end caused.
type RunDetail struct {
	domain.Run
	Children []Relative `json:"children"`
}

// RunDetail returns one run with its attempts and children.
func (c *Client) RunDetail(ctx context.Context, id domain.RunID) (RunDetail, error) {
	return answer[RunDetail](ctx, c, http.MethodGet, "/runs/"+id.String(), nil, nil)
}

// Shards returns the broadcast that a run belongs to.
func (c *Client) Shards(ctx context.Context, id domain.RunID) (Shards, error) {
	return answer[Shards](ctx, c, http.MethodGet, "/runs/"+id.String()+"/shards", nil, nil)
}

// Bulk is an action on many runs. With Max or Cursor, the request itself changes runs.
type Bulk struct {
	Action string     `json:"action"` // kill or retry
	Filter BulkFilter `json:"filter"`
	Max    int        `json:"max,omitempty"`
	Cursor string     `json:"cursor,omitempty"`
}

// BulkFilter selects runs. At least one field must be set.
type BulkFilter struct {
	JobID       domain.JobID    `json:"job_id,omitempty"`
	Group       string          `json:"group,omitempty"`
	State       []string        `json:"state,omitempty"`
	Cause       string          `json:"cause,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Instance    string          `json:"instance,omitempty"`
	From        *domain.Instant `json:"from,omitempty"`
	BroadcastID *domain.RunID   `json:"broadcast_id,omitempty"`
}

// Bulked is the result of one step of a Bulk.
type Bulked struct {
	Matched  int `json:"matched"`
	Done     int `json:"done"`
	Skipped  int `json:"skipped"`
	Failed   int `json:"failed"`
	Failures []struct {
		RunID  domain.RunID `json:"run_id"`
		Detail string       `json:"detail"`
	} `json:"failures"`
	RunIDs []domain.RunID `json:"run_ids"`
	Next   string         `json:"next_cursor"`
}

// BulkRuns performs one step of a Bulk. Next is the Cursor of the next step; it is empty at the end.
func (c *Client) BulkRuns(ctx context.Context, b Bulk) (Bulked, error) {
	return answer[Bulked](ctx, c, http.MethodPost, "/runs/bulk", nil, b)
}
