package bulk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/bulk/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view"
)

// The actions and their states.
const (
	Kill  = "kill"
	Retry = "retry"

	Waiting = "waiting"
	Running = "running"
	Done    = "done"
	Stopped = "stopped"
	Failed  = "failed"
)

// UnfinishedMost is how many unfinished actions a user may have.
const UnfinishedMost = 20

// Filter selects runs. It is stored in the row of an action. A zero field selects all runs.
type Filter struct {
	IDs         []domain.RunID  `json:"ids,omitempty"`     // these runs only; the other fields do not apply
	BulkID      int64           `json:"bulk_id,omitempty"` // the new runs of this retry only; the other fields do not apply
	JobID       domain.JobID    `json:"job_id,omitempty"`
	Group       string          `json:"group,omitempty"`
	States      []domain.State  `json:"state,omitempty"`
	Cause       domain.Cause    `json:"cause,omitempty"`
	Reason      domain.Reason   `json:"reason,omitempty"`
	Instance    string          `json:"instance,omitempty"`
	From        *domain.Instant `json:"from,omitempty"`
	To          *domain.Instant `json:"to,omitempty"`
	BroadcastID *domain.RunID   `json:"broadcast_id,omitempty"`
	ParentRunID *domain.RunID   `json:"parent_run_id,omitempty"`
}

// JobCount is how many runs of a job match.
type JobCount struct {
	JobID   domain.JobID `json:"job_id"`
	JobName string       `json:"job_name"`
	Group   string       `json:"group"`
	Runs    int          `json:"runs"`
}

// Fault is a reason why runs failed.
type Fault struct {
	Message string       `json:"message"`
	Runs    int          `json:"runs"`
	RunID   domain.RunID `json:"run_id" doc:"The first of these runs"`
}

// Matched is the bounded count of the matching runs.
type Matched struct {
	Runs    int
	AtLeast bool // Runs is a lower bound
	Jobs    []JobCount
}

// Action is a stored bulk action.
type Action struct {
	ID        int64
	Action    string
	Filter    Filter
	State     string
	CreatedBy string
	CreatedAt time.Time
	Matched   Matched

	StartedAt, FinishedAt *time.Time
	Done, Skipped, Failed int64
	Errors                []Fault
	Note                  string // why the action failed, waits, or was stopped

	user, token int64
	groups      []string
	cursor      domain.RunID
}

// Queue enqueues the work of an action.
type Queue interface {
	InsertBulkTx(ctx context.Context, tx pgx.Tx, id int64) error
}

// Store keeps actions in Postgres. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	q     *sqlcgen.Queries
	views *view.Store
	queue Queue
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path and map run ids to uuid.
func New(pool *pgxpool.Pool, queue Queue) *Store {
	return &Store{pool: pool, q: sqlcgen.New(pool), views: view.New(pool), queue: queue}
}

// Create stores an action and enqueues its work. Limited means that the creator has too many unfinished actions.
func (s *Store) Create(ctx context.Context, by account.Principal, remote, action string, f Filter) (Action, error) {
	at, err := s.q.Clock(ctx)
	if err != nil {
		return Action{}, pgerr.Translate(err)
	}
	groups := scope(by, f)
	m, err := s.count(ctx, action, f, groups, at)
	if err != nil {
		return Action{}, err
	}
	filter, err := json.Marshal(f)
	if err != nil {
		return Action{}, fmt.Errorf("encode the filter of a bulk action: %w", err)
	}
	jobs, err := json.Marshal(m.Jobs)
	if err != nil {
		return Action{}, fmt.Errorf("encode the jobs of a bulk action: %w", err)
	}
	var row sqlcgen.BulkAction
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := s.q.WithTx(tx)
		if err := q.LockCreator(ctx, by.UserID); err != nil {
			return err
		}
		n, err := q.CountUnfinished(ctx, by.UserID)
		if err != nil {
			return err
		}
		if n >= UnfinishedMost {
			return domain.NewError(domain.Limited, fmt.Sprintf("you have %d unfinished bulk actions, which is the limit; wait until one has ended, or stop one", n))
		}
		row, err = q.InsertAction(ctx, sqlcgen.InsertActionParams{
			Action: action, Filter: filter, UserID: by.UserID, TokenID: by.TokenID, CreatedBy: by.Actor(), Remote: remote, Groups: groups,
			CreatedAt: at, Matched: int64(m.Runs), AtLeast: m.AtLeast, Jobs: jobs,
		})
		if err != nil {
			return err
		}
		return s.queue.InsertBulkTx(ctx, tx, row.ID)
	})
	if err != nil {
		return Action{}, pgerr.Translate(err)
	}
	return toAction(row)
}

