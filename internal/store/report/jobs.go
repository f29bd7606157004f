package report

import (
	"context"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/report/sqlcgen"
)

// JobCount is how many jobs a group has.
type JobCount struct{ Jobs, Enabled int64 }

// JobCounts returns how many jobs each group has; groups without jobs are left out. It costs the same however many jobs
// there are.
func (s *Store) JobCounts(ctx context.Context) (map[string]JobCount, error) {
	rows, err := sqlcgen.New(s.pool).JobCounts(ctx)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	groups := make(map[string]JobCount, len(rows))
	for _, r := range rows {
		groups[r.GroupName] = JobCount{Jobs: r.Jobs, Enabled: r.Enabled}
	}
	return groups, nil
}
