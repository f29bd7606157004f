// Package retention deletes runs whose retention has passed: whole days by the server's settings, and single runs by
// the retention of their job.
//
// # Days
//
// History, attempts and logs are stored in partitions by day of the run id. A day that is older than the server's
// retention of runs is dropped, which is cheap however many runs it has. If the day has runs of jobs that keep their
// runs for longer, it is rewritten once with those runs only, and the new table replaces the old one. That costs
// reading and writing the runs that stay. The day is dropped when no job keeps runs for that long any more. A
// rewritten day is marked, so that the audit does not look for the deleted runs.
//
// # Single runs
//
// Runs whose job's retention has passed, while their day stays, are deleted in batches by the index of the job. That
// costs as much as deleting rows always does, so a pass deletes at most 100,000 runs of one job.
//
// Logs are deleted with their runs, or earlier, by the server's retention of logs. The runs of a deleted job are kept
// by the server's settings.
//
// Bulk actions are deleted seven days after their end. Processes of executors are deleted when no run is kept that could name them.
package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Keeper deletes runs, attempts and logs whose retention has passed. Several Keepers may run; only one works at a time.
type Keeper struct{ pool *pgxpool.Pool }

// New returns a Keeper on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Keeper { return &Keeper{pool} }

const (
	batchRuns  = 1000
	batchesMax = 100 // batches per job and pass
	bulkKept   = 7 * 24 * time.Hour

	// Kept marks a rewritten day, as a comment on its table. Query HistoryDays of package view recognizes it.
	Kept = "belfry: kept for jobs that keep longer"
)

// job is a job that sets its own retention.
type job struct {
	id    int64
	keeps time.Duration
}

// pass is one pass over all stored days and jobs.
type pass struct {
	*Keeper
	now        time.Time
	runs, logs time.Duration
	jobs       []job
}

// Keep deletes runs and logs that are older than the given retentions, or than their job's.
func (k *Keeper) Keep(ctx context.Context, runs, logs time.Duration) error {
	conn, err := k.pool.Acquire(ctx)
	if err != nil {
		return pgerr.Translate(err)
	}
	defer conn.Release()
	var mine bool
	const lock = `hashtextextended('belfry.retention', 0)`
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(`+lock+`)`).Scan(&mine); err != nil || !mine {
		return pgerr.Translate(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock(`+lock+`)`); err != nil {
			_ = conn.Conn().Close(ctx) // this also unlocks
		}
	}()
	p := &pass{Keeper: k, runs: runs, logs: logs}
	if err := p.read(ctx); err != nil {
		return pgerr.Translate(err)
	}
	// A day that is locked by a reader must not prevent the rest.
	faults := []error{pgerr.Translate(p.days(ctx)), pgerr.Translate(p.bulkActions(ctx)), pgerr.Translate(p.executorBoots(ctx))}
	for _, j := range p.jobs {
		if err := p.expire(ctx, j); err != nil {
			faults = append(faults, pgerr.Translate(err))
			break
		}
	}
	return errors.Join(faults...)
}

func (p *pass) read(ctx context.Context) error {
	rows, err := p.pool.Query(ctx, `SELECT id, spec->>'retention', clock_timestamp() FROM jobs WHERE spec->>'retention' <> ''`)
	if err != nil {
		return err
	}
	var id int64
	var text string
	if _, err := pgx.ForEachRow(rows, []any{&id, &text, &p.now}, func() error {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			p.jobs = append(p.jobs, job{id, d})
		}
		return nil
	}); err != nil {
		return err
	}
	return p.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&p.now)
}

