package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// usagePartsMost bounds the rows of a group's usage that a transaction leaves when it adds to the usage. So the next
// transaction reads few rows, whatever the number of jobs is.
const usagePartsMost = 64

// addition names the limits whose usage a transaction increases in a group. Triggers on the tables count the usage; see
// migration 00036.
type addition struct {
	group          string
	jobs           bool
	fires          bool // of enabled jobs, per minute
	scriptVersions bool
}

// withinLimits returns Conflict if a transaction takes a group beyond a limit. It compares only what the transaction
// adds to, so that a group beyond a lowered limit can still change and delete its jobs. The comparison is exact:
// withinLimits locks the usage of the group until the transaction ends. It must be the last step of the transaction,
// because it locks after everything else.
func withinLimits(ctx context.Context, q *sqlcgen.Queries, additions ...addition) error {
	slices.SortFunc(additions, func(a, b addition) int { return strings.Compare(a.group, b.group) })
	for _, a := range additions {
		if !a.jobs && !a.fires && !a.scriptVersions {
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
		if a.fires && u.Fires > int64(limits.MaxFiresPerMinute) {
			return overLimit(a.group, fmt.Sprintf("would have up to %d fires per minute, the sum over the schedules of its enabled jobs", u.Fires),
				"max_fires_per_minute", int64(limits.MaxFiresPerMinute), "let jobs fire less often or disable jobs")
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

// firesPerMinute returns the most fires of a job in any minute while the job is enabled. A broadcast fires once for each
// of its fixed shards. The number of instances is not known in advance, so a broadcast to all instances counts once.
func firesPerMinute(spec *domain.JobSpec, compiled *schedule.Schedule) int {
	fires := compiled.PerMinute()
	if spec.Route == domain.RouteBroadcast {
		fires *= max(1, spec.Shards)
	}
	return fires
}

// TendUsage replaces the rows of a group's usage by their sum if there are many. Transactions that only subtract, such as
// deletions of jobs, leave this to TendUsage. It also computes the fires per minute of jobs that an older release has written,
// and deletes log bytes of past days. Call it from time to time.
func (s *Store) TendUsage(ctx context.Context) error {
	if err := s.addFires(ctx); err != nil {
		return err
	}
	if err := s.q.DeleteLogBytes(ctx, logBytesKept); err != nil {
		return pgerr.Translate(err)
	}
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

// logBytesKept is how many days before today have log bytes.
const logBytesKept = 7

// GroupsOverLogLimit returns the groups that have stored at least max_log_bytes_per_day of log text since midnight UTC. A group
// may exceed its limit by the batch of logs that is being stored.
func (s *Store) GroupsOverLogLimit(ctx context.Context) ([]string, error) {
	groups, err := s.q.LogBytesBeyond(ctx, domain.DefaultGroupLimits().MaxLogBytesPerDay)
	return groups, pgerr.Translate(err)
}

// The bounds of addFires: jobs per transaction, and transactions per call.
const (
	firesBatch   = 500
	firesBatches = 40
)

// addFires computes the fires per minute of jobs for whose current version they are not known.
func (s *Store) addFires(ctx context.Context) error {
	for range firesBatches {
		found := 0
		err := s.tx(ctx, func(_ pgx.Tx, q *sqlcgen.Queries) error {
			rows, err := q.JobsWithoutFires(ctx, firesBatch)
			if found = len(rows); err != nil || found == 0 {
				return err
			}
			var p sqlcgen.SetFiresParams
			for _, r := range rows {
				var spec domain.JobSpec
				fires := 0 // a job whose spec cannot be read or whose schedule no longer compiles does not fire
				if domain.DecodeSpec(r.Spec, &spec) == nil {
					if compiled, err := schedule.Compile(spec.Schedule, schedule.Options{DefaultZone: s.zone, CreatedAt: r.CreatedAt}); err == nil {
						fires = firesPerMinute(&spec, compiled)
					}
				}
				p.Ids, p.Fires = append(p.Ids, r.ID), append(p.Fires, int32(fires))
			}
			return q.SetFires(ctx, p)
		})
		if err != nil || found < firesBatch {
			return err
		}
	}
	return nil
}
