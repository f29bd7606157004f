package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// setChildren replaces a job's edges. It refuses a cycle with the path that closes it.
func setChildren(ctx context.Context, q *sqlcgen.Queries, id domain.JobID, children []domain.Child) error {
	if len(children) == 0 {
		return q.DeleteChildren(ctx, int64(id))
	}
	if err := q.LockChildren(ctx); err != nil {
		return err
	}
	var f domain.Faults
	if err := checkChildren(ctx, q, &f, id, children); err != nil {
		return err
	}
	if err := f.Err("the children are not valid"); err != nil {
		return err
	}
	if err := q.DeleteChildren(ctx, int64(id)); err != nil {
		return err
	}
	ids := make([]int64, len(children))
	for i, c := range children {
		ids[i] = int64(c.JobID)
	}
	return q.InsertChildren(ctx, sqlcgen.InsertChildrenParams{ParentID: int64(id), ChildIds: ids})
}

// checkChildren adds the children to f that do not exist or that close a cycle.
func checkChildren(ctx context.Context, q *sqlcgen.Queries, f *domain.Faults, id domain.JobID, children []domain.Child) error {
	ids := make([]int64, len(children))
	for i, c := range children {
		ids[i] = int64(c.JobID)
		if c.JobID <= 0 {
			continue // no job has such an id, and the spec's own validation says so
		}
		at := fmt.Sprintf("children[%d].job_id", i)
		if c.JobID == id {
			f.Add(at, fmt.Sprintf("closes a cycle: %d → %d", id, id))
			continue
		}
		paths, err := q.PathTo(ctx, sqlcgen.PathToParams{FromID: ids[i], ToID: int64(id)})
		if err != nil {
			return err
		}
		if len(paths) > 0 && len(paths[0]) > 0 {
			f.Add(at, fmt.Sprintf("closes a cycle: %d → %s", id, arrows(paths[0])))
		}
	}
	names, err := q.JobNames(ctx, ids)
	if err != nil {
		return err
	}
	for i, c := range children {
		known := slices.ContainsFunc(names, func(n sqlcgen.JobNamesRow) bool { return n.ID == ids[i] })
		if !known && c.JobID > 0 && c.JobID != id {
			f.Add(fmt.Sprintf("children[%d].job_id", i), fmt.Sprintf("there is no job %d", c.JobID))
		}
	}
	return nil
}

func arrows(path []int64) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = fmt.Sprint(p)
	}
	return strings.Join(parts, " → ")
}
