package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/internal/domain"
)

// Bulk is an action on many runs.
type Bulk struct {
	Action string     `json:"action"` // kill or retry
	Filter BulkFilter `json:"filter"`
}

// BulkStep is a Bulk without a bulk action: the request itself changes at most Max runs.
type BulkStep struct {
	Bulk
	Max    int    `json:"max"`
	Cursor string `json:"cursor,omitempty"` // Next of the previous step
}

// BulkStepped is the result of a BulkStep.
type BulkStepped struct {
	Matched  int `json:"matched"`
	Done     int `json:"done"`
	Skipped  int `json:"skipped"`
	Failed   int `json:"failed"`
	Failures []struct {
		RunID  domain.RunID `json:"run_id"`
		Detail string       `json:"detail"`
	} `json:"failures"`
	RunIDs []domain.RunID `json:"run_ids"`
	Next   string         `json:"next_cursor"` // empty at the end
}

// BulkFilter selects runs. At least one field must be set.
type BulkFilter struct {
	BulkID      int64           `json:"bulk_id,omitempty"` // the new runs of this bulk action; the other fields do not apply
	JobID       domain.JobID    `json:"job_id,omitempty"`
	Group       string          `json:"group,omitempty"`
	State       []string        `json:"state,omitempty"`
	Cause       string          `json:"cause,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Instance    string          `json:"instance,omitempty"`
	From        *domain.Instant `json:"from,omitempty"`
	BroadcastID *domain.RunID   `json:"broadcast_id,omitempty"`
}

// BulkMatches is how many runs match a filter, by job. The jobs are those with most of the runs.
type BulkMatches struct {
	Matched int       `json:"matched"`
	AtLeast bool      `json:"at_least"` // Matched is a lower bound
	Jobs    []BulkJob `json:"jobs"`
}

// BulkJob is how many runs of a job match.
type BulkJob struct {
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"`
	Group   string       `json:"group"`
	Runs    int          `json:"runs"`
}

// BulkAction is a bulk action of the server with its progress.
type BulkAction struct {
	ID         int64                      `json:"id"`
	Action     string                     `json:"action"`
	Filter     map[string]json.RawMessage `json:"filter"` // the fields of a BulkFilter, and others
	State      string                     `json:"state"`  // waiting, running, done, stopped or failed
	CreatedBy  string                     `json:"created_by"`
	CreatedAt  domain.Instant             `json:"created_at"`
	StartedAt  *domain.Instant            `json:"started_at,omitempty"`
	FinishedAt *domain.Instant            `json:"finished_at,omitempty"` // nil: unfinished
	BulkMatches
	Counts struct {
		Done    int `json:"done"`
		Skipped int `json:"skipped"`
		Failed  int `json:"failed"`
	} `json:"counts"`
	Errors []BulkError `json:"errors"`
	Note   string      `json:"note,omitempty"` // why the action failed, was stopped, or waits
}

// BulkError is a reason why runs failed.
type BulkError struct {
	Message string       `json:"message"`
	Runs    int          `json:"runs"`
	RunID   domain.RunID `json:"run_id"` // the first of these runs
}

// StepBulk performs one step.
func (c *Client) StepBulk(ctx context.Context, b BulkStep) (BulkStepped, error) {
	return answer[BulkStepped](ctx, c, http.MethodPost, "/runs/bulk", nil, b)
}

// CountBulk counts the runs that a Bulk would apply to, and changes nothing.
func (c *Client) CountBulk(ctx context.Context, b Bulk) (BulkMatches, error) {
	return answer[BulkMatches](ctx, c, http.MethodPost, "/runs/bulk", url.Values{"dry_run": {"true"}}, b)
}

// StartBulk makes a bulk action, on which the server works.
func (c *Client) StartBulk(ctx context.Context, b Bulk) (BulkAction, error) {
	type made struct {
		Bulk *BulkAction `json:"bulk"`
	}
	out, err := answer[made](ctx, c, http.MethodPost, "/runs/bulk", nil, b)
	if err == nil && out.Bulk == nil {
		err = errors.New("the server's response has no bulk action")
	}
	if err != nil {
		return BulkAction{}, err
	}
	return *out.Bulk, nil
}

// BulkActions lists up to most bulk actions, newest first.
func (c *Client) BulkActions(ctx context.Context, most int) ([]BulkAction, error) {
	return list[BulkAction](ctx, c, "/bulk", nil, most)
}

// BulkAction returns one bulk action.
func (c *Client) BulkAction(ctx context.Context, id int64) (BulkAction, error) {
	return answer[BulkAction](ctx, c, http.MethodGet, bulkPath(id), nil, nil)
}

// StopBulk ends a bulk action after its current batch.
func (c *Client) StopBulk(ctx context.Context, id int64) (BulkAction, error) {
	return answer[BulkAction](ctx, c, http.MethodDelete, bulkPath(id), nil, nil)
}

func bulkPath(id int64) string { return fmt.Sprintf("/bulk/%d", id) }
