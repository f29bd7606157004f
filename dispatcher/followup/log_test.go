package followup_test

import (
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/migrations"
)

// records keeps the lines of a log.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, string(p))
	return len(p), nil
}

func (r *records) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.lines...)
}

// While Postgres accepts no writes, all parts of River log the same warning, so that the process can limit how often it is logged.
func TestRiverLogsAnOutageAsOneFailure(t *testing.T) {
	b := newBench(t)
	var out records
	w, err := followup.NewWorkers(b.pg.Pool(), migrations.RiverSchema, b.pg, nil, nil, slog.New(slog.NewJSONHandler(&out, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.background(w.Run)
	b.insert(engine.FollowUp{RunID: domain.NewRunID(time.Now()), Retry: true, Attempt: 1}) // of no run; without it, the workers would rest
	b.eventually("the workers run", func() bool { return b.count(`SELECT count(*) FROM river.river_queue`) > 0 })
	b.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	b.count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	steps := map[string]bool{}
	b.eventually("several parts of River fail", func() bool {
		for _, line := range out.all() {
			var r struct{ Level, Msg, Step, Err, Part string }
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			if r.Part != "river" {
				continue // the meter of follow-ups
			}
			if r.Level != "WARN" || r.Err != "" && r.Msg != "River cannot work follow-ups, retrying" {
				t.Fatalf("River logged %s", line)
			}
			if r.Err != "" {
				steps[r.Step] = true
			}
		}
		return len(steps) > 1
	})
}
