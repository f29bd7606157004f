package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
)

// Export returns groups and jobs as YAML. An empty group stands for all groups.
func (c *Client) Export(ctx context.Context, group string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, "/export", values("group", group), nil, "application/yaml")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the response of %s: %w", c.base.Host, err)
	}
	if len(data) > maxBodyBytes {
		return nil, fmt.Errorf("the export of %s is larger than %d MiB; export one group at a time", c.base.Host, maxBodyBytes>>20)
	}
	return data, nil
}

// Difference is a changed field of a job.
type Difference struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// ImportItem is the result for a group or a job.
type ImportItem struct {
	Kind    string       `json:"kind"`
	Group   string       `json:"group"`
	Name    string       `json:"name"`
	ID      domain.JobID `json:"id,omitempty"`
	Action  string       `json:"action"`
	Changes []Difference `json:"changes"`
	Error   string       `json:"error,omitempty"`
}

// ImportResult is the result of an import, or of its dry run.
type ImportResult struct {
	DryRun    bool         `json:"dry_run"`
	Created   int          `json:"created"`
	Updated   int          `json:"updated"`
	Unchanged int          `json:"unchanged"`
	Failed    int          `json:"failed"`
	Items     []ImportItem `json:"items"`
}

// Import imports the groups and jobs of a file. A dry run only returns what would change.
func (c *Client) Import(ctx context.Context, file []byte, dryRun bool) (ImportResult, error) {
	q := values()
	if dryRun {
		q = values("dry_run", "true")
	}
	return answer[ImportResult](ctx, c, http.MethodPost, "/import", q, upload{"application/yaml", file})
}
