package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Attention is what needs a person.
type Attention struct {
	Items       []AttentionItem `json:"items"`
	Truncated   bool            `json:"truncated"`   // more items exist, or not all jobs and runs were counted
	Unavailable []string        `json:"unavailable"` // the kinds that could not be read
}

// AttentionItem is something that needs a person.
type AttentionItem struct {
	ID          string              `json:"id"`
	Kind        string              `json:"kind"`
	Group       string              `json:"group"`
	JobID       *domain.JobID       `json:"job_id"`
	JobName     string              `json:"job_name,omitempty"`
	Since       *domain.Instant     `json:"since"`
	Count       int64               `json:"count"`
	AtLeast     bool                `json:"at_least,omitempty"`
	Text        string              `json:"text"`
	RunID       *domain.RunID       `json:"run_id,omitempty"`
	LastSuccess *domain.LastSuccess `json:"last_success,omitempty"`

	Explanation *explain.Explanation  `json:"explanation,omitempty"` // of servers and roles: what is wrong
	Changes     []explain.Explanation `json:"changes,omitempty"`     // what changed since the last success of a failing job

	RunbookURL   string        `json:"runbook_url,omitempty"`
	Acknowledged *AttentionAck `json:"acknowledged,omitempty"`
}

// AttentionAck is the acknowledgement of an item.
type AttentionAck struct {
	By    string          `json:"by"`
	At    domain.Instant  `json:"at"`
	Note  string          `json:"note"`
	Until *domain.Instant `json:"until"`
}

// Attention lists what needs attention.
func (c *Client) Attention(ctx context.Context) (Attention, error) {
	return answer[Attention](ctx, c, http.MethodGet, "/attention", nil, nil)
}

// Acknowledge acknowledges an item. until may be nil.
func (c *Client) Acknowledge(ctx context.Context, id, note string, until *domain.Instant) (AttentionItem, error) {
	body := struct {
		Note  string          `json:"note,omitempty"`
		Until *domain.Instant `json:"until,omitempty"`
	}{note, until}
	return answer[AttentionItem](ctx, c, http.MethodPost, "/attention/"+url.PathEscape(id)+"/acknowledge", nil, body)
}
