// Package runstats stores and reads run statistics: how many runs finished when, with which result, and how late they
// started.
//
// # Roll-up
//
// RollUp adds finished runs to counts by minute and by hour, group, state and reason. It proceeds by settled_at, the
// beginning of the transaction that wrote a run to the history, because finished_at may be hours before the result
// arrives. A transaction in progress may still add runs that are older than those of transactions already committed.
// So the roll-up stays behind the oldest transaction in progress: see safeBound, which also explains why each run is counted
// once.
//
// The same transaction writes the health of the jobs whose runs it counts, so that each run counts once: see package jobhealth. The health has
// a separate mark, because the binary of the previous release counts runs without writing the health.
//
// Firing and settling are not affected, except for a timestamp in the row and an index of block ranges.
//
// Entries of the missed ledger are rolled up too, by the beginning of the transaction that wrote them, up to a mark of
// their own.
//
// The number of jobs is the sum of its changes: triggers on jobs add a row for each change of the number, in the same
// transaction, and Tend sums the rows up.
//
// # Reading
//
// Readers add the runs settled after the mark to the rolled-up counts, in one snapshot, so that a run counts from the
// moment it is final. Both parts are small: the first has rows by hour (by minute at the edges), the second is the
// last seconds. No reader scans the history.
package runstats

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/runstats/sqlcgen"
)

const (
	// MinutesKept is how long counts by minute are kept.
	MinutesKept = 72 * time.Hour
	// HoursKept is how long counts by hour are kept.
	HoursKept = 400 * 24 * time.Hour

	rollUpMax  = time.Minute // maximum window of one transaction
	readMax    = 10 * time.Second
	tailMax    = 10 * time.Minute // how much is read beyond the mark; if the roll-up is further behind, readers report it
	sweepRows  = 10_000
	healthMost = time.Minute // maximum window in which only the health of jobs is written

	leastStep = 2 * time.Second // with smaller steps, a roll-up that catches up would never reach the clock
)

// Store keeps the statistics. It is safe for concurrent use.
type Store struct{ pool *pgxpool.Pool }

// New returns a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store { return &Store{pool} }

// RollUp counts the runs that were settled in the next window of time, and adds them to the health of their jobs. It returns the instant
// through which everything is counted, and the database's clock. more is false if nothing is left to do yet, or another process does it.
func (s *Store) RollUp(ctx context.Context, window time.Duration) (runs int64, through, now time.Time, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, rollUpMax)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		mark, err := q.Mark(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		through, now = mark.Through, mark.Now
		safe, err := safeBound(ctx, tx, now)
		if err != nil {
			return err
		}
		upto := through.Add(window)
		if safe.Before(upto) {
			upto = safe
		}
		if err := byIndex(ctx, tx); err != nil {
			return err
		}
		if upto.Sub(through) < min(window, leastStep) {
			more, err = catchUpHealth(ctx, tx, mark, window)
			return err
		}
		if runs, more, err = rollUp(ctx, tx, mark, upto, window); err != nil {
			return err
		}
		through, more = upto, more || upto.Before(safe)
		return nil
	})
	return runs, through, now, more, pgerr.Translate(err)
}

// rollUp counts the runs that were settled between the mark and upto, and the entries of the missed ledger in a window. more means that the
// ledger or the health of jobs is not counted through upto.
func rollUp(ctx context.Context, tx pgx.Tx, mark sqlcgen.MarkRow, upto time.Time, window time.Duration) (runs int64, more bool, err error) {
	q := sqlcgen.New(tx)
	settled, err := readWindow(ctx, tx, mark.Through, upto)
	if err != nil {
		return 0, false, err
	}
	if err := settled.addCounts(ctx, q); err != nil {
		return 0, false, err
	}
	uptoMissed := upto
	if most := mark.MissedThrough.Add(window); most.Before(upto) {
		uptoMissed = most
	}
	if err := q.RollUpMissed(ctx, sqlcgen.RollUpMissedParams{Lo: mark.MissedThrough, Hi: uptoMissed}); err != nil {
		return 0, false, err
	}
	uptoHealth := mark.HealthThrough
	if !uptoHealth.Before(mark.Through) {
		uptoHealth = upto
		if err := byJob(ctx, tx); err != nil {
			return 0, false, err
		}
		if err := settled.addHealth(ctx, q, upto); err != nil {
			return 0, false, err
		}
	}
	more = uptoMissed.Before(upto) || uptoHealth.Before(upto)
	return settled.runs, more, q.SetMark(ctx, sqlcgen.SetMarkParams{Through: upto, MissedThrough: uptoMissed, HealthThrough: uptoHealth})
}

