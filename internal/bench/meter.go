package bench

import (
	"context"
	"fmt"
	"time"
)

// reading is what all parts had used at an instant.
type reading struct {
	at       time.Time
	parts    map[string]usage // by kind
	wal      string           // pg_lsn
	database int64            // bytes
	traffic  int64            // bytes through NATS
	machine  time.Duration    // CPU time of all processes there are, 0 if unknown
}

func (b *Bench) read(ctx context.Context, parts []*child) (reading, error) {
	r := reading{at: time.Now(), parts: make(map[string]usage), machine: machineBusy()}
	if err := b.servers.db.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text, pg_database_size(current_database())`).Scan(&r.wal, &r.database); err != nil {
		return r, fmt.Errorf("read Postgres's counters: %w", err)
	}
	n, err := b.takeNATS(ctx)
	if err != nil {
		return r, err
	}
	r.traffic = n.Traffic
	if !canMeter() || b.servers.pgPID == 0 {
		return r, nil
	}
	if r.parts[partPostgres], err = usageOfTree(b.servers.pgPID); err != nil {
		return r, err
	}
	for _, c := range append([]*child{b.servers.nats}, parts...) {
		u, err := usageOf(c.cmd.Process.Pid)
		if err != nil {
			return r, err
		}
		sum := r.parts[c.name]
		r.parts[c.name] = usage{cpu: sum.cpu + u.cpu, memory: sum.memory + u.memory}
	}
	return r, nil
}

// cost adds what was used between two readings, per run.
func (b *Bench) cost(ctx context.Context, f Figures, from, to reading, runs float64) error {
	var wal float64
	if err := b.servers.db.QueryRow(ctx, `SELECT pg_wal_lsn_diff($2::pg_lsn, $1::pg_lsn)::float8`, from.wal, to.wal).Scan(&wal); err != nil {
		return err
	}
	var sum, memory float64
	span := to.at.Sub(from.at).Seconds()
	for name, u := range to.parts {
		us := float64(u.cpu-from.parts[name].cpu) / float64(time.Microsecond)
		sum += us
		memory += float64(u.memory)
		f["cpu_percent."+name] = us / span / 1e4
		f["memory_bytes."+name] = float64(u.memory)
		if runs > 0 {
			f["cpu_us_per_run."+name] = us / runs
		}
	}
	if len(to.parts) > 0 {
		f["cpu_percent"] = sum / span / 1e4
		if busy := to.machine - from.machine; busy > 0 {
			f["others_cpu_percent"] = max(0, float64(busy)/float64(time.Microsecond)-sum) / span / 1e4
		}
		f["memory_bytes"] = memory
	}
	f["measured_s"] = span
	f["wal_bytes"] = wal
	if runs == 0 {
		return nil
	}
	if len(to.parts) > 0 {
		f["cpu_us_per_run"] = sum / runs
	}
	f["wal_bytes_per_run"] = wal / runs
	f["database_bytes_per_run"] = float64(to.database-from.database) / runs
	f["nats_bytes_per_run"] = float64(to.traffic-from.traffic) / runs
	return nil
}

// tables adds the sizes of tables and of their indexes, under a suffix.
func (b *Bench) tables(ctx context.Context, f Figures, schema string, names []string, suffix string) error {
	for _, name := range names {
		var table, index float64
		if err := b.servers.db.QueryRow(ctx, `SELECT pg_table_size($1::regclass)::float8, pg_indexes_size($1::regclass)::float8`,
			schema+"."+name).Scan(&table, &index); err != nil {
			return fmt.Errorf("size of %s: %w", name, err)
		}
		f["table_bytes."+name+suffix] = table
		f["index_bytes."+name+suffix] = index
	}
	return nil
}

// quiet brings the database into the same state before each run.
func (b *Bench) quiet(ctx context.Context) error {
	for _, sql := range []string{
		`VACUUM (ANALYZE) runs_live, job_due, block_slots, runs_waiting, route_state, jobs, baseline.live`, `CHECKPOINT`,
	} {
		if _, err := b.servers.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("come to rest: %w", err)
		}
	}
	return nil
}

// profiled profiles the parts while do runs.
func (b *Bench) profiled(ctx context.Context, parts []*child, do func() error) error {
	if b.Config.Profile == "" {
		return do()
	}
	all := append([]*child{b.servers.nats}, parts...)
	for _, c := range all {
		if _, err := c.ask(ctx, "profile"); err != nil {
			return err
		}
	}
	if b.statements {
		if _, err := b.servers.db.Exec(ctx, `SELECT public.pg_stat_statements_reset()`); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	for _, c := range all {
		if _, err := c.ask(ctx, "unprofile"); err != nil {
			return err
		}
	}
	if !b.statements {
		return nil
	}
	return b.writeStatements(ctx)
}
