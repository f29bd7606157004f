package runstats

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// Behind is how far the roll-up stays behind the clock if Postgres hides when transactions began: twice the maximum time of an
	// engine transaction.
	Behind = 30 * time.Second
	// margin is how far the roll-up always stays behind the clock. It covers a process of Postgres that has read the clock for a
	// new transaction but does not show its start yet, because the kernel stopped it in between. It also covers small steps
	// of the clock.
	margin = 2 * time.Second
)

// safeBound returns an instant before which no run will be settled any more, so that a roll-up up to this instant misses no run.
//
// settled_at is the start of the transaction that inserts the run. So it suffices that every transaction that began before the
// bound has committed, or will never insert a run. safeBound returns the start of the oldest transaction in progress, at most
// now - margin, except that it ignores transactions that are older than Behind and have no transaction id. They are readers, such
// as a dump: an engine transaction is given up after 15 s, and takes its id with its first change.
//
// A transaction that safeBound does not see is no danger, whatever happens meanwhile:
//   - If it commits before safeBound looks, the statement that reads the runs sees them, because its snapshot is newer.
//   - If it begins after safeBound has looked, it begins after now, which the caller read before.
//
// So every run is in one window, and in one only: windows do not overlap, and the mark's row is locked from the choice of the window to
// the commit.
//
// Postgres hides the transactions of other users, except from members of pg_read_all_stats. If such a user may write runs, or if the
// server does not track transactions (track_activities), the bound is now - Behind at most.
//
// If the clock is set back by more than margin, the runs of the repeated seconds are not counted.
func safeBound(ctx context.Context, tx pgx.Tx, now time.Time) (time.Time, error) {
	var bound time.Time
	err := tx.QueryRow(ctx, `SELECT least($1::timestamptz - $2::interval, min(CASE
       WHEN a.hidden THEN $1::timestamptz - $3::interval
       WHEN a.backend_xid IS NOT NULL OR a.began > $1::timestamptz - $3::interval THEN a.began END))::timestamptz
  FROM (SELECT s.backend_xid,
               -- Without a start, an active session is about to begin a transaction.
               coalesce(s.xact_start, CASE WHEN s.state = 'active' THEN s.query_start END) AS began,
               s.state IS NOT DISTINCT FROM 'disabled' OR NOT pg_has_role('pg_read_all_stats', 'USAGE')
               AND NOT pg_has_role(s.usesysid, 'USAGE') AND has_table_privilege(s.usesysid, 'runs_history', 'INSERT') AS hidden
          FROM pg_stat_activity s
         WHERE s.datname = current_database() AND s.usesysid IS NOT NULL AND s.pid <> pg_backend_pid()) a`,
		now, margin, Behind).Scan(&bound)
	return bound, err
}
