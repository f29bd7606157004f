// Package firecheck continuously looks for unexplained fire times: fire times that a bug or manual SQL has left without a
// run or a reason.
//
// # Rounds
//
// A round checks the fire times that came due between the end of the previous round and a minute ago, job by job. It
// works page by page and stores its position after each page, so that another dispatcher can continue if one dies. One
// dispatcher at a time works: it holds a lease in a row of the database.
//
// A page is bounded both by its number of jobs, because there may be a million idle jobs, and by the number of fire times
// that it computes. After a page, the checker pauses nine times as long as the page took, and at least 10 s if the page did not
// reach the bound of fire times. The pause is never longer than a minute. The fire check therefore uses about a tenth of one
// connection. With few jobs, a round begins every minute. With a million idle jobs, a round takes some hours.
//
// # Races with planning
//
// The fire check must not report fires that are only late. A round therefore stops at the fire times of a minute ago, and
// before the oldest fire time that planning has not decided. If planning has been stuck at a job for 15 minutes, the round
// continues past that job.
//
// Before the fire check enters an unexplained fire time into the missed ledger, it checks again under the planning lock of
// the job (store.LedgerUnexplained).
package firecheck

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Store holds the position of the fire check and the missed ledger.
type Store interface {
	ClaimFireCheck(ctx context.Context, owner string, lease time.Duration) (round firecheck.Round, now time.Time, ok bool, err error)
	SaveFireCheck(ctx context.Context, owner string, round firecheck.Round) error
	ReleaseFireCheck(ctx context.Context, owner string) error
	OldestUndecided(ctx context.Context) (time.Time, error)
	LedgerUnexplained(ctx context.Context, gap firecheck.Unexplained) ([]time.Time, error)
}

// Reader finds unexplained fire times that are due after since and not after until. It reads one page, starting at the
// cursor.
type Reader interface {
	Unexplained(ctx context.Context, since, until time.Time, from firecheck.Cursor, jobs, fires int) (
		found []firecheck.Unexplained, checked int, next firecheck.Cursor, done bool, err error)
}

// Config holds the dependencies of a Checker. All fields except Registry are required.
type Config struct {
	Store    Store
	Reader   Reader
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// The bounds and periods of the fire check.
const (
	margin    = time.Minute      // a round checks fire times that are at least this old
	patience  = 15 * time.Minute // maximum wait for planning that is behind
	furthest  = 24 * time.Hour   // maximum span of a round; if no dispatcher ran for longer, older fire times are not checked
	period    = time.Minute      // of rounds with few jobs
	lease     = 2 * time.Minute
	pageJobs  = 500
	pageFires = 20_000
	idleRest  = 10 * time.Second // after a page that was full of jobs
	restShare = 9                // after a page that took 1 s, the checker pauses for 9 s
)

// Checker is the periodic fire check. Create one with New, then call Run.
type Checker struct {
	cfg   Config
	owner string

	fires, unexplained prometheus.Counter
	lag                prometheus.Gauge
}

// New returns a Checker that does nothing until Run.
func New(cfg Config) *Checker {
	c := &Checker{
		cfg: cfg, owner: rand.Text(),
		fires:       prometheus.NewCounter(prometheus.CounterOpts{Name: "belfry_fire_check_fire_times_total", Help: "Fire times that the fire check has checked."}),
		unexplained: prometheus.NewCounter(prometheus.CounterOpts{Name: "belfry_fire_check_unexplained_total", Help: "Fire times without a run or a reason, which the fire check entered into the missed ledger."}),
		lag:         prometheus.NewGauge(prometheus.GaugeOpts{Name: "belfry_fire_check_lag_seconds", Help: "Age of the instant up to which all fire times have been checked; 0 if another dispatcher runs the fire check."}),
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(c.fires, c.unexplained, c.lag)
	}
	return c
}

// Run checks fire times until ctx ends.
func (c *Checker) Run(ctx context.Context) error {
	for rest := time.Second; lifecycle.Pause(ctx, rest); {
		var err error
		if rest, err = c.page(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.WarnContext(ctx, "cannot check fire times, retrying", "err", err)
			rest = idleRest
		}
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = c.cfg.Store.ReleaseFireCheck(release, c.owner) // if this fails, the lease expires
	return nil
}

// page checks one page and returns how long to pause.
func (c *Checker) page(ctx context.Context) (time.Duration, error) {
	round, now, ours, err := c.cfg.Store.ClaimFireCheck(ctx, c.owner, lease)
	if err != nil {
		return 0, err
	}
	if !ours {
		c.lag.Set(0) // another dispatcher reports it
		return idleRest, nil
	}
	c.lag.Set(now.Sub(round.Through).Seconds())
	if round.Upto.IsZero() {
		undecided, err := c.cfg.Store.OldestUndecided(ctx)
		if err != nil {
			return 0, err
		}
		if !begin(&round, now, undecided) {
			return idleRest, nil
		}
	}
	begun := time.Now()
	found, checked, next, done, err := c.cfg.Reader.Unexplained(ctx, round.Through, round.Upto, round.Cursor, pageJobs, pageFires)
	if err != nil {
		return 0, err
	}
	for _, gap := range found {
		if err := c.enter(ctx, gap); err != nil {
			return 0, err
		}
	}
	c.fires.Add(float64(checked))
	rest := max(restShare*time.Since(begun), 100*time.Millisecond)
	if checked < pageFires {
		rest = max(rest, idleRest)
	}
	round.Cursor = next
	if done {
		rest = max(rest, period-now.Sub(round.BeganAt))
		round.Through, round.Upto, round.Cursor = round.Upto, time.Time{}, firecheck.Cursor{}
	}
	return min(rest, period), c.cfg.Store.SaveFireCheck(ctx, c.owner, round)
}

// begin starts a round and reports whether there is anything to check.
func begin(round *firecheck.Round, now, undecided time.Time) bool {
	upto := now.Add(-margin)
	if !undecided.IsZero() && !undecided.After(upto) {
		upto = undecided.Add(-time.Millisecond)
		if earliest := now.Add(-patience); upto.Before(earliest) {
			upto = earliest
		}
	}
	upto = upto.Truncate(time.Millisecond)
	if !upto.After(round.Through) {
		return false
	}
	if since := upto.Add(-furthest); round.Through.Before(since) {
		round.Through = since
	}
	round.Upto, round.Cursor, round.BeganAt = upto, firecheck.Cursor{}, now
	return true
}

// enter records unexplained fire times in the missed ledger.
func (c *Checker) enter(ctx context.Context, gap firecheck.Unexplained) error {
	entered, err := c.cfg.Store.LedgerUnexplained(ctx, gap)
	if err != nil || len(entered) == 0 {
		return err
	}
	c.unexplained.Add(float64(len(entered)))
	c.cfg.Log.ErrorContext(ctx, "fire times have neither a run nor a reason, entered them into the missed ledger",
		"job_id", gap.JobID, "job", gap.JobName, "group", gap.Group, "version", gap.Version, "count", len(entered),
		"first", domain.At(entered[0]).String(), "last", domain.At(entered[len(entered)-1]).String())
	return nil
}
