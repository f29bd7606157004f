package report

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/report/sqlcgen"
)

// JobCount is how many jobs a group has.
type JobCount struct{ Jobs, Enabled int64 }

const (
	// Up to so many jobs are counted anew by each reader, who so sees his own changes at once.
	countedAnew = 10_000
	// The count of more may be used for so many times as long as it took, but not for longer than countedFor.
	countedTimes = 20
	countedFor   = 30 * time.Second
	// While it is renewed, readers get the one before, unless that is older than this.
	countedBefore = time.Minute
)

// JobCounts returns how many jobs each group has; groups without jobs are left out. With over 10,000 jobs the numbers
// may be as old as twenty times what it takes to count them, or what lies between two looks, a minute at most. The
// map is shared and must not be changed.
func (s *Store) JobCounts(ctx context.Context) (map[string]JobCount, error) {
	return s.jobs.counts(ctx)
}

func countJobs(ctx context.Context, pool *pgxpool.Pool) (map[string]JobCount, error) {
	rows, err := sqlcgen.New(pool).JobCounts(ctx)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	groups := make(map[string]JobCount, len(rows))
	for _, r := range rows {
		n := groups[r.GroupName]
		n.Jobs += r.Jobs
		if r.Enabled {
			n.Enabled += r.Jobs
		}
		groups[r.GroupName] = n
	}
	return groups, nil
}

// jobCounter keeps the numbers of many jobs for a while, since to count them reads them all.
type jobCounter struct {
	read func(context.Context) (map[string]JobCount, error)

	mu      sync.Mutex // guards what follows
	last    *jobNumbers
	renewal *renewal // the one under way
}

type jobNumbers struct {
	groups map[string]JobCount
	at     time.Time // before they were read
	took   time.Duration
}

type renewal struct {
	done    chan struct{} // closed when the others are set
	numbers *jobNumbers
	err     error
}

func newJobCounter(read func(context.Context) (map[string]JobCount, error)) *jobCounter {
	return &jobCounter{read: read}
}

func (c *jobCounter) counts(ctx context.Context) (map[string]JobCount, error) {
	c.mu.Lock()
	last := c.last
	if last != nil && last.few() {
		c.mu.Unlock()
		return c.anew(ctx)
	}
	if last != nil && time.Since(last.at) <= last.took+min(countedTimes*last.took, countedFor) {
		c.mu.Unlock()
		return last.groups, nil
	}
	r := c.renewal
	if r == nil {
		r = &renewal{done: make(chan struct{})}
		c.renewal = r
		// It serves all who wait, and so outlives the one who asked first.
		go c.renew(context.WithoutCancel(ctx), r)
	}
	c.mu.Unlock()
	if last != nil && time.Since(last.at) <= countedBefore {
		return last.groups, nil
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, pgerr.Translate(ctx.Err())
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.numbers.groups, nil
}

// anew counts for one reader alone: a count that another one began may have been begun before this one's changes.
func (c *jobCounter) anew(ctx context.Context) (map[string]JobCount, error) {
	numbers, err := c.count(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = numbers
	return numbers.groups, nil
}

func (c *jobCounter) renew(ctx context.Context, r *renewal) {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	r.numbers, r.err = c.count(ctx)
	c.mu.Lock()
	if r.err == nil {
		c.last = r.numbers
	}
	c.renewal = nil
	c.mu.Unlock()
	close(r.done)
}

func (c *jobCounter) count(ctx context.Context) (*jobNumbers, error) {
	start := time.Now()
	groups, err := c.read(ctx)
	return &jobNumbers{groups, start, time.Since(start)}, err
}

func (n *jobNumbers) few() bool {
	var all int64
	for _, g := range n.groups {
		all += g.Jobs
	}
	return all <= countedAnew
}
