package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"text/tabwriter"
)

var spaces = regexp.MustCompile(`\s+`)

// writeStatements writes the cost of each SQL statement since the profile began.
func (m *meter) writeStatements(ctx context.Context) error {
	f, err := os.Create(filepath.Join(m.servers.config.Profile, "statements.txt"))
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := m.servers.db.Query(ctx, `
		SELECT calls, rows, total_exec_time, total_plan_time, wal_bytes::float8, shared_blks_hit + shared_blks_read, query
		  FROM public.pg_stat_statements ORDER BY total_exec_time + total_plan_time DESC LIMIT 60`)
	if err != nil {
		return fmt.Errorf("read pg_stat_statements: %w", err)
	}
	defer rows.Close()
	t := tabwriter.NewWriter(f, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CALLS\tROWS\tEXEC ms\tPLAN ms\tms/CALL\tus/ROW\tWAL B/ROW\tBUFFERS/ROW\tSTATEMENT")
	for rows.Next() {
		var calls, n, buffers int64
		var exec, plan, wal float64
		var query string
		if err := rows.Scan(&calls, &n, &exec, &plan, &wal, &buffers, &query); err != nil {
			return err
		}
		query = spaces.ReplaceAllString(query, " ")
		per := float64(max(n, 1))
		fmt.Fprintf(t, "%d\t%d\t%.0f\t%.0f\t%.2f\t%.1f\t%.0f\t%.1f\t%.160s\n", calls, n, exec, plan, (exec+plan)/float64(calls), (exec+plan)*1000/per,
			wal/per, float64(buffers)/per, query)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return t.Flush()
}
