package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/bulk/sqlcgen"
)

// batch is how many runs one transaction changes.
const batch = 50

// fullWait is the time until a retry tries again after a group had no room for more runs.
const fullWait = 5 * time.Second

// Engine changes runs in the transaction of a batch. *store.Store documents the methods.
type Engine interface {
	InTx(ctx context.Context, f func(tx pgx.Tx) error) error
	KillRunsTx(ctx context.Context, tx pgx.Tx, ids []domain.RunID, by string) (engine.KillResult, error)
	RetryRunsTx(ctx context.Context, tx pgx.Tx, runs []domain.Run, sees func(group string) bool) (engine.RetryResult, error)
}

// Accounts reads the present rights of a creator. The error is account.ErrCredentials if there are none.
type Accounts interface {
	Rights(ctx context.Context, user, token int64) (account.Principal, error)
}

// Performer performs actions batch by batch. It is safe for concurrent use, also with Performers of other processes.
type Performer struct {
	*Store
	engine   Engine
	accounts Accounts
}

// NewPerformer returns a Performer.
func NewPerformer(s *Store, e Engine, a Accounts) *Performer { return &Performer{s, e, a} }

// errMoved means that another process has performed the batch.
var errMoved = errors.New("another process has moved the cursor of the bulk action")

// Step performs the next batch of an action. After an error, the batch has no effect.
func (p *Performer) Step(ctx context.Context, id int64) (engine.BulkStep, error) {
	a, err := p.Action(ctx, id, nil)
	if domain.CodeOf(err) == domain.NotFound || err == nil && a.FinishedAt != nil {
		return engine.BulkStep{Ended: true}, nil
	}
	if err != nil {
		return engine.BulkStep{}, err
	}
	by, why, err := p.rights(ctx, &a)
	if err != nil {
		return engine.BulkStep{}, err
	}
	if why != "" {
		return engine.BulkStep{Ended: true}, p.Fail(ctx, id, why)
	}
	runs, next, err := p.page(ctx, a.Action, a.Filter, a.groups, a.CreatedAt, a.cursor, batch)
	if err != nil {
		return engine.BulkStep{}, err
	}
	var step engine.BulkStep
	err = p.engine.InTx(ctx, func(tx pgx.Tx) (err error) {
		step, err = p.batch(ctx, tx, &a, by, runs, next)
		return err
	})
	if errors.Is(err, errMoved) {
		return engine.BulkStep{}, nil
	}
	return step, err
}

// rights returns the creator as it is now. why is not empty if the creator may no longer perform the action.
func (p *Performer) rights(ctx context.Context, a *Action) (by account.Principal, why string, err error) {
	by, err = p.accounts.Rights(ctx, a.user, a.token)
	switch {
	case errors.Is(err, account.ErrCredentials):
		return by, a.CreatedBy + ", who created the action, was deleted or disabled, or the API token has ended", nil
	case err != nil:
		return by, "", err
	case by.Scope != account.ScopeAll || !by.Role.AtLeast(account.Operator):
		return by, a.CreatedBy + ", who created the action, is no operator any more", nil
	case a.groups == nil && by.Only() != nil:
		return by, a.CreatedBy + ", who created the action, may no longer change the runs of all groups", nil
	}
	for _, g := range a.groups {
		if !by.Sees(g) {
			return by, fmt.Sprintf("%s, who created the action, may no longer change the runs of group %q", a.CreatedBy, g), nil
		}
	}
	return by, "", nil
}

// batch changes the runs in the transaction tx, and moves the cursor to next.
func (p *Performer) batch(ctx context.Context, tx pgx.Tx, a *Action, by account.Principal, runs []domain.Run, next domain.RunID) (engine.BulkStep, error) {
	step := engine.BulkStep{Action: a.Action}
	q := p.q.WithTx(tx)
	row, err := q.LockUnfinished(ctx, a.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return engine.BulkStep{Ended: true}, nil
	}
	if err != nil {
		return step, err
	}
	if now, err := toAction(row); err != nil {
		return step, err
	} else if now.cursor != a.cursor {
		return step, errMoved
	}
	cursor, faults, note := next, append([]Fault{}, a.Errors...), ""
	switch {
	case len(runs) == 0:
	case a.Action == Kill:
		ids := make([]domain.RunID, len(runs))
		for i, r := range runs {
			ids[i] = r.ID
		}
		if step.Killed, err = p.engine.KillRunsTx(ctx, tx, ids, a.CreatedBy); err != nil {
			return step, err
		}
		for _, d := range step.Killed.Result.Dispositions {
			if d == engine.Settled {
				step.Done++
			}
		}
		step.Done += len(step.Killed.Bound)
		step.Skipped = len(runs) - step.Done
	default:
		made, err := p.engine.RetryRunsTx(ctx, tx, runs, by.Sees)
		if err != nil {
			return step, err
		}
		if faults, err = retried(ctx, q, a.ID, &step, runs, made, faults); err != nil {
			return step, err
		}
		if note = made.Full; note != "" {
			step.Wait = fullWait
			if cursor = a.cursor; len(made.New) > 0 {
				cursor = runs[len(made.New)-1].ID
			}
		}
	}
	stored, err := json.Marshal(faults)
	if err != nil {
		return step, fmt.Errorf("encode the errors of a bulk action: %w", err)
	}
	moved := sqlcgen.AdvanceParams{ID: a.ID, Done: int64(step.Done), Skipped: int64(step.Skipped), Failed: int64(step.Failed), Errors: stored, Note: note}
	if !cursor.IsZero() {
		moved.Cursor = &cursor
	}
	if err := q.Advance(ctx, moved); err != nil {
		return step, err
	}
	if next.IsZero() && step.Wait == 0 {
		step.Ended, err = finishTx(ctx, q, a.ID, Done, "")
	}
	return step, err
}

// retried counts the results of a batch, and stores the new runs.
func retried(ctx context.Context, q *sqlcgen.Queries, id int64, step *engine.BulkStep, runs []domain.Run, made engine.RetryResult, faults []Fault) ([]Fault, error) {
	var ids []domain.RunID
	for i, n := range made.New {
		switch {
		case n.Skipped:
			step.Skipped++
		case n.Fault != "":
			step.Failed++
			faults = addFault(faults, n.Fault, runs[i].ID)
		default:
			step.Done++
			ids = append(ids, n.ID)
		}
	}
	if len(ids) == 0 {
		return faults, nil
	}
	return faults, q.AddRuns(ctx, sqlcgen.AddRunsParams{BulkID: id, RunIds: ids})
}
