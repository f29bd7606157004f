package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// meter measures what the parts and the servers use.
type meter struct{ servers *servers }

// reading holds the resource use of all parts up to an instant.
type reading struct {
	at       time.Time
	parts    map[string]usage // by kind
	wal      string           // pg_lsn
	database int64            // bytes
	commits  int64            // transactions in all databases, also those that were rolled back
	traffic  int64            // bytes through NATS
	machine  time.Duration    // CPU time of all processes of the machine, 0 if unknown
}

// observation holds the readings before and after something ran.
type observation struct{ from, to reading }

// observe runs do, and profiles the parts meanwhile if profiles are asked for.
func (m *meter) observe(ctx context.Context, parts []*child, do func() error) (o observation, err error) {
	if o.from, err = m.read(ctx, parts); err != nil {
		return o, err
	}
	if err := m.profiled(ctx, parts, do); err != nil {
		return o, err
	}
	o.to, err = m.read(ctx, parts)
	return o, err
}

func (m *meter) read(ctx context.Context, parts []*child) (reading, error) {
	r := reading{at: time.Now(), parts: make(map[string]usage), machine: machineBusy()}
	if err := m.servers.db.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text, pg_database_size(current_database()),
		(SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database)`).Scan(&r.wal, &r.database, &r.commits); err != nil {
		return r, fmt.Errorf("read Postgres's counters: %w", err)
	}
	n, err := m.servers.takeNATS(ctx)
	if err != nil {
		return r, err
	}
	r.traffic = n.Traffic
	if !canMeter() || m.servers.pgPID == 0 {
		return r, nil
	}
	if r.parts[partPostgres], err = usageOfTree(m.servers.pgPID); err != nil {
		return r, err
	}
	for _, c := range append([]*child{m.servers.nats}, parts...) {
		u, err := usageOf(c.cmd.Process.Pid)
		if err != nil {
			return r, err
		}
		sum := r.parts[c.name]
		r.parts[c.name] = usage{cpu: sum.cpu + u.cpu, memory: sum.memory + u.memory}
	}
	return r, nil
}

// executorParts are the parts that belong to no server.
var executorParts = []string{partExecutor, partResponder, partStub}

// addCost adds the use between the two readings, in all and per run.
func (m *meter) addCost(ctx context.Context, f Figures, o observation, runs float64) error {
	from, to := o.from, o.to
	var wal float64
	if err := m.servers.db.QueryRow(ctx, `SELECT pg_wal_lsn_diff($2::pg_lsn, $1::pg_lsn)::float8`, from.wal, to.wal).Scan(&wal); err != nil {
		return err
	}
	var sum, server, memory float64
	span := to.at.Sub(from.at).Seconds()
	for name, u := range to.parts {
		us := float64(u.cpu-from.parts[name].cpu) / float64(time.Microsecond)
		sum += us
		if !slices.Contains(executorParts, name) {
			server += us
		}
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
	f["transactions_per_s"] = float64(to.commits-from.commits) / span
	if runs == 0 {
		return nil
	}
	if len(to.parts) > 0 {
		f["cpu_us_per_run"] = sum / runs
		f["server_cpu_us_per_run"] = server / runs
	}
	f["wal_bytes_per_run"] = wal / runs
	f["database_bytes_per_run"] = float64(to.database-from.database) / runs
	f["nats_bytes_per_run"] = float64(to.traffic-from.traffic) / runs
	return nil
}

// addSizes adds the sizes of tables and of their indexes, as figures whose names end in suffix.
func (m *meter) addSizes(ctx context.Context, f Figures, schema string, tables []string, suffix string) error {
	for _, name := range tables {
		var table, index float64
		if err := m.servers.db.QueryRow(ctx, `SELECT pg_table_size($1::regclass)::float8, pg_indexes_size($1::regclass)::float8`,
			schema+"."+name).Scan(&table, &index); err != nil {
			return fmt.Errorf("read the size of %s: %w", name, err)
		}
		f["table_bytes."+name+suffix] = table
		f["index_bytes."+name+suffix] = index
	}
	return nil
}

// profiled profiles the parts while do runs, if profiles are asked for.
func (m *meter) profiled(ctx context.Context, parts []*child, do func() error) error {
	if m.servers.config.Profile == "" {
		return do()
	}
	all := append([]*child{m.servers.nats}, parts...)
	for _, c := range all {
		if _, err := c.ask(ctx, "profile"); err != nil {
			return err
		}
	}
	if m.servers.statements {
		if _, err := m.servers.db.Exec(ctx, `SELECT public.pg_stat_statements_reset()`); err != nil {
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
	if !m.servers.statements {
		return nil
	}
	return m.writeStatements(ctx)
}
