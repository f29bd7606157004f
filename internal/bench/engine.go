package bench

import (
	"cmp"
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

// hotTables are the tables whose rows change with every run. Their sizes must not grow.
var hotTables = []string{"runs_live", "job_due", "runs_waiting", "block_slots", "route_state"}

// engineRun is one measurement of the engine.
type engineRun struct {
	*rig
	of        func(from time.Time) load
	stop      time.Duration // the load ends when fires are later than this; 0: never
	executors int           // their number; 0: as configured
	gateway   bool          // runs go through a gateway to stubs, not to executors
	parts     []*child
	execs     []*child // those of parts that are executors or stubs

	from    time.Time // the first fire
	begun   time.Time // before the jobs are written
	seconds []second
	stopped time.Time // when the load was ended early
	sizes   []float64 // of the hot tables and their indexes, ten times during a long load
}

// second is the state of the measurement at an instant.
type second struct {
	at  time.Time
	lag time.Duration // how long the oldest unfinished run is past due
}

// run measures the engine under the load and returns when all fired runs have ended.
func (e *engineRun) run(ctx context.Context) (f Figures, err error) {
	f = make(Figures)
	defer func() { err = errors.Join(err, stopAll(e.parts)) }()
	if err := e.servers.vacuum(ctx); err != nil {
		return nil, err
	}
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	l, err := e.loadJobs(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.addHotSizes(ctx, f, ".before"); err != nil {
		return nil, err
	}
	lifecycle.Pause(ctx, time.Until(e.from.Add(-ahead+time.Second)))
	o, err := e.meter.observe(ctx, e.parts, func() error { return e.await(ctx, f, l) })
	if err != nil {
		return nil, err
	}
	if err := e.addFigures(ctx, f, l); err != nil {
		return nil, err
	}
	if err := e.lateness(ctx, f); err != nil {
		return nil, err
	}
	if err := e.addHotSizes(ctx, f, ".after"); err != nil {
		return nil, err
	}
	f.set("hot_growth", growthOf(e.sizes))
	return f, e.meter.addCost(ctx, f, o, f["ended"])
}

// atRest measures the engine while no fires are due. start starts its processes.
func (e *engineRun) atRest(ctx context.Context, start func(*engineRun, context.Context) error) (f Figures, err error) {
	f = make(Figures)
	defer func() { err = errors.Join(err, stopAll(e.parts)) }()
	if err := e.servers.vacuum(ctx); err != nil {
		return nil, err
	}
	if err := start(e, ctx); err != nil {
		return nil, err
	}
	lifecycle.Pause(ctx, idleWarmUp)
	o, err := e.meter.observe(ctx, e.parts, func() error { lifecycle.Pause(ctx, e.config.Span); return ctx.Err() })
	if err != nil {
		return nil, err
	}
	return f, e.meter.addCost(ctx, f, o, 0)
}

// idleWarmUp is the time between the start of the processes and a measurement at rest.
const idleWarmUp = 10 * time.Second

// lateness adds how late runs started, as the executors have recorded it.
func (e *engineRun) lateness(ctx context.Context, f Figures) error {
	if e.gateway {
		return e.arrivalLateness(ctx, f)
	}
	return f.lateness(ctx, e.execs)
}

// start starts the roles and the executors, and returns when all of them are ready.
func (e *engineRun) start(ctx context.Context) error {
	e.display.progress("starting schedulers, dispatchers and executors")
	executors := cmp.Or(e.executors, e.config.Executors)
	if e.gateway {
		executors = 0
	}
	for _, kind := range []struct {
		part string
		n    int
	}{{partScheduler, e.config.Schedulers}, {partDispatcher, e.config.Dispatchers}, {partExecutor, executors}} {
		for i := range kind.n {
			o := Order{Part: kind.part, Name: kind.part + "-" + strconv.Itoa(i+1), NATS: e.servers.systemURL()}
			if kind.part == partExecutor {
				o.NATS, o.Password, o.Capacity = e.servers.natsURL, e.servers.password, e.config.Capacity
				o.Dir = filepath.Join(e.servers.dir, "spool")
			}
			c, err := e.startPart(ctx, o)
			if err != nil {
				return err
			}
			if kind.part == partExecutor {
				e.execs = append(e.execs, c)
			}
		}
	}
	if e.gateway {
		return e.startGateway(ctx)
	}
	return nil
}

// startAll starts the roles, executors and a console.
func (e *engineRun) startAll(ctx context.Context) error {
	if err := e.start(ctx); err != nil {
		return err
	}
	_, err := e.startPart(ctx, Order{Part: partConsole, Name: partConsole, NATS: e.servers.systemURL()})
	return err
}

// startStandalone starts all roles in one process, which has its own NATS.
func (e *engineRun) startStandalone(ctx context.Context) error {
	_, err := e.startPart(ctx, Order{Part: partStandalone, Dir: filepath.Join(e.servers.dir, "standalone")})
	return err
}

func (e *engineRun) startPart(ctx context.Context, o Order) (*child, error) {
	c, err := e.servers.startPart(ctx, o)
	if err == nil {
		e.parts = append(e.parts, c)
	}
	return c, err
}

// loadTries bounds the attempts to write the jobs. An attempt fails if the database is too slow for their first fire time.
const loadTries = 3

// loadJobs writes the jobs of the load, early enough for the pre-read.
func (e *engineRun) loadJobs(ctx context.Context) (load, error) {
	n := 0
	for _, s := range e.of(time.Now()).Sets {
		n += s.N
	}
	expected := 3*time.Second + time.Duration(n)*200*time.Microsecond
	for range loadTries {
		e.begun = time.Now()
		e.from = firstFire(expected)
		l := e.of(e.from)
		for _, s := range l.Sets {
			if err := e.loader.addJobs(ctx, s); err != nil {
				return l, err
			}
		}
		// Otherwise autovacuum would do this during the measurement.
		if _, err := e.servers.db.Exec(ctx, `VACUUM (ANALYZE) jobs, job_versions`); err != nil {
			return l, fmt.Errorf("vacuum after writing jobs: %w", err)
		}
		if time.Now().Before(e.from.Add(-5 * time.Second)) {
			return l, nil
		}
		e.display.say("writing %d jobs took %v, longer than expected, retrying", n, time.Since(e.begun).Round(time.Millisecond))
		expected = 2 * time.Since(e.begun)
		if err := e.loader.cut(ctx); err != nil {
			return l, err
		}
	}
	return load{}, fmt.Errorf("the database is too slow to measure: it did not store %d jobs within %v", n, expected/2)
}

// await returns when all fired runs have ended.
func (e *engineRun) await(ctx context.Context, f Figures, l load) error {
	_, to := l.span()
	deadline := to.Add(2 * time.Minute)
	sizes := to.Sub(e.from) >= 2*time.Minute
	next := e.from
	// The query of lag reads the rows of runs that have just ended, which the engine itself does not do. So await asks
	// rarely while only the progress line depends on the answer.
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
			suffix := fmt.Sprintf(".at_%04.0fs", now.Sub(e.from).Seconds())
			if err := e.addHotSizes(ctx, f, suffix); err != nil {
				return err
			}
			e.sizes = append(e.sizes, f.hotBytes(suffix))
		}
		if e.stop > 0 && lag > e.stop && e.stopped.IsZero() {
			e.stopped = now
			if err := e.loader.cut(ctx); err != nil {
				return err
			}
		}
		switch {
		case !left && (now.After(to) || !e.stopped.IsZero()):
			return nil
		case now.After(deadline):
			return fmt.Errorf("some runs have not ended %v after the last was due", time.Since(to).Round(time.Second))
		case now.Before(e.from):
			e.display.progress("engine: first fires in %.0f s", time.Until(e.from).Seconds())
		default:
			e.display.progress("engine: %.0f s of %.0f s, the oldest unfinished run is %.1f s past due", now.Sub(e.from).Seconds(), to.Sub(e.from).Seconds(), lag.Seconds())
		}
	}
	return ctx.Err()
}