// catchUpHealth adds runs to the health of their jobs that are already counted. There are such runs after an update to this version, and after
// the previous version was in use.
func catchUpHealth(ctx context.Context, tx pgx.Tx, mark sqlcgen.MarkRow, window time.Duration) (more bool, err error) {
	if !mark.HealthThrough.Before(mark.Through) {
		return false, nil
	}
	upto := mark.HealthThrough.Add(min(window, healthMost))
	if mark.Through.Before(upto) {
		upto = mark.Through
	}
	settled, err := readWindow(ctx, tx, mark.HealthThrough, upto)
	if err != nil {
		return false, err
	}
	if err := byJob(ctx, tx); err != nil {
		return false, err
	}
	q := sqlcgen.New(tx)
	if err := settled.addHealth(ctx, q, upto); err != nil {
		return false, err
	}
	return true, q.SetMark(ctx, sqlcgen.SetMarkParams{Through: mark.Through, MissedThrough: mark.MissedThrough, HealthThrough: upto})
}

// byIndex leaves the planner no other path to the history than the index of block ranges, whatever its statistics are.
// The planner estimates that index as expensive as a large part of the history. It would start parallel workers and
// compile the plan for almost no rows, which takes several times as long as reading them.
func byIndex(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off;
		SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off`)
	return err
}

// Tend bounds the size of the statistics and of the counts of jobs and tags, and completes the index of block ranges, one bounded
// step per call. Every roll-up has to read the blocks that the index does not cover yet.
func (s *Store) Tend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rollUpMax)
	defer cancel()
	var parts []uint32
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT inhrelid FROM pg_inherits WHERE inhparent = 'runs_history_settled'::regclass ORDER BY 1 DESC`)
		if err != nil {
			return err
		}
		parts, err = pgx.CollectRows(rows, pgx.RowTo[uint32])
		return err
	})
	if err != nil {
		return pgerr.Translate(err)
	}
	for _, part := range parts {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			// Postgres cancels an autovacuum that blocks another session for long. So this transaction waits only briefly.
			if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '100ms'`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT brin_summarize_new_values($1::oid::regclass)`, part)
			return err
		})
		if err != nil && ctx.Err() != nil {
			return pgerr.Translate(err)
		}
		// If a vacuum holds the table or its day was dropped, there is nothing to do.
	}
	return s.sweep(ctx)
}

func (s *Store) sweep(ctx context.Context) error {
	q := sqlcgen.New(s.pool)
	if err := q.SumJobCounts(ctx); err != nil {
		return pgerr.Translate(err)
	}
	for {
		n, err := q.FoldTagCounts(ctx, sweepRows)
		if err != nil {
			return pgerr.Translate(err)
		}
		if n < sweepRows {
			break
		}
	}
	now := time.Now()
	for span, kept := range map[int32]time.Duration{60: MinutesKept + time.Hour, 3600: HoursKept + 24*time.Hour} {
		for {
			n, err := q.SweepStats(ctx, sqlcgen.SweepStatsParams{Span: span, Before: now.Add(-kept), MaxRows: sweepRows})
			if err != nil {
				return pgerr.Translate(err)
			}
			m, err := q.SweepLateness(ctx, sqlcgen.SweepLatenessParams{Span: span, Before: now.Add(-kept), MaxRows: sweepRows})
			if err != nil {
				return pgerr.Translate(err)
			}
			o, err := q.SweepMissed(ctx, sqlcgen.SweepMissedParams{Span: span, Before: now.Add(-kept), MaxRows: sweepRows})
			if err != nil {
				return pgerr.Translate(err)
			}
			if max(n, m, o) < sweepRows {
				break
			}
		}
	}
	return nil
}

// Scope selects the counted runs.
type Scope struct {
	Only     []string  // groups; nil: all, empty: none
	From, To time.Time // of finished_at; widened to whole minutes, or to whole hours beyond MinutesKept
}

// Count counts the runs that finished in a period of time.
type Count struct {
	At       time.Time // the beginning of the period
	Runs     map[domain.State]int64
	Reasons  map[domain.Reason]int64 // of runs that did not succeed
	Duration time.Duration           // the sum over all runs
	late     map[int32]int64
}

