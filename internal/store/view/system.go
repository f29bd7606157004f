package view

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/internal/store/view/sqlcgen"
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
	out.Processes, err = processes(ctx, s.pool)
	return out, pgerr.Translate(err)
}

// processes lists the connected processes. The query is here because sqlc does not know pg_stat_activity.
func processes(ctx context.Context, db sqlcgen.DBTX) ([]Process, error) {
	rows, err := db.Query(ctx, `SELECT application_name, coalesce(host(client_addr), ''), count(*), min(backend_start)
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