// scope returns the groups that an action is confined to, nil for all.
func scope(by account.Principal, f Filter) []string {
	if f.Group != "" && by.Sees(f.Group) {
		return []string{f.Group}
	}
	return by.Only()
}

// Preview counts the runs that would match now, by job.
func (s *Store) Preview(ctx context.Context, by account.Principal, action string, f Filter) (Matched, error) {
	at, err := s.q.Clock(ctx)
	if err != nil {
		return Matched{}, pgerr.Translate(err)
	}
	return s.count(ctx, action, f, scope(by, f), at)
}

// Action returns an action that is only about the given groups; nil: about any. The error is NotFound if there is none.
func (s *Store) Action(ctx context.Context, id int64, only []string) (Action, error) {
	row, err := s.q.Action(ctx, sqlcgen.ActionParams{ID: id, Only: only})
	if err = pgerr.Translate(err); err != nil {
		if domain.CodeOf(err) == domain.NotFound {
			err = domain.NewError(domain.NotFound, "there is no such bulk action, or it ended more than seven days ago")
		}
		return Action{}, err
	}
	return toAction(row)
}

// Actions lists the actions that are only about the given groups, newest first, before an id.
func (s *Store) Actions(ctx context.Context, only []string, before int64, limit int) ([]Action, error) {
	rows, err := s.q.Actions(ctx, sqlcgen.ActionsParams{Before: before, Only: only, MaxRows: int32(limit)})
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out := make([]Action, len(rows))
	for i, r := range rows {
		if out[i], err = toAction(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Stop ends an action after its current batch. Runs that were changed stay so. It reports whether the action was unfinished.
func (s *Store) Stop(ctx context.Context, id int64, by string) (bool, error) {
	return s.finish(ctx, id, Stopped, "stopped by "+by)
}

// Fail ends an action that cannot be performed. If the action has ended already, Fail changes nothing.
func (s *Store) Fail(ctx context.Context, id int64, why string) error {
	_, err := s.finish(ctx, id, Failed, why)
	return err
}

func (s *Store) finish(ctx context.Context, id int64, state, note string) (ended bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		ended, err = finishTx(ctx, s.q.WithTx(tx), id, state, note)
		return err
	})
	return ended, pgerr.Translate(err)
}

// finishTx ends an action, and writes its counts to the audit log.
func finishTx(ctx context.Context, q *sqlcgen.Queries, id int64, state, note string) (bool, error) {
	row, err := q.Finish(ctx, sqlcgen.FinishParams{ID: id, State: state, Note: note})
	if err != nil {
		if domain.CodeOf(pgerr.Translate(err)) == domain.NotFound {
			err = nil
		}
		return false, err
	}
	after, err := json.Marshal(map[string]any{"action": row.Action, "filter": json.RawMessage(row.Filter), "state": state,
		"done": row.Done, "skipped": row.Skipped, "failed": row.Failed, "note": note})
	if err != nil {
		return false, fmt.Errorf("encode the end of a bulk action: %w", err)
	}
	return true, q.Audit(ctx, sqlcgen.AuditParams{Actor: row.CreatedBy, Remote: row.Remote, Action: "run.bulk_end",
		Object: fmt.Sprintf("bulk/%d", id), After: after})
}

func toAction(r sqlcgen.BulkAction) (Action, error) {
	a := Action{ID: r.ID, Action: r.Action, State: r.State, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt,
		FinishedAt: r.FinishedAt, Done: r.Done, Skipped: r.Skipped, Failed: r.Failed, Note: r.Note,
		Matched: Matched{Runs: int(r.Matched), AtLeast: r.AtLeast}, user: r.UserID, token: r.TokenID, groups: r.Groups}
	if r.Cursor != nil {
		a.cursor = *r.Cursor
	}
	for _, part := range []struct {
		from []byte
		to   any
	}{{r.Filter, &a.Filter}, {r.Jobs, &a.Matched.Jobs}, {r.Errors, &a.Errors}} {
		if err := json.Unmarshal(part.from, part.to); err != nil {
			return a, domain.WrapError(domain.Internal, "a stored bulk action cannot be read", err)
		}
	}
	return a, nil
}

// addFault counts a failed run. Reasons beyond the first 20 are not kept.
func addFault(all []Fault, message string, run domain.RunID) []Fault {
	const reasonsMost = 20
	if i := slices.IndexFunc(all, func(f Fault) bool { return f.Message == message }); i >= 0 {
		all[i].Runs++
	} else if len(all) < reasonsMost {
		all = append(all, Fault{message, 1, run})
	}
	return all
}