// days drops or rewrites old days.
func (p *pass) days(ctx context.Context) error {
	rows, err := p.pool.Query(ctx, `SELECT p.relname, c.relname, coalesce(obj_description(c.oid, 'pg_class'), '') = $1
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
		WHERE p.relname IN ('runs_history', 'run_attempts', 'late_results', 'run_logs')
		  AND p.relnamespace = current_schema()::regnamespace
		ORDER BY right(c.relname, 8), p.relname = 'runs_history'`, Kept)
	if err != nil {
		return err
	}
	type part struct {
		Parent, Name string
		Kept         bool
	}
	parts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[part])
	if err != nil {
		return err
	}
	var faults []error
	for _, part := range parts {
		suffix := part.Name[strings.LastIndexByte(part.Name, '_')+1:]
		day, err := time.Parse("20060102", suffix)
		if err != nil {
			continue
		}
		age := p.now.Sub(day.AddDate(0, 0, 1))
		keepers := p.keepers(age)
		switch {
		case part.Parent == "run_logs":
			if age >= p.logs {
				err = p.drop(ctx, part.Name)
			}
		case age < p.runs:
		case len(keepers) == 0:
			err = p.drop(ctx, part.Name)
		case part.Parent != "runs_history" || part.Kept: // rewriting runs_history also rewrites the other tables; a marked day is rewritten already
		default:
			err = p.rewrite(ctx, suffix, keepers)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("expire %s: %w", part.Name, err))
		}
	}
	return errors.Join(faults...)
}

// bulkActions deletes bulk actions, with the lists of their new runs, a week after their end.
func (p *pass) bulkActions(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, `DELETE FROM bulk_actions WHERE finished_at < $1`, p.now.Add(-bulkKept))
	return err
}

// executorBoots deletes processes of executors that ended before the oldest run that any job keeps.
func (p *pass) executorBoots(ctx context.Context) error {
	keeps := p.runs
	for _, j := range p.jobs {
		keeps = max(keeps, j.keeps)
	}
	_, err := p.pool.Exec(ctx, `DELETE FROM executor_boots WHERE last_seen < $1`, p.now.Add(-keeps-24*time.Hour))
	return err
}

// keepers returns the jobs that keep runs of this age.
func (p *pass) keepers(age time.Duration) (ids []int64) {
	for _, j := range p.jobs {
		if j.keeps > age {
			ids = append(ids, j.id)
		}
	}
	return ids
}

// locked runs do in a transaction that may detach a day from its table. Detaching needs a lock that waits for all readers and
// writers of the table and blocks new ones. So the transaction waits for the lock only briefly. If a long query holds the lock,
// the next pass, an hour later, does the work.
func (p *pass) locked(ctx context.Context, do func(exec func(sql string, args ...any) error) error) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		exec := func(sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}
		// Only one at a time: two transactions that drop the same partition, or one next to make_day, would conflict in
		// the catalog.
		if err := exec(`SELECT pg_advisory_xact_lock(hashtextextended('belfry.make_day', 0))`); err != nil {
			return err
		}
		if err := exec(`SET LOCAL lock_timeout = '200ms'`); err != nil {
			return err
		}
		return do(exec)
	})
}

func (p *pass) drop(ctx context.Context, table string) error {
	return p.locked(ctx, func(exec func(string, ...any) error) error {
		return exec(`DROP TABLE IF EXISTS ` + pgx.Identifier{table}.Sanitize())
	})
}

