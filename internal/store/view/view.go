// Package view reads what people and programs want to see: lists of jobs and runs, a run with its attempts, a job's
// missed ledger, and run logs. It changes nothing.
//
// # Lists
//
// Lists are paged by key, never by offset: a page goes on after the last id of the one before. What a page costs
// follows what it shows, not what is stored. Runs are walked along an index from new to old within a range of
// ids; where other filters let little through, a page stops after a second with what it found, or after five without
// having found anything, and says where to go on: a page may be short, or empty, and still not be the last. Jobs
// are walked by id; where a search lets little through, a page stops after 10,000 jobs in the same way.
//
// # Log lines
//
// Within an attempt lines are numbered from 1. In a run's log, line n of attempt a has the number
// (a-1)*LinesPerAttempt + n, so that numbers are unique, grow over the attempts, and never change, also when lines
// of an earlier attempt arrive late. A client that does not care takes them as they are: they order the lines, and
// the next page starts from the `next` of the one before.
//
// Chunks of lines may be stored out of order for a moment. A page stops before a gap until what follows the gap is
// two seconds old; then the missing lines are taken for lost.
package view

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// Store reads from Postgres. Its methods may be called by many goroutines. Every error is a domain.Error.
type Store struct {
	q    *sqlcgen.Queries
	pool *pgxpool.Pool // for what sqlc cannot check
}

// New makes a Store on a pool whose connections have Belfry's schema on their search path and know run ids as uuid.
func New(pool *pgxpool.Pool) *Store { return &Store{q: sqlcgen.New(pool), pool: pool} }

// nonZero returns nil for a zero value, which a query takes for "any".
func nonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func instant(t *time.Time) *domain.Instant {
	if t == nil {
		return nil
	}
	return domain.AtPtr(*t)
}
