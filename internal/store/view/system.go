package view

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// Process is a Belfry process that is connected to Postgres.
type Process struct {
	Role, Version, Name string // the name is host/pid
	Address             string // as seen by Postgres; empty for a socket
	Connections         int
	Since               time.Time // start of its oldest connection
}

// System is the state of the engine.
type System struct {
	Now                 time.Time
	Postgres            string // its version
	Bytes               int64
	Processes           []Process
	Unfired, Waiting    int64     // late runs that no scheduler has fired, and runs that wait for an instance; 10,000 at most
	UnfiredDue, WaitDue time.Time // the oldest due instant of each; zero: none
	Audited, Counted    time.Time // how far fire times are checked, and runs counted
	SchedulerSeen       time.Time // the last presence record of any scheduler; zero: none
}

const (
	appNameBytes = 63 // Postgres cuts an application_name to this length
	appPrefix    = "belfry"
	versionBytes = 14
)

// AppName returns the name under which a process connects to Postgres, by which other processes can identify it. If the
// host name is too long, its end is kept, because pod names differ at the end.
func AppName(role, version, host string, pid int) string {
	version = strings.ReplaceAll(cmp.Or(version, "dev"), " ", "-")
	version = version[:min(len(version), versionBytes)]
	room := appNameBytes - len(fmt.Sprintf("%s %s %s /%d", appPrefix, role, version, pid))
	if cut := len(host) - room; cut > 0 {
		host = host[cut:]
	}
	return fmt.Sprintf("%s %s %s %s/%d", appPrefix, role, version, host, pid)
}

// System reads the state of the engine.
func (s *Store) System(ctx context.Context) (System, error) {
	p, err := s.q.Progress(ctx)
	if err != nil {
		return System{}, pgerr.Translate(err)
	}
	late, err := s.q.Late(ctx)
	if err != nil {
		return System{}, pgerr.Translate(err)
	}
	out := System{Now: p.Now, Postgres: p.Version, Bytes: p.SizeBytes, Audited: p.AuditedThrough, Counted: p.CountedThrough,
		SchedulerSeen: sinceEpoch(p.SchedulerSeenAt), Unfired: late.Unfired, Waiting: late.Waiting,
		UnfiredDue: sinceEpoch(late.UnfiredSince), WaitDue: sinceEpoch(late.WaitingSince)}
	out.Processes, err = s.processes(ctx)
	return out, pgerr.Translate(err)
}

// Pressure is how far the engine is behind, and how full Postgres is.
type Pressure struct {
	Unfired        int64 // runs that are over two seconds past due and not fired; 10,000 at most
	Unplanned      int64 // jobs that are over two seconds past due and not planned, because no scheduler works; 10,000 at most
	Connections    int64 // of all databases of the server
	MaxConnections int64 // that accounts other than superusers can have
	Bytes          int64 // of this database
}

// Pressure reads how far the engine is behind, and how full Postgres is. It costs little.
func (s *Store) Pressure(ctx context.Context) (Pressure, error) {
	overdue, err := s.q.Overdue(ctx)
	if err != nil {
		return Pressure{}, pgerr.Translate(err)
	}
	p := Pressure{Unfired: overdue.Runs, Unplanned: overdue.Jobs}
	// The query is here because sqlc does not know pg_stat_database. Every account may read it, unlike most of pg_stat_activity.
	err = s.pool.QueryRow(ctx, `SELECT (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database)::bigint,
  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
  - coalesce(current_setting('reserved_connections', true), '0')::bigint, pg_database_size(current_database())`).
		Scan(&p.Connections, &p.MaxConnections, &p.Bytes)
	return p, pgerr.Translate(err)
}

// Blocker is a transaction that holds a lock for which processes of Belfry wait.
type Blocker struct {
	PID         int    // of the session in Postgres
	Application string // as the session calls itself
	Sessions    int    // of Belfry that wait for it
}

// Blockers returns the transactions for which sessions of Belfry have waited for over two seconds, five at most. It reads no table of Belfry, so
// no lock stops it.
func (s *Store) Blockers(ctx context.Context) ([]Blocker, error) {
	// A session that waits for a lock may block others. Only those at the beginning of such a chain are shown. Other accounts may hide
	// everything but the name of their sessions.
	rows, err := s.pool.Query(ctx, `WITH waiting AS (
  SELECT a.pid, pg_blocking_pids(a.pid) AS blockers FROM pg_stat_activity a
   WHERE a.datname = current_database() AND a.application_name LIKE 'belfry %' AND a.wait_event_type = 'Lock'
     AND a.query_start < clock_timestamp() - interval '2 seconds' LIMIT 100)
SELECT b.pid, coalesce(b.application_name, ''), count(*)
  FROM waiting w CROSS JOIN LATERAL unnest(w.blockers) AS u (pid) JOIN pg_stat_activity b ON b.pid = u.pid
 WHERE b.pid NOT IN (SELECT v.pid FROM waiting v) GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 5`)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Blocker])
	return out, pgerr.Translate(err)
}

// Clients returns the names of the clients with most connections to the Postgres server, five at most, each with their number.
func (s *Store) Clients(ctx context.Context) ([]string, error) {
	// An account without rights sees the names of other accounts' sessions, but not what they do.
	rows, err := s.pool.Query(ctx, `SELECT count(*) || ' ' || coalesce(nullif(application_name, ''), 'without a name')
  FROM pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL GROUP BY application_name ORDER BY count(*) DESC, 1 LIMIT 5`)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return out, pgerr.Translate(err)
}

// processes lists the connected processes. The query is here because sqlc does not know pg_stat_activity.
func (s *Store) processes(ctx context.Context) ([]Process, error) {
	rows, err := s.pool.Query(ctx, `SELECT application_name, coalesce(host(client_addr), ''), count(*), min(backend_start)
  FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'belfry %'
 GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 500`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Process
	for rows.Next() {
		var p Process
		var name string
		if err := rows.Scan(&name, &p.Address, &p.Connections, &p.Since); err != nil {
			return nil, err
		}
		words := strings.Fields(name)
		if len(words) != 4 { // a tool, or a process of an older version with a shorter name
			continue
		}
		p.Role, p.Version, p.Name = words[1], words[2], words[3]
		out = append(out, p)
	}
	return out, rows.Err()
}

func sinceEpoch(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t
}
