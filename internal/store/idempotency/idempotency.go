// Package idempotency keeps the keys of requests that must take effect only once, with the responses to them.
//
// A key belongs to its actor and route. Bodies are not stored, because they may hold passwords: the store compares their HMACs
// under a random key of the database and the server's secret key. A response is returned only to a caller with the rights of
// the first request.
package idempotency

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/idempotency/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Key identifies a request that must take effect only once.
type Key struct {
	Actor, Route, Key string
	Rights            string // describes the rights of the caller; equal texts are equal rights
	Content           []byte // the body and the parameters
}

// Answer is the response to the first request with a key.
type Answer struct {
	Status int
	Body   []byte
}

// Store keeps keys and responses in Postgres. It is safe for concurrent use.
type Store struct {
	q      *sqlcgen.Queries
	secret string

	mu  sync.Mutex
	key []byte // of the HMACs; nil until the first use
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path. secret is the server's secret
// key, "" for none. Stores with different secrets do not recognize each other's requests.
func New(pool *pgxpool.Pool, secret string) *Store {
	return &Store{q: sqlcgen.New(pool), secret: secret}
}

// digests returns the values by which a repeated request and its rights are recognized.
func (s *Store) digests(ctx context.Context, k Key) (content, rights []byte, err error) {
	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	if key == nil {
		random, err := s.q.ServerKey(ctx)
		if err != nil {
			return nil, nil, pgerr.Translate(err)
		}
		key = mac(random, []byte(s.secret))
		s.mu.Lock()
		s.key = key
		s.mu.Unlock()
	}
	return mac(key, k.Content), mac(key, []byte(k.Rights)), nil
}

func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// Begin takes the key for a first request, which must then call Finish or Forget, and returns nil. For a repeated
// request, it returns the first response. Invalid means that the key was used with another body. Forbidden means that the
// caller's rights have changed since the first request. Conflict means that the first request is still in progress.
//
// If a process dies between the change and Finish, the key stays taken, and two minutes later the same request may be
// made again. This is the only gap: the change and the key are not written in one transaction.
func (s *Store) Begin(ctx context.Context, k Key) (*Answer, error) {
	content, rights, err := s.digests(ctx, k)
	if err != nil {
		return nil, err
	}
	n, err := s.q.BeginIdempotent(ctx, sqlcgen.BeginIdempotentParams{
		Actor: k.Actor, Route: k.Route, Key: k.Key, BodySha256: content, Rights: rights})
	if err != nil || n == 1 {
		return nil, pgerr.Translate(err)
	}
	row, err := s.q.Idempotent(ctx, sqlcgen.IdempotentParams{Actor: k.Actor, Route: k.Route, Key: k.Key})
	switch err = pgerr.Translate(err); {
	case domain.CodeOf(err) == domain.NotFound && err != nil: // the key was released in between
		return nil, inProgress()
	case err != nil:
		return nil, err
	case !hmac.Equal(row.Rights, rights):
		return nil, domain.NewError(domain.Forbidden, "your rights have changed since the first request with this key; use another key")
	case !hmac.Equal(row.BodySha256, content):
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
	content, _, err := s.digests(ctx, k)
	if err != nil {
		return err
	}
	return pgerr.Translate(s.q.FinishIdempotent(ctx, sqlcgen.FinishIdempotentParams{
		Actor: k.Actor, Route: k.Route, Key: k.Key, BodySha256: content, Status: int32(a.Status), Response: a.Body}))
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