// lag returns how long the oldest unfinished run is past due, and whether any run that is due by to is unfinished or not
// planned yet.
func (e *engineRun) lag(ctx context.Context, to time.Time) (lag time.Duration, left bool, err error) {
	var oldest float64
	err = e.servers.db.QueryRow(ctx, `
		SELECT COALESCE(extract(epoch FROM clock_timestamp() - (SELECT min(due_at) FROM runs_live WHERE NOT held AND due_at < statement_timestamp())), 0)::float8,
		       EXISTS (SELECT 1 FROM runs_live WHERE NOT held AND due_at <= $1) OR EXISTS (SELECT 1 FROM job_due WHERE next_due_at <= $1)`,
		to).Scan(&oldest, &left)
	return time.Duration(oldest * float64(time.Second)), left, err
}

// addFigures adds the figures that the history of runs contains.
func (e *engineRun) addFigures(ctx context.Context, f Figures, l load) error {
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
		e.from, to.Add(time.Second), e.beforeFirstJob(l)).Scan(&ended, &succeeded, &started, &settled, &lag, &recorded)
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
		return fmt.Errorf("the counts of the engine do not add up: of %d fires, %d have ended and %.0f are in the missed ledger", l.fires(), ended, missed)
	}
	return nil
}

// beforeFirstJob returns the id before the id of the load's first job.
func (e *engineRun) beforeFirstJob(l load) domain.JobID {
	n := 0
	for _, s := range l.Sets {
		n += s.N
	}
	return domain.JobID(e.loader.newest - int64(n))
}

