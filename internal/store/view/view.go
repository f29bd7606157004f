// Package view reads lists of jobs and runs, runs with their attempts, the jobs' missed ledgers, and run logs. It
// changes nothing.
//
// # Lists
//
// Lists are paged by key, never by offset: a page starts after the last id of the previous page. The cost of a page
// depends on the rows it shows, not on the rows stored. Runs are walked along an index from new to old within a range
// of ids. If the other filters match few runs, a page stops after a second with the runs it found, or after five
// seconds without any, and returns where to continue. So a page may be short or empty and still not be the last. Jobs
// are walked by id; if a search matches few jobs, a page stops after 10,000 jobs in the same way.
//
// # Searches
//
// A search of runs walks the same indexes, and reads the message, the output and the param of each run that the filters
// admit. Each page does a bounded amount of work: it stops when it is full, after 20,000 texts, or after two seconds. It returns
// where to continue, and the instant back to which all runs are searched. Texts are compared in this process and not in Postgres, because
// viewers must find only what they can read: for them, the search compares the texts with their secrets masked. At most four
// searches run at the same time, and on small machines one for each two processors.
//
// # Log lines
//
// Within an attempt, lines are numbered from 1. In a run's log, line n of attempt a has the number
// (a-1)*LinesPerAttempt + n. So numbers are unique, grow over the attempts, and never change, even if lines of an
// earlier attempt arrive late. A client may treat them as opaque: they order the lines, and the next page starts from
// the `next` of the previous one.
//
// Chunks of lines may be stored out of order for a moment. A page stops before a gap until the lines after it are two
// seconds old; then the missing lines count as lost.
package view

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
)

// Store reads from Postgres. It is safe for concurrent use. Every error is a domain.Error.
type Store struct {
	q    *sqlcgen.Queries
	pool *pgxpool.Pool // for queries that sqlc cannot check

	bounds    searchBounds
	searching chan struct{} // one element for each search that runs

	// TraceURL is the template of the address of a run's trace, as for trace.URL. It is set before the first use.
	TraceURL string
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path and map run ids to uuid.
func New(pool *pgxpool.Pool) *Store {
	return &Store{q: sqlcgen.New(pool), pool: pool, bounds: pageBounds, searching: make(chan struct{}, searchesAtOnce())}
}

// nonZero returns nil for a zero value, which queries interpret as "any".
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
