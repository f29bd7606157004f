package client

import (
	"context"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
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

	LastSuccess *domain.LastSuccess   `json:"last_success,omitempty"` // of a failed run: the last success of the job before it
	Changes     []explain.Explanation `json:"changes,omitempty"`      // what changed since then
}

// RunDetail returns one run with its attempts and children.
func (c *Client) RunDetail(ctx context.Context, id domain.RunID) (RunDetail, error) {
	return answer[RunDetail](ctx, c, http.MethodGet, "/runs/"+id.String(), nil, nil)
}

// Shards returns the broadcast that a run belongs to.
func (c *Client) Shards(ctx context.Context, id domain.RunID) (Shards, error) {
	return answer[Shards](ctx, c, http.MethodGet, "/runs/"+id.String()+"/shards", nil, nil)
}
