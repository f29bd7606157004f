package runstats

import (
	"context"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/runstats/sqlcgen"
)

// JobCount is the number of jobs of a group.
type JobCount struct{ Jobs, Enabled int64 }

// GroupState is how the jobs of a group fare. AtLeast: more are failing or paused.
type GroupState struct {
	Failing, Paused int64
	AtLeast         bool
}

// MostCounted is how many failing and how many paused jobs of a group GroupStates counts.
const MostCounted = 1000

// GroupStates returns how many jobs of each of some groups are failing, and how many are paused themselves.
func (s *Store) GroupStates(ctx context.Context, groups []string) (map[string]GroupState, error) {
	rows, err := sqlcgen.New(s.pool).GroupStates(ctx, sqlcgen.GroupStatesParams{Groups: groups, Most: MostCounted + 1})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	states := make(map[string]GroupState, len(rows))
	for _, r := range rows {
		states[r.GroupName] = GroupState{Failing: min(r.Failing, MostCounted), Paused: min(r.Paused, MostCounted), AtLeast: max(r.Failing, r.Paused) > MostCounted}
	}
	return states, nil
}

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
