// Package auditlog keeps the audit log: the changes that users make.
package auditlog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/store/auditlog/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Change is an entry of the audit log: who did what to which object, from where, and its state before and after.
type Change struct {
	ID     int64
	At     time.Time
	Actor  string
	Remote string
	Action string          // such as job.update
	Object string          // such as job/7
	Before json.RawMessage // nil: the object did not exist
	After  json.RawMessage // nil: the object no longer exists
}

// Store keeps the audit log in Postgres. It is safe for concurrent use.
type Store struct{ q *sqlcgen.Queries }

// New returns a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store { return &Store{q: sqlcgen.New(pool)} }

// Record adds an entry. before and after are encoded as JSON; nil is left out. Neither may contain a secret.
func (s *Store) Record(ctx context.Context, actor, remote, action, object string, before, after any) error {
	b, err := encodeState(before)
	if err != nil {
		return err
	}
	a, err := encodeState(after)
	if err != nil {
		return err
	}
	return pgerr.Translate(s.q.InsertAudit(ctx, sqlcgen.InsertAuditParams{
		Actor: actor, Remote: remote, Action: action, Object: object, Before: b, After: a,
	}))
}

func encodeState(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a state for the audit log: %w", err)
	}
	return b, nil
}

// Filter selects entries; an empty field selects all.
type Filter struct {
	Object, Actor, Action string
	Before                int64 // only entries with a smaller id; 0: from the newest on
}

// Audit lists entries, newest first.
func (s *Store) Audit(ctx context.Context, f Filter, limit int) ([]Change, error) {
	rows, err := s.rows(ctx, f, int32(limit))
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	changes := make([]Change, len(rows))
	for i, r := range rows {
		changes[i] = Change{r.ID, r.At, r.Actor, r.Remote, r.Action, r.Object, r.Before, r.After}
	}
	return changes, nil
}

func (s *Store) rows(ctx context.Context, f Filter, limit int32) ([]sqlcgen.AuditLog, error) {
	if f.Object != "" {
		return s.q.AuditOfObject(ctx, sqlcgen.AuditOfObjectParams{
			Object: f.Object, BeforeID: f.Before, Actor: f.Actor, Action: f.Action, MaxRows: limit})
	}
	return s.q.Audit(ctx, sqlcgen.AuditParams{BeforeID: f.Before, Actor: f.Actor, Action: f.Action, MaxRows: limit})
}
