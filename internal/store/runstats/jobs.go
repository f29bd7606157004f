package runstats

import (
	"context"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/runstats/sqlcgen"
)

// JobCount is the number of jobs of a group.
type JobCount struct{ Jobs, Enabled int64 }

// JobCounts returns the number of jobs of each group that has any. Its cost does not depend on the number of jobs.
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
