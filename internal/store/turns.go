package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// CountRoutes raises the shared counters of round_robin jobs by n runs each and returns the previous values.
func (s *Store) CountRoutes(ctx context.Context, n map[domain.JobID]int) (map[domain.JobID]int64, error) {
	var p sqlcgen.CountRoutesParams
	for id, k := range n {
		p.JobIds = append(p.JobIds, int64(id))
		p.Ns = append(p.Ns, int64(k))
	}
	rows, err := s.q.CountRoutes(ctx, p)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[domain.JobID]int64, len(rows))
	for _, r := range rows {
		id := domain.JobID(r.JobID)
		out[id] = r.Counter - int64(n[id])
	}
	return out, nil
}

// TakeTurns counts runs that are about to be routed as uses of instances, and returns the previous numbers by instance.
// Each run goes to the instance with the smallest number: the least frequently or the least recently used one. All
// dispatchers share the numbers. The number of an instance that is no longer known is deleted.
func (s *Store) TakeTurns(ctx context.Context, turns map[domain.JobID]engine.Turns) (map[domain.JobID]map[string]int64, error) {
	var p sqlcgen.TakeTurnsParams
	for _, id := range slices.Sorted(maps.Keys(turns)) {
		t := turns[id]
		p.JobIds = append(p.JobIds, int64(id))
		p.Routes = append(p.Routes, string(t.Route))
		p.Counts = append(p.Counts, t.Route == domain.RouteLeastFrequentlyUsed)
		p.Ns = append(p.Ns, int32(t.Runs))
		p.Knowns = append(p.Knowns, strings.Join(t.Known, " "))
		p.Opens = append(p.Opens, strings.Join(t.Open, " "))
	}
	rows, err := s.q.TakeTurns(ctx, p)
	if err == nil && len(rows) < len(turns) {
		// These jobs are routed for the first time. The runs of the other jobs are counted twice, which is harmless.
		if err = s.q.EnsureUses(ctx, p.JobIds); err == nil {
			rows, err = s.q.TakeTurns(ctx, p)
		}
	}
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make(map[domain.JobID]map[string]int64, len(rows))
	for _, r := range rows {
		uses := make(map[string]int64)
		if err := json.Unmarshal(r.Found, &uses); err != nil {
			return nil, fmt.Errorf("read the uses of job %d: %w", r.JobID, err)
		}
		out[domain.JobID(r.JobID)] = uses
	}
	return out, nil
}