// NewCount returns an empty Count.
func NewCount(at time.Time) *Count {
	return &Count{At: at, Runs: map[domain.State]int64{}, Reasons: map[domain.Reason]int64{}, late: map[int32]int64{}}
}

// Merge adds other to c.
func (c *Count) Merge(other *Count) {
	for state, n := range other.Runs {
		c.Runs[state] += n
	}
	for reason, n := range other.Reasons {
		c.Reasons[reason] += n
	}
	for bucket, n := range other.late {
		c.late[bucket] += n
	}
	c.Duration += other.Duration
}

// All returns how many runs finished.
func (c *Count) All() (n int64) {
	for _, runs := range c.Runs {
		n += runs
	}
	return n
}

// Late returns the lateness, in milliseconds, that the share p of the started runs did not exceed. It is the upper
// bound of a bucket, so at most a fifth too high. It returns nil if no run started.
func (c *Count) Late(p float64) *int64 {
	var all int64
	most := int32(0)
	for bucket, n := range c.late {
		all += n
		most = max(most, bucket)
	}
	if all == 0 {
		return nil
	}
	need, seen := int64(math.Ceil(p*float64(all))), int64(0)
	for bucket := int32(0); bucket <= most; bucket++ {
		if seen += c.late[bucket]; seen >= max(need, 1) {
			ms := upperBound(bucket)
			return &ms
		}
	}
	return nil
}

// upperBound returns the largest whole number of milliseconds in a bucket.
func upperBound(bucket int32) int64 {
	if bucket <= 0 {
		return 0
	}
	lowest := int64(math.Ceil(math.Pow(2, float64(bucket-1)/4)))
	return max(int64(math.Ceil(math.Pow(2, float64(bucket)/4)))-1, lowest)
}

// Counts is the result of Totals and Series.
type Counts struct {
	Scope
	Now     time.Time
	Through time.Time // all runs settled before are counted
	Steps   []*Count  // by time, without empty periods
	Missed  int64     // fire times that were recorded in the missed ledger; set by Totals only
}

// Totals returns one Count of the runs that finished within the scope, and the missed fire times.
func (s *Store) Totals(ctx context.Context, scope Scope) (Counts, error) {
	return s.counts(ctx, scope, 0)
}

// Series returns a Count for each step within the scope. Steps begin at multiples of step since 1970, and the scope is
// widened to whole steps. A step must be a multiple of an hour or, within MinutesKept, of a minute.
func (s *Store) Series(ctx context.Context, scope Scope, step time.Duration) (Counts, error) {
	return s.counts(ctx, scope, step)
}

func (s *Store) counts(ctx context.Context, scope Scope, step time.Duration) (Counts, error) {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	out := Counts{Scope: scope}
	if scope.Only != nil && len(scope.Only) == 0 {
		out.Now = time.Now()
		out.Through = out.Now
		return out, nil
	}
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		mark, err := q.Through(ctx)
		if err != nil {
			return err
		}
		out.Now, out.Through = mark.Now.UTC(), mark.Through.UTC()
		r := rangeOf(scope, step, out.Now)
		out.From, out.To = r.lo, r.hi
		steps := make(map[int64]*Count)
		at := func(t time.Time) *Count {
			if step == 0 {
				t = r.lo
			}
			c := steps[t.Unix()]
			if c == nil {
				c = NewCount(t.UTC())
				steps[t.Unix()] = c
				out.Steps = append(out.Steps, c)
			}
			return c
		}
		seconds := step.Seconds()
		if step == 0 {
			seconds = time.Hour.Seconds()
		}
		stats, err := q.Stats(ctx, sqlcgen.StatsParams{StepSeconds: seconds, HourLo: r.hourLo, HourHi: r.hourHi, Lo: r.lo, Hi: r.hi, Only: scope.Only})
		if err != nil {
			return err
		}
		for _, x := range stats {
			at(x.At).add(x.State, x.Reason, x.Runs, x.DurationMs)
		}
		late, err := q.Lateness(ctx, sqlcgen.LatenessParams{StepSeconds: seconds, HourLo: r.hourLo, HourHi: r.hourHi, Lo: r.lo, Hi: r.hi, Only: scope.Only})
		if err != nil {
			return err
		}
		for _, x := range late {
			at(x.At).late[x.Bucket] += x.Runs
		}
		if step == 0 {
			if out.Missed, err = missed(ctx, q, scope, r, mark.MissedThrough); err != nil {
				return err
			}
		}
		if out.Now.Sub(out.Through) > tailMax || !r.hi.After(r.lo) {
			return nil
		}
		if err := byIndex(ctx, tx); err != nil {
			return err
		}
		tail, err := q.Tail(ctx, sqlcgen.TailParams{StepSeconds: seconds, Since: &mark.Through, Lo: r.lo, Hi: r.hi, Only: scope.Only})
		if err != nil {
			return err
		}
		for _, x := range tail {
			c := at(x.At)
			c.add(x.State, x.Reason, x.Runs, x.DurationMs)
			if x.Bucket >= 0 {
				c.late[x.Bucket] += x.Runs
			}
		}
		out.Through = out.Now
		return nil
	})
	slices.SortFunc(out.Steps, func(a, b *Count) int { return a.At.Compare(b.At) })
	return out, pgerr.Translate(err)
}