// rewrite replaces a day by one with the runs of some jobs only. It copies them before it takes any lock. Under the
// lock it only adds the rows that were written meanwhile.
func (p *pass) rewrite(ctx context.Context, day string, jobs []int64) error {
	tables := []struct{ name, key, stays string }{
		{"runs_history", "id", `o.job_id = ANY ($1::bigint[])`},
		{"run_attempts", "run_id", `EXISTS (SELECT 1 FROM runs_history_` + day + ` h WHERE h.id = o.run_id AND h.job_id = ANY ($1::bigint[]))`},
		{"late_results", "run_id", `EXISTS (SELECT 1 FROM runs_history_` + day + ` h WHERE h.id = o.run_id AND h.job_id = ANY ($1::bigint[]))`},
	}
	copyAll := func(exec func(string, ...any) error) error {
		for _, t := range tables {
			if err := exec(fmt.Sprintf(`INSERT INTO %[1]s_%[2]s_new SELECT o.* FROM %[1]s_%[2]s o WHERE %[3]s ON CONFLICT DO NOTHING`, t.name, day, t.stays), jobs); err != nil {
				return err
			}
		}
		return nil
	}
	exec := func(sql string, args ...any) error {
		_, err := p.pool.Exec(ctx, sql, args...)
		return err
	}
	bounds := make(map[string]string)
	for _, t := range tables {
		var lo, hi, bound string
		if err := p.pool.QueryRow(ctx, `SELECT first_run_id($1::date::timestamp AT TIME ZONE 'UTC')::text, first_run_id(($1::date + 1)::timestamp AT TIME ZONE 'UTC')::text,
			pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = ($2::text)::regclass`, day, t.name+"_"+day).Scan(&lo, &hi, &bound); err != nil {
			return err
		}
		bounds[t.name] = bound
		// The CHECK avoids a scan of all rows when the table is attached. Postgres uses the existing indexes as those
		// of the partitioned table.
		if err := exec(fmt.Sprintf(`DROP TABLE IF EXISTS %[1]s_%[2]s_new; CREATE TABLE %[1]s_%[2]s_new (LIKE %[1]s_%[2]s INCLUDING ALL,
			CHECK (%[3]s IS NOT NULL AND %[3]s >= '%[4]s'::uuid AND %[3]s < '%[5]s'::uuid))`, t.name, day, t.key, lo, hi)); err != nil {
			return err
		}
	}
	if err := copyAll(exec); err != nil {
		return err
	}
	return p.locked(ctx, func(exec func(string, ...any) error) error {
		for _, t := range tables {
			if err := exec(fmt.Sprintf(`LOCK TABLE %s_%s IN EXCLUSIVE MODE`, t.name, day)); err != nil {
				return err
			}
		}
		if err := copyAll(exec); err != nil {
			return err
		}
		for _, t := range tables {
			if err := exec(fmt.Sprintf(`ALTER TABLE %[1]s DETACH PARTITION %[1]s_%[2]s; DROP TABLE %[1]s_%[2]s; ALTER TABLE %[1]s_%[2]s_new RENAME TO %[1]s_%[2]s;
				ALTER TABLE %[1]s ATTACH PARTITION %[1]s_%[2]s %[3]s; COMMENT ON TABLE %[1]s_%[2]s IS '%[4]s'`, t.name, day, bounds[t.name], Kept)); err != nil {
				return err
			}
		}
		return nil
	})
}

// expire deletes the runs of a job that are past its retention, with their attempts and logs. The newest run of the
// schedule stays, because an edit plans from its fire time on. Without it, an edit could plan that fire time again, if
// a new jitter moved its due instant into the future.
func (p *pass) expire(ctx context.Context, j job) error {
	end := p.now.Add(-j.keeps)
	for range batchesMax {
		rows, err := p.pool.Query(ctx, `SELECT id FROM runs_history WHERE job_id = $1 AND id < first_run_id($2) AND finished_at < $2
			AND id IS DISTINCT FROM (SELECT id FROM runs_history WHERE job_id = $1 AND cause IN ('schedule', 'misfire') AND due_at <= $4 ORDER BY id DESC LIMIT 1)
			ORDER BY id LIMIT $3`, j.id, end, batchRuns, p.now)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[domain.RunID])
		if err != nil || len(ids) == 0 {
			return err
		}
		err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
			for _, t := range []struct{ name, key string }{{"run_logs", "run_id"}, {"late_results", "run_id"}, {"run_attempts", "run_id"}, {"runs_history", "id"}} {
				// The bounds exclude the other days' partitions.
				if _, err := tx.Exec(ctx, fmt.Sprintf(`DELETE FROM %[1]s WHERE %[2]s = ANY ($1::uuid[]) AND %[2]s BETWEEN $2 AND $3`, t.name, t.key),
					ids, ids[0], ids[len(ids)-1]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(ids) < batchRuns {
			return err
		}
	}
	return nil
}
