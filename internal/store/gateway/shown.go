package gateway

import (
	"context"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// OpenAmong returns the names of those of the groups that are open for executors of XXL-JOB, in no order.
func (s *Store) OpenAmong(ctx context.Context, names []string) ([]string, error) {
	open, err := s.q.OpenAmong(ctx, names)
	return open, pgerr.Translate(err)
}

// Shown reports whether a group is open for executors of XXL-JOB, and whether an attempt of one of its runs is unknown: it was sent, the executor did
// not answer, and nothing else is known of it since.
func (s *Store) Shown(ctx context.Context, group string, run domain.RunID, attempt int) (open, unanswered bool, err error) {
	r, err := s.q.Shown(ctx, sqlcgen.ShownParams{GroupName: group, RunID: run, Attempt: int32(attempt)})
	return r.Open, r.Unanswered, pgerr.Translate(err)
}
