// Package idempotency keeps the keys of requests that must take effect only once, with the responses to them.
package idempotency

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/idempotency/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Key identifies a request that must take effect only once: the actor, the route, the key and the body.
type Key struct {
	Actor, Route, Key string
	BodySHA256        []byte
}

// Answer is the response to the first request with a key.
type Answer struct {
	Status int
	Body   []byte
}

// Store keeps keys and responses in Postgres. It is safe for concurrent use.
type Store struct{ q *sqlcgen.Queries }

// New returns a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store { return &Store{q: sqlcgen.New(pool)} }

// Begin takes the key for a first request, which must then call Finish or Forget, and returns nil. For a repeated
// request, it returns the first response. Invalid means that the key was used with another body. Conflict means that
// the first request is still in progress.
//
// If a process dies between the change and Finish, the key stays taken, and two minutes later the same request may be
// made again. This is the only gap: the change and the key are not written in one transaction.
func (s *Store) Begin(ctx context.Context, k Key) (*Answer, error) {
	n, err := s.q.BeginIdempotent(ctx, sqlcgen.BeginIdempotentParams{
		Actor: k.Actor, Route: k.Route, Key: k.Key, BodySha256: k.BodySHA256})
	if err != nil || n == 1 {
		return nil, pgerr.Translate(err)
	}
	row, err := s.q.Idempotent(ctx, sqlcgen.IdempotentParams{Actor: k.Actor, Route: k.Route, Key: k.Key})
	switch err = pgerr.Translate(err); {
	case domain.CodeOf(err) == domain.NotFound && err != nil: // the key was released in between
		return nil, inProgress()
	case err != nil:
		return nil, err
	case !bytes.Equal(row.BodySha256, k.BodySHA256):
		const what = "this key was used with another body"
		return nil, &domain.Error{Code: domain.Invalid, Message: what,
			Fields: []domain.FieldError{{Location: "Idempotency-Key", Message: what}}}
	case row.Status == nil:
		return nil, inProgress()
	}
	return &Answer{Status: int(*row.Status), Body: row.Response}, nil
}

func inProgress() error {
	return domain.NewError(domain.Conflict, "the first request with this key is still in progress")
}

// Finish stores the response for 24 hours.
func (s *Store) Finish(ctx context.Context, k Key, a Answer) error {
	return pgerr.Translate(s.q.FinishIdempotent(ctx, sqlcgen.FinishIdempotentParams{
		Actor: k.Actor, Route: k.Route, Key: k.Key, BodySha256: k.BodySHA256, Status: int32(a.Status), Response: a.Body}))
}

// Forget releases the key after a request that changed nothing, so that a corrected request may use it.
func (s *Store) Forget(ctx context.Context, k Key) error {
	return pgerr.Translate(s.q.ForgetIdempotent(ctx, sqlcgen.ForgetIdempotentParams{
		Actor: k.Actor, Route: k.Route, Key: k.Key}))
}

// Sweep deletes expired keys and returns their number. It is called periodically. Begin ignores expired keys even before
// Sweep runs.
func (s *Store) Sweep(ctx context.Context) (int64, error) {
	n, err := s.q.DeleteOldIdempotent(ctx)
	return n, pgerr.Translate(err)
}
