package view

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// familyMax bounds the children of one run that are read: several times as many as a job may have. One statement reads at most
// as many runs of a bulk action.
const familyMax = 1000

// Shards returns all shards of the broadcast that a run belongs to, in the order of their index, with long texts cut as
// in lists. For a run that is no shard it returns none. The error is NotFound if there is no such run.
func (s *Store) Shards(ctx context.Context, id domain.RunID) ([]domain.Run, error) {
	found, err := s.byID(ctx, []domain.RunID{id}, listText)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, noRun()
	}
	run := found[0]
	if run.BroadcastID == nil || run.Shard == nil {
		return []domain.Run{}, nil
	}
	ids := make([]domain.RunID, run.Shard.Total)
	for i := range ids {
		ids[i] = domain.ShardRunID(*run.BroadcastID, i)
	}
	shards, err := s.byID(ctx, ids, listText)
	if err != nil {
		return nil, err
	}
	shards = slices.DeleteFunc(shards, func(r domain.Run) bool { return r.Shard == nil })
	slices.SortFunc(shards, func(a, b domain.Run) int { return a.Shard.Index - b.Shard.Index })
	return shards, nil
}

// Children returns the runs caused by the end of a run, oldest first, with long texts cut as in lists. The children of
// a broadcast are those of each of its shards.
func (s *Store) Children(ctx context.Context, run domain.Run) ([]domain.Run, error) {
	parents := []domain.RunID{run.ID}
	if run.BroadcastID != nil {
		parents = append(parents, *run.BroadcastID)
	}
	ids, err := s.q.ChildRuns(ctx, sqlcgen.ChildRunsParams{
		Parents: parents, Lo: domain.FirstRunID(run.CreatedAt.Time.Add(-1)), MaxRows: familyMax,
	})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	children, err := s.byID(ctx, ids, listText)
	slices.Reverse(children)
	return children, err
}

// family lists the shards of a broadcast or the children of a run that match the filter.
func (s *Store) family(ctx context.Context, f RunFilter) (runs []domain.Run, next domain.RunID, err error) {
	switch {
	case !f.BroadcastID.IsZero():
		runs, err = s.Shards(ctx, f.BroadcastID)
	default:
		var parent []domain.Run
		if parent, err = s.byID(ctx, []domain.RunID{f.ParentRunID}, 0); err == nil && len(parent) > 0 {
			runs, err = s.Children(ctx, parent[0])
		}
	}
	if err != nil && domain.CodeOf(err) != domain.NotFound {
		return nil, next, err
	}
	var now time.Time
	if f.Unplanned {
		if now, err = s.q.Now(ctx); err != nil {
			return nil, next, pgerr.Translate(err)
		}
	}
	runs = slices.DeleteFunc(runs, func(r domain.Run) bool { return !f.Fits(&r) || f.Unplanned && planned(&r, now) })
	slices.SortFunc(runs, func(a, b domain.Run) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	if len(runs) > f.Limit {
		next = runs[f.Limit-1].ID
		runs = runs[:f.Limit]
	}
	return append([]domain.Run{}, runs...), next, nil
}

// keysOfBulk walks the new runs of a bulk action.
func (s *Store) keysOfBulk(ctx context.Context, f RunFilter, lo, hi domain.RunID) (keys []key, more bool, err error) {
	ids, err := s.q.RunsOfBulk(ctx, sqlcgen.RunsOfBulkParams{BulkID: f.BulkID, Lo: lo, Hi: hi, MaxRows: familyMax})
	if err != nil {
		return nil, false, err
	}
	now, err := s.q.Now(ctx)
	if err != nil {
		return nil, false, err
	}
	runs, err := s.byID(ctx, ids, 0)
	if err != nil {
		return nil, false, err
	}
	fits := make(map[domain.RunID]bool, len(runs))
	for _, r := range runs {
		fits[r.ID] = f.Fits(&r) && !(f.Unplanned && planned(&r, now))
	}
	return convert(ids, func(id domain.RunID) key { return key{id, fits[id]} }), len(ids) == familyMax, nil
}

// planned reports whether a run is not due yet. A held run is due.
func planned(r *domain.Run, now time.Time) bool {
	return r.State == domain.Pending && r.HeldBy == nil && r.DueAt != nil && r.DueAt.After(now)
}

// Fits reports whether a run matches the filters that depend on the run alone: all but Unplanned, ParentRunID, BulkID
// and Limit.
func (f RunFilter) Fits(r *domain.Run) bool {
	lo, hi := idRange(f)
	return bytes.Compare(r.ID[:], lo[:]) >= 0 && bytes.Compare(r.ID[:], hi[:]) < 0 &&
		f.Sees(r.Group) &&
		(f.JobID == 0 || f.JobID == r.JobID) &&
		(len(f.States) == 0 || slices.Contains(f.States, r.State)) &&
		(f.Cause == "" || f.Cause == r.Cause) &&
		(f.Reason == "" || f.Reason == r.Reason) &&
		(f.Instance == "" || f.Instance == r.Instance) &&
		(f.BroadcastID.IsZero() || r.BroadcastID != nil && *r.BroadcastID == f.BroadcastID)
}

// RunsByID returns runs by their ids, newest first, with long texts cut as in lists. Unknown ids are left out.
func (s *Store) RunsByID(ctx context.Context, ids []domain.RunID) ([]domain.Run, error) {
	return s.byID(ctx, ids, listText)
}
