package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// usagePartsMost is the largest number of rows of a group's usage that a transaction leaves when it adds to the usage. It
// bounds the rows that the next one reads, whatever the number of jobs is.
const usagePartsMost = 64

// addition is what a transaction adds to the usage of a group. Triggers of the tables count; see migration 00036.
type addition struct {
	group          string
	jobs           bool
	scriptVersions bool
}

// withinLimits returns Conflict if a transaction takes a group beyond a limit. It compares only what the transaction
// adds to, so that a group beyond a lowered limit can still change and delete its jobs. The comparison is exact:
// withinLimits locks the usage of the group until the transaction ends. It must be the last step of the transaction,
// because it locks after everything else.
func withinLimits(ctx context.Context, q *sqlcgen.Queries, additions ...addition) error {
	slices.SortFunc(additions, func(a, b addition) int { return strings.Compare(a.group, b.group) })
	for _, a := range additions {
		if !a.jobs && !a.scriptVersions {
			continue
		}
		if err := q.LockGroupUsage(ctx, a.group); err != nil {
			return err
		}
		// This is a separate statement, because it must see what the previous owner of the lock has committed.
		u, err := q.GroupUsage(ctx, a.group)
		if err != nil {
			return err
		}
		limits, err := domain.GroupLimitsFrom(u.Limits)
		if err != nil {
			return err
		}
		if a.jobs && u.Jobs > int64(limits.MaxJobs) {
			return overLimit(a.group, fmt.Sprintf("would have %d jobs", u.Jobs), "max_jobs", int64(limits.MaxJobs), "delete jobs")
		}
		if a.scriptVersions && u.ScriptVersions > int64(limits.MaxScriptVersions) {
			return overLimit(a.group, fmt.Sprintf("would have %d stored script versions", u.ScriptVersions),
				"max_script_versions", int64(limits.MaxScriptVersions), "keep the current script")
		}
		if u.Parts > usagePartsMost {
			if err := q.SumGroupUsage(ctx, a.group); err != nil {
				return err
			}
		}
	}
	return nil
}

// overLimit returns the error of a change that a limit of the group forbids.
func overLimit(group, state, limit string, value int64, remedy string) error {
	return domain.NewError(domain.Conflict, fmt.Sprintf("group %q %s, and its limit %s is %d; %s, or ask an administrator to raise the limit: belfry group set %s --%s N",
		group, state, limit, value, remedy, group, strings.ReplaceAll(limit, "_", "-")))
}

// TendUsage replaces the rows of a group's usage by their sum, where there are many. Transactions that only subtract, such
// as deletions of jobs, leave this to TendUsage. Call it from time to time.
func (s *Store) TendUsage(ctx context.Context) error {
	groups, err := s.q.PartedGroups(ctx, usagePartsMost)
	if err != nil {
		return pgerr.Translate(err)
	}
	for _, group := range groups {
		err := s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
			if locked, err := q.TryLockGroupUsage(ctx, group); err != nil || !locked {
				return err // another transaction adds to the usage; the next call finds the group again
			}
			return q.SumGroupUsage(ctx, group)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
