package client

import (
	"context"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
)

// Shards is a broadcast as one thing.
type Shards struct {
	BroadcastID *domain.RunID        `json:"broadcast_id"`
	Total       int                  `json:"total"`
	Counts      map[domain.State]int `json:"counts"`
	Items       []domain.Run         `json:"items"`
}

// Relative is a run that another one has caused.
type Relative struct {
	ID      domain.RunID `json:"id"`
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"`
	Group   string       `json:"group"`
	State   domain.State `json:"state"`
}

// RunDetail is a run with its attempts and the runs that its end has caused.
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

// Bulk is what to do to which runs.
type Bulk struct {
	Action string     `json:"action"` // kill or retry
	Filter BulkFilter `json:"filter"`
	Max    int        `json:"max,omitempty"`
	Cursor string     `json:"cursor,omitempty"`
}

// BulkFilter selects runs; it must name something.
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

// Bulked is what came of one step of a Bulk.
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

// BulkRuns does one step of a Bulk; Next is the Cursor of the next one, empty at the end.
func (c *Client) BulkRuns(ctx context.Context, b Bulk) (Bulked, error) {
	return answer[Bulked](ctx, c, http.MethodPost, "/runs/bulk", nil, b)
}
