package bulk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/bulk/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The bounds of a count.
const (
	countPage = 500
	countMost = 10_000
	countTime = 3 * time.Second
	jobsMost  = 100 // jobs in a count; the ones with most runs
)

var (
	lastRunID  = domain.RunID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	unfinished = []domain.State{domain.Pending, domain.Queued, domain.Running, domain.Retrying}
)

func descending(a, b domain.RunID) int { return slices.Compare(b[:], a[:]) }

// page reads the next matching runs of the groups, newest first, before a run (nil: from the newest). Runs that were created after
// until do not match. next is nil after the last page. A page with a next can be empty.
func (s *Store) page(ctx context.Context, action string, f Filter, groups []string, until time.Time, before domain.RunID, limit int) (runs []domain.Run, next domain.RunID, err error) {
	if len(f.IDs) > 0 || f.BulkID != 0 {
		runs, next, err = s.listed(ctx, f, before, limit)
	} else {
		runs, next, err = s.views.Runs(ctx, f.view(action, groups, before, limit))
	}
	if err != nil {
		return nil, next, err
	}
	runs = slices.DeleteFunc(runs, func(r domain.Run) bool {
		return r.CreatedAt.Time.After(until) || groups != nil && !slices.Contains(groups, r.Group)
	})
	slices.SortFunc(runs, func(a, b domain.Run) int { return descending(a.ID, b.ID) })
	return runs, next, nil
}

// view returns the filter as package view has it. Without states, it selects those to which the action applies.
func (f *Filter) view(action string, groups []string, before domain.RunID, limit int) view.RunFilter {
	v := view.RunFilter{Only: groups, JobID: f.JobID, Group: f.Group, States: f.States, Cause: f.Cause, Reason: f.Reason, Instance: f.Instance,
		Before: before, Limit: limit}
	switch {
	case len(v.States) > 0:
	case action == Kill:
		v.States = unfinished
	default:
		v.States = []domain.State{domain.Failed}
	}
	if f.From != nil {
		v.From = f.From.Time
	}
	if f.To != nil {
		v.To = f.To.Time
	}
	if f.BroadcastID != nil {
		v.BroadcastID = *f.BroadcastID
	}
	if f.ParentRunID != nil {
		v.ParentRunID = *f.ParentRunID
	}
	return v
}

// listed is page for a filter that lists runs by id.
func (s *Store) listed(ctx context.Context, f Filter, before domain.RunID, limit int) (runs []domain.Run, next domain.RunID, err error) {
	if before.IsZero() {
		before = lastRunID
	}
	var ids []domain.RunID
	if f.BulkID != 0 {
		ids, err = s.q.NewRuns(ctx, sqlcgen.NewRunsParams{BulkID: f.BulkID, Before: before, MaxRows: int32(limit + 1)})
		if err != nil {
			return nil, next, pgerr.Translate(err)
		}
	} else {
		ids = slices.DeleteFunc(slices.Clone(f.IDs), func(id domain.RunID) bool { return slices.Compare(id[:], before[:]) >= 0 })
		slices.SortFunc(ids, descending)
		ids = slices.Compact(ids)
	}
	if len(ids) > limit {
		ids = ids[:limit]
		next = ids[limit-1]
	}
	runs, err = s.views.RunsByID(ctx, ids)
	return runs, next, err
}

// count counts the matching runs by job, within bounds.
func (s *Store) count(ctx context.Context, action string, f Filter, groups []string, until time.Time) (Matched, error) {
	m := Matched{Jobs: []JobCount{}}
	at := make(map[domain.JobID]int) // index into m.Jobs
	start := time.Now()
	for before := domain.NilRunID; ; {
		runs, next, err := s.page(ctx, action, f, groups, until, before, countPage)
		if err != nil {
			return m, err
		}
		for _, r := range runs {
			i, known := at[r.JobID]
			if !known {
				i = len(m.Jobs)
				at[r.JobID] = i
				m.Jobs = append(m.Jobs, JobCount{JobID: r.JobID, JobName: r.JobName, Group: r.Group})
			}
			m.Jobs[i].Runs++
			m.Runs++
		}
		if next.IsZero() {
			break
		}
		if before = next; m.Runs >= countMost || time.Since(start) > countTime {
			m.AtLeast = true
			break
		}
	}
	slices.SortFunc(m.Jobs, func(a, b JobCount) int { return cmp.Or(b.Runs-a.Runs, cmp.Compare(a.JobID, b.JobID)) })
	m.Jobs = m.Jobs[:min(len(m.Jobs), jobsMost)]
	return m, nil
}