// addHotSizes adds the sizes of the hot tables, as figures whose names end in suffix.
func (e *engineRun) addHotSizes(ctx context.Context, f Figures, suffix string) error {
	return e.meter.addSizes(ctx, f, "belfry", hotTables, suffix)
}

// hotBytes returns the total size of the hot tables and their indexes that addHotSizes has added with suffix.
func (f Figures) hotBytes(suffix string) float64 {
	sum := 0.0
	for _, name := range hotTables {
		sum += f["table_bytes."+name+suffix] + f["index_bytes."+name+suffix]
	}
	return sum
}

// growthOf returns the largest size of the second half, divided by the largest size of the first half. It ignores the
// first size, because the load starts there. It returns NaN for fewer than five sizes.
func growthOf(sizes []float64) float64 {
	if len(sizes) < 5 {
		return math.NaN()
	}
	half := (len(sizes) + 1) / 2
	return slices.Max(sizes[half:]) / slices.Max(sizes[1:half])
}

// sustained reports whether the load lasted up to an instant, and runs were not late then.
func (e *engineRun) sustained(end time.Time) bool {
	return (e.stopped.IsZero() || !end.After(e.stopped)) && e.lagAt(end) <= lateAtEnd
}

// lagAt returns the largest lag of the second before an instant.
func (e *engineRun) lagAt(at time.Time) time.Duration {
	var most time.Duration
	for _, s := range e.seconds {
		if s.at.After(at.Add(-time.Second)) && !s.at.After(at) {
			most = max(most, s.lag)
		}
	}
	return most
}

// settledBySecond returns how many runs were settled in each second since the first fire.
func (e *engineRun) settledBySecond(ctx context.Context) ([]float64, error) {
	rows, err := e.servers.db.Query(ctx, `
		SELECT floor(extract(epoch FROM settled_at - $1::timestamptz))::int, count(*)
		  FROM (SELECT pg_xact_commit_timestamp(xmin) AS settled_at FROM runs_history WHERE id >= first_run_id($1)) h
		 WHERE settled_at >= $1 GROUP BY 1`, e.from)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []float64
	for rows.Next() {
		var at int
		var n float64
		if err := rows.Scan(&at, &n); err != nil {
			return nil, err
		}
		for len(out) <= at {
			out = append(out, 0)
		}
		out[at] += n
	}
	return out, rows.Err()
}

// mean returns the mean of values[from:to], or 0 if there are fewer values.
func mean(values []float64, from, to int) float64 {
	if to > len(values) || from >= to {
		return 0
	}
	sum := 0.0
	for _, v := range values[from:to] {
		sum += v
	}
	return sum / float64(to-from)
}

// recovery returns how long after an instant runs are on time again.
func (e *engineRun) recovery(since time.Time) time.Duration {
	last := since
	for _, s := range e.seconds {
		if s.at.After(since) && s.lag > lateAtEnd {
			last = s.at
		}
	}
	return last.Sub(since)
}

// order adds the share of runs that started after a run that was due over a second later.
func (e *engineRun) order(ctx context.Context, f Figures) error {
	var share, worst float64
	err := e.servers.db.QueryRow(ctx, `
		SELECT COALESCE(avg((newest - due_at > interval '1 second')::int), 0)::float8, COALESCE(max(extract(epoch FROM newest - due_at)), 0)::float8
		  FROM (SELECT due_at, max(due_at) OVER (ORDER BY started_at, due_at ROWS UNBOUNDED PRECEDING) AS newest FROM runs_history
		         WHERE id >= first_run_id($1) AND started_at IS NOT NULL) h`, e.from).Scan(&share, &worst)
	f.set("out_of_order", share)
	f.set("out_of_order_max_s", worst)
	return err
}
