package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
)

// hotTables are rewritten by every run; their sizes must not grow.
var hotTables = []string{"runs_live", "job_due", "runs_waiting", "block_slots", "route_state"}

// engineRun measures the engine once.
type engineRun struct {
	*Bench
	of    func(from time.Time) load
	stop  time.Duration // give up, and take the load away, when fires are late by this
	parts []*child
	execs []*child

	from    time.Time
	begun   time.Time
	seconds []second
	stopped time.Time // when the load was taken away
	sizes   []float64 // of the hot tables and their indexes, at ten times of a long run
}

// second is how the run stood at an instant.
type second struct {
	at  time.Time
	lag time.Duration // how long the oldest unfinished run is past due
}

func (e *engineRun) run(ctx context.Context) (f Figures, err error) {
	f = make(Figures)
	defer func() { err = errors.Join(err, stopAll(e.parts)) }()
	if err := e.quiet(ctx); err != nil {
		return nil, err
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	l, err := e.loadJobs(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.tables(ctx, f, "belfry", hotTables, ".before"); err != nil {
		return nil, err
	}
	lifecycle.Pause(ctx, time.Until(e.from.Add(-ahead+time.Second)))
	before, err := e.read(ctx, e.parts)
	if err != nil {
		return nil, err
	}
	if err := e.profiled(ctx, e.parts, func() error { return e.await(ctx, f, l) }); err != nil {
		return nil, err
	}
	after, err := e.read(ctx, e.parts)
	if err != nil {
		return nil, err
	}
	if err := e.figures(ctx, f, l); err != nil {
		return nil, err
	}
	if err := f.lateness(ctx, e.execs); err != nil {
		return nil, err
	}
	if err := e.tables(ctx, f, "belfry", hotTables, ".after"); err != nil {
		return nil, err
	}
	f.set("hot_growth", growthOf(e.sizes))
	return f, e.cost(ctx, f, before, after, f["ended"])
}

// hotBytes is the size of the hot tables and their indexes, as tables noted it under a suffix.
func (f Figures) hotBytes(suffix string) float64 {
	sum := 0.0
	for _, name := range hotTables {
		sum += f["table_bytes."+name+suffix] + f["index_bytes."+name+suffix]
	}
	return sum
}

// growthOf is how many times the largest of the later half of sizes is as large as the largest of the first half, the
// very first aside, at which the load begins. NaN where there are too few.
func growthOf(sizes []float64) float64 {
	if len(sizes) < 5 {
		return math.NaN()
	}
	half := (len(sizes) + 1) / 2
	return slices.Max(sizes[half:]) / slices.Max(sizes[1:half])
}

// start starts the roles and waits until executors are known to NATS.
func (e *engineRun) start(ctx context.Context) error {
	e.progress("starting schedulers, dispatchers and executors")
	order := Order{Database: e.servers.pg.URL(), NATS: e.systemURL(), Profile: e.Config.Profile}
	add := func(o Order, n int) error {
		for i := range n {
			one := o
			one.Name = o.Part + "-" + strconv.Itoa(i+1)
			if o.Part == partExecutor {
				one.NATS, one.Password, one.Capacity = e.servers.natsURL, e.servers.password, e.Config.Capacity
				one.Dir = filepath.Join(e.servers.dir, "spool")
			}
			c, err := startPart(ctx, one, e.Stderr)
			if err != nil {
				return err
			}
			e.parts = append(e.parts, c)
			if o.Part == partExecutor {
				e.execs = append(e.execs, c)
			}
		}
		return nil
	}
	for _, kind := range []struct {
		part string
		n    int
	}{{partScheduler, e.Config.Schedulers}, {partDispatcher, e.Config.Dispatchers}, {partExecutor, e.Config.Executors}} {
		order.Part = kind.part
		if err := add(order, kind.n); err != nil {
			return err
		}
	}
	return nil
}

// startStandalone starts all roles in one process, which has a NATS of its own.
func (e *engineRun) startStandalone(ctx context.Context) error {
	order := Order{Part: partStandalone, Database: e.servers.pg.URL(), Dir: filepath.Join(e.servers.dir, "standalone"), Profile: e.Config.Profile}
	c, err := startPart(ctx, order, e.Stderr)
	if err != nil {
		return err
	}
	e.parts = append(e.parts, c)
	return nil
}

// systemURL is NATS with the system side's log-in.
func (b *Bench) systemURL() string {
	const scheme = "nats://"
	return scheme + systemUser + ":" + b.servers.password + "@" + b.servers.natsURL[len(scheme):]
}

// loadJobs writes the jobs of the load, in time for the pre-read.
func (e *engineRun) loadJobs(ctx context.Context) (load, error) {
	n := 0
	for _, s := range e.of(time.Now()).Sets {
		n += s.N
	}
	foreseen := 3*time.Second + time.Duration(n)*200*time.Microsecond
	for range loadTries {
		e.begun = time.Now()
		e.from = firstFire(foreseen)
		l := e.of(e.from)
		for _, s := range l.Sets {
			if err := e.addJobs(ctx, s); err != nil {
				return l, err
			}
		}
		// Else autovacuum would do it while it is measured what runs cost.
		if _, err := e.servers.db.Exec(ctx, `VACUUM (ANALYZE) jobs, job_versions`); err != nil {
			return l, fmt.Errorf("tidy up after writing jobs: %w", err)
		}
		if time.Now().Before(e.from.Add(-5 * time.Second)) {
			return l, nil
		}
		e.say("writing %d jobs took %v, longer than was foreseen; once more", n, time.Since(e.begun).Round(time.Millisecond))
		foreseen = 2 * time.Since(e.begun)
		if err := e.cut(ctx); err != nil {
			return l, err
		}
	}
	return load{}, fmt.Errorf("the database is too slow to measure: it did not take %d jobs within %v", n, foreseen/2)
}

// loadTries is how often jobs are written when the database does not take them in time for their first fire.
const loadTries = 3

// await returns when all that was fired has ended.
func (e *engineRun) await(ctx context.Context, f Figures, l load) error {
	_, to := l.span()
	deadline := to.Add(2 * time.Minute)
	sizes := to.Sub(e.from) >= 2*time.Minute
	next := e.from
	// The question reads what has ended lately, which is a cost that the engine does not have. So while nothing but the
	// progress depends on the answer, it is hardly asked.
	every := func() time.Duration {
		if e.stop > 0 {
			return 500 * time.Millisecond
		}
		return min(5*time.Second, max(time.Second, time.Until(to)))
	}
	for lifecycle.Pause(ctx, every()) {
		lag, left, err := e.lag(ctx, to)
		if err != nil {
			return err
		}
		now := time.Now()
		e.seconds = append(e.seconds, second{now, lag})
		if sizes && now.After(next) {
			next = next.Add(to.Sub(e.from) / 10)
			if err := e.tables(ctx, f, "belfry", hotTables, fmt.Sprintf(".at_%04.0fs", now.Sub(e.from).Seconds())); err != nil {
				return err
			}
			e.sizes = append(e.sizes, f.hotBytes(fmt.Sprintf(".at_%04.0fs", now.Sub(e.from).Seconds())))
		}
		if e.stop > 0 && lag > e.stop && e.stopped.IsZero() {
			e.stopped = now
			if err := e.cut(ctx); err != nil {
				return err
			}
		}
		switch {
		case !left && (now.After(to) || !e.stopped.IsZero()):
			return nil
		case now.After(deadline):
			return fmt.Errorf("runs are unfinished %v after the last was due", time.Since(to).Round(time.Second))
		case now.Before(e.from):
			e.progress("engine: first fires in %.0f s", time.Until(e.from).Seconds())
		default:
			e.progress("engine: %.0f s of %.0f s, the oldest unfinished run is %.1f s past due", now.Sub(e.from).Seconds(), to.Sub(e.from).Seconds(), lag.Seconds())
		}
	}
	return ctx.Err()
}

// lag returns how long the oldest unfinished run is past due, and whether anything is still to come.
func (e *engineRun) lag(ctx context.Context, to time.Time) (lag time.Duration, left bool, err error) {
	var oldest float64
	err = e.servers.db.QueryRow(ctx, `
		SELECT COALESCE(extract(epoch FROM clock_timestamp() - (SELECT min(due_at) FROM runs_live WHERE NOT held AND due_at < statement_timestamp())), 0)::float8,
		       EXISTS (SELECT 1 FROM runs_live WHERE NOT held AND due_at <= $1) OR EXISTS (SELECT 1 FROM job_due WHERE next_due_at <= $1)`,
		to).Scan(&oldest, &left)
	return time.Duration(oldest * float64(time.Second)), left, err
}

// figures reads what the history says of this run's fires.
func (e *engineRun) figures(ctx context.Context, f Figures, l load) error {
	_, to := l.span()
	var started, settled *time.Time
	var ended, succeeded int64
	lag, recorded := make([]float64, 4), make([]float64, 4)
	err := e.servers.db.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE state = 'succeeded'), max(started_at), max(settled_at),
		       COALESCE(percentile_cont(ARRAY[.5, .99, .999, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM settled_at - due_at)::float8 * 1000), '{0,0,0,0}'),
		       COALESCE(percentile_disc(ARRAY[.5, .99, .999, 1]) WITHIN GROUP (ORDER BY lateness_ms::float8), '{0,0,0,0}')
		  FROM (SELECT state, due_at, started_at, lateness_ms, pg_xact_commit_timestamp(xmin) AS settled_at FROM runs_history
		         WHERE id >= first_run_id($1) AND id < first_run_id($2) AND job_id > $3) h`,
		e.from, to.Add(time.Second), e.firstJob(l)).Scan(&ended, &succeeded, &started, &settled, &lag, &recorded)
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	if started == nil || settled == nil {
		return errors.New("no run has started")
	}
	var missed float64
	if err := e.servers.db.QueryRow(ctx, `SELECT COALESCE(sum(count), 0)::float8 FROM missed WHERE at >= $1`, e.begun).Scan(&missed); err != nil {
		return err
	}
	f.set("fires", float64(l.fires()))
	f.set("ended", float64(ended))
	f.set("succeeded", float64(succeeded))
	f.set("missed", missed)
	f.percentiles("recorded_lateness", Percentiles{recorded[0], recorded[1], recorded[2], recorded[3]})
	f.ends(l, e.from, *started, *settled, ended, lag)
	if e.stop == 0 && ended+int64(missed) != int64(l.fires()) {
		return fmt.Errorf("of %d fires %d have ended and %.0f are in the missed ledger: that is a fault of the engine", l.fires(), ended, missed)
	}
	return nil
}

// firstJob is the id before this load's first job.
func (e *engineRun) firstJob(l load) domain.JobID {
	n := 0
	for _, s := range l.Sets {
		n += s.N
	}
	return domain.JobID(e.jobs - int64(n))
}