// missed returns how many fire times were recorded in the missed ledger. It reads all entries after the mark, however
// far the mark is behind, because the ledger is short compared with the history.
func missed(ctx context.Context, q *sqlcgen.Queries, scope Scope, r span, through time.Time) (int64, error) {
	rolled, err := q.MissedStats(ctx, sqlcgen.MissedStatsParams{HourLo: r.hourLo, HourHi: r.hourHi, Lo: r.lo, Hi: r.hi, Only: scope.Only})
	if err != nil {
		return 0, err
	}
	since := r.lo
	if through.After(since) {
		since = through
	}
	tail, err := q.MissedTail(ctx, sqlcgen.MissedTailParams{Lo: since, Hi: r.hi, Only: scope.Only})
	return rolled + tail, err
}

func (c *Count) add(state, reason string, runs, durationMS int64) {
	c.Runs[domain.State(state)] += runs
	if reason != "" && domain.State(state) != domain.Succeeded {
		c.Reasons[domain.Reason(reason)] += runs
	}
	c.Duration += time.Duration(durationMS) * time.Millisecond
}

// span is a period of time: whole hours inside, minutes at the edges.
type span struct{ lo, hourLo, hourHi, hi time.Time }

func rangeOf(scope Scope, step time.Duration, now time.Time) span {
	down := func(t time.Time, d time.Duration) time.Time {
		return time.Unix(t.Unix()-mod(t.Unix(), int64(d/time.Second)), 0).UTC()
	}
	up := func(t time.Time, d time.Duration) time.Time {
		if f := down(t, d); f.Before(t) {
			return f.Add(d)
		}
		return down(t, d)
	}
	unit := step
	if step == 0 {
		if unit = time.Minute; now.Sub(scope.From) > MinutesKept {
			unit = time.Hour
		}
	}
	r := span{lo: down(scope.From, unit), hi: up(scope.To, unit)}
	r.hourLo, r.hourHi = up(r.lo, time.Hour), down(r.hi, time.Hour)
	if r.hourHi.Before(r.hourLo) || step > 0 && step%time.Hour != 0 {
		r.hourLo, r.hourHi = r.hi, r.hi
	}
	return r
}

func mod(n, d int64) int64 { return ((n % d) + d) % d }

// Present is the current number of unfinished runs and of jobs.
type Present struct {
	Pending, Held, Queued, Running, Retrying int64 // pending: due and about to be fired
	Jobs, Enabled                            int64
}

// Present returns the current numbers of the groups; nil means all groups.
func (s *Store) Present(ctx context.Context, only []string) (Present, error) {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	q := sqlcgen.New(s.pool)
	var p Present
	live, err := q.LiveRuns(ctx, only)
	if err != nil {
		return p, pgerr.Translate(err)
	}
	for _, l := range live {
		switch domain.State(l.State) {
		case domain.Pending:
			if l.Held {
				p.Held += l.Runs
			} else {
				p.Pending += l.Runs
			}
		case domain.Queued:
			p.Queued += l.Runs
		case domain.Running:
			p.Running += l.Runs
		case domain.Retrying:
			p.Retrying += l.Runs
		case domain.Succeeded, domain.Failed, domain.Cancelled, domain.Skipped: // never in the live table
		}
	}
	jobs, err := s.JobCounts(ctx)
	if err != nil {
		return p, err
	}
	for group, n := range jobs {
		if only == nil || slices.Contains(only, group) {
			p.Jobs += n.Jobs
			p.Enabled += n.Enabled
		}
	}
	return p, nil
}
