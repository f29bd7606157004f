package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// A count of live runs reads the whole table, so it may take at most 1/liveCountShare of one process's time.
const (
	liveCountLeast = 5 * time.Second
	liveCountShare = 20
)

// CountLiveRuns counts the unfinished runs of each group, if the last count is old enough. Call it every second: if
// several processes do, one of them counts.
func (s *Store) CountLiveRuns(ctx context.Context) error {
	return s.tx(ctx, func(tx pgx.Tx, q *sqlcgen.Queries) error {
		if _, err := q.ClaimLiveCount(ctx); errors.Is(err, pgx.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		// The count reads every row, so an index would only add to its cost.
		if _, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = on; SET LOCAL max_parallel_workers_per_gather = 0`); err != nil {
			return err
		}
		if err := q.CountLiveRuns(ctx); err != nil {
			return err
		}
		return q.SetLiveCount(ctx, sqlcgen.SetLiveCountParams{Pause: liveCountLeast, Share: liveCountShare})
	})
}

// Overflow describes runs that were not planned, or that ended at once, because their group has too many live runs.
type Overflow struct {
	Group string
	Cause domain.Cause
	Runs  int
}

// OnOverflow sets a function that is called for each Overflow. It must be called before any other method.
func (s *Store) OnOverflow(f func(context.Context, Overflow)) { s.refused = f }

// liveEstimate is what this process has planned since the last count. It does not include what other processes and the
// schedulers have planned meanwhile.
type liveEstimate struct {
	mu        sync.Mutex
	countedAt time.Time        // guarded by mu
	planned   map[string]int64 // guarded by mu; runs by group
}

// add adds runs of a group, and returns how many it has planned. A newer count starts from zero.
func (l *liveEstimate) add(group string, countedAt time.Time, runs int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.planned == nil || countedAt.After(l.countedAt) {
		l.countedAt, l.planned = countedAt, make(map[string]int64)
	}
	if runs > 0 {
		l.planned[group] += runs
	}
	return l.planned[group]
}

// room is how many runs a group may still plan.
type room struct {
	group     string
	limit     int64
	used      int64
	countedAt time.Time
}

func (r *room) has(runs int) bool { return r.used+int64(runs) <= r.limit }

// text describes a group without room.
func (r *room) text() string {
	return fmt.Sprintf("group %q has about %d unfinished runs, and its limit max_live_runs is %d", r.group, r.used, r.limit)
}

// rooms returns the room of the groups of jobs, by group.
func (s *Store) rooms(ctx context.Context, q *sqlcgen.Queries, jobs ...int64) (map[string]*room, error) {
	rows, err := q.LiveRunsOf(ctx, jobs)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*room, len(rows))
	for _, r := range rows {
		limits, err := domain.GroupLimitsFrom(r.Limits)
		if err != nil {
			return nil, err
		}
		out[r.Name] = &room{
			group: r.Name, limit: int64(limits.MaxLiveRuns), countedAt: r.CountedAt,
			used: r.Runs + s.live.add(r.Name, r.CountedAt, 0),
		}
	}
	return out, nil
}

// take uses the room of a group for runs. If the transaction is rolled back, the runs count until the next count.
func (s *Store) take(r *room, runs int) {
	r.used += int64(runs)
	s.live.add(r.group, r.countedAt, int64(runs))
}

// takeRoom uses the room of a job's group for runs that a user or the API plans, or returns Limited. The caller has
// locked the job.
func (s *Store) takeRoom(ctx context.Context, q *sqlcgen.Queries, job int64, group string, cause domain.Cause, runs int) error {
	rooms, err := s.rooms(ctx, q, job)
	if err != nil {
		return err
	}
	r := rooms[group]
	if r == nil {
		return domain.WrapError(domain.Unavailable, "the job moves to another group now; try again", errRepeat)
	}
	if !r.has(runs) {
		s.refuse(ctx, Overflow{group, cause, runs})
		return domain.NewError(domain.Limited, fmt.Sprintf("%s, so %d more cannot be planned; wait until runs have ended, kill some, "+
			"or ask an administrator to raise the limit: belfry group set %s --max-live-runs N", r.text(), runs, group))
	}
	s.take(r, runs)
	return nil
}

func (s *Store) refuse(ctx context.Context, r Overflow) {
	if s.refused != nil {
		s.refused(ctx, r)
	}
}

// skipFull ends runs that this transaction has planned, because their groups have no room. The record in the history
// shows that the event or the parent had the run. The caller has locked the planning of the runs' jobs, and passes the
// changes to Ended after the commit.
func (s *Store) skipFull(ctx context.Context, tx pgx.Tx, q *sqlcgen.Queries, cause domain.Cause, runs map[domain.RunID]*room) ([]engine.Change, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	now := s.Now()
	ended := make([]engine.Ended, 0, len(runs))
	groups := make(map[string]int)
	for id, r := range runs {
		groups[r.group]++
		ended = append(ended, engine.Ended{
			RunID: id, Attempt: 1, Outcome: domain.OutcomeSkipped, Reason: domain.ReasonQueueFull, Permanent: true,
			Message: r.text(), FinishedAt: now,
		})
	}
	settled, err := s.settle(ctx, tx, q, ended)
	if err != nil {
		return nil, err
	}
	for group, n := range groups {
		s.refuse(ctx, Overflow{group, cause, n})
	}
	return settled.Changes, nil
}

// OnEnded sets a function that is called with runs that a committed transaction has ended although none of their attempts
// ended. It must be called before any other method.
func (s *Store) OnEnded(f func([]engine.Change)) { s.onEnded = f }

// Ended passes runs to the function of OnEnded. If a method works in the transaction of its caller and returns changes, the
// caller passes them to Ended after the commit.
func (s *Store) Ended(runs []engine.Change) {
	if s.onEnded != nil && len(runs) > 0 {
		s.onEnded(runs)
	}
}
