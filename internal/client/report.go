package client

import (
	"context"
	"net/http"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/runstats"
)

// Span selects finished runs. The server sets nil and empty fields to their defaults.
type Span struct {
	From, To *domain.Instant
	Group    string
}

func (s Span) values(more ...string) []string {
	pairs := append([]string{"group", s.Group}, more...)
	if s.From != nil {
		pairs = append(pairs, "from", s.From.String())
	}
	if s.To != nil {
		pairs = append(pairs, "to", s.To.String())
	}
	return pairs
}

// Overview returns the current numbers of runs and instances, and the runs that finished within the span.
func (c *Client) Overview(ctx context.Context, s Span) (runstats.Overview, error) {
	return answer[runstats.Overview](ctx, c, http.MethodGet, "/overview", values(s.values()...), nil)
}

// RunReport counts the runs that finished within the span, by steps such as "1h".
func (c *Client) RunReport(ctx context.Context, s Span, step string) (runstats.Series, error) {
	return answer[runstats.Series](ctx, c, http.MethodGet, "/reports/runs", values(s.values("step", step)...), nil)
}
