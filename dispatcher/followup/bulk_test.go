package followup_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/bulk"
	"github.com/belfryhq/belfry/migrations"
)

// sent counts the kills that workers send.
type sent struct{ bound, ended atomic.Int64 }

func (s *sent) Killed(_ context.Context, out engine.KillResult) {
	s.bound.Add(int64(len(out.Bound)))
	s.ended.Add(int64(len(out.Result.Changes)))
}

// perform runs workers of bulk actions until the test ends or stop is called.
func (b *bench) perform(actions *bulk.Store, fleet followup.Fleet, trace func(string)) (stop func()) {
	b.t.Helper()
	performer := bulk.NewPerformer(actions, b.pg, account.New(b.pg.Pool()).Tokens)
	w, err := followup.NewWorkers(b.pg.Pool(), migrations.RiverSchema, b.pg, nil,
		&followup.Bulk{Performer: performer, Fleet: fleet, Registry: prometheus.NewRegistry()}, slog.New(slog.DiscardHandler), trace)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.background(w.Run)
}

// 5,000 runs are retried once each, although a worker dies after a batch, and its process stops later. Then all new runs are killed.
func TestBulkActionOutlivesItsWorker(t *testing.T) {
	b := newBench(t)
	const runs = 5000
	job := b.job("j")
	b.exec(`INSERT INTO users (name, password_hash, role) VALUES ('ann', 'x', 'admin')`)
	rows, at := make([][]any, runs), time.Now().Add(-time.Minute)
	for i := range rows {
		rows[i] = []any{domain.NewRunID(at), int64(job), 1, "g", "manual", "failed", "handler_error", "", "", fmt.Sprint(i), 1, at, at, at, 0, ""}
	}
	if _, err := b.pg.Pool().CopyFrom(t.Context(), pgx.Identifier{"runs_history"}, []string{"id", "job_id", "job_version", "group_name", "cause", "state",
		"reason", "message", "output", "param", "attempt", "due_at", "created_at", "finished_at", "last_line", "route"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	actions := bulk.New(b.pg.Pool(), b.queue)
	ann := account.Principal{UserID: 1, User: "ann", Role: account.Admin}
	a, err := actions.Create(t.Context(), ann, "", bulk.Retry, bulk.Filter{JobID: job})
	if err != nil {
		t.Fatal(err)
	}
	var batches atomic.Int64
	var fleet sent
	first := b.perform(actions, &fleet, func(point string) {
		if point == "bulk_batch" && batches.Add(1) == 3 {
			panic("the worker dies after a batch")
		}
	})
	done := func() (n int64, state string) {
		got, err := actions.Action(context.Background(), a.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Done, got.State
	}
	b.eventually("the action continues after the death", func() bool { return batches.Load() > 5 })
	first()
	if n, state := done(); n < 250 || state == bulk.Waiting {
		t.Errorf("%d runs are done, the action is %s", n, state)
	}
	b.perform(actions, &fleet, nil)
	b.eventually("the action is done", func() bool { _, state := done(); return state == bulk.Done })
	if n, _ := done(); n != runs {
		t.Errorf("%d runs are done", n)
	}
	if live, params := b.count(`SELECT count(*) FROM runs_live`), b.count(`SELECT count(DISTINCT param) FROM runs_live`); live != runs || params != runs {
		t.Errorf("%d new runs of %d old ones", live, params)
	}
	undo, err := actions.Create(t.Context(), ann, "", bulk.Kill, bulk.Filter{BulkID: a.ID})
	if err != nil {
		t.Fatal(err)
	}
	a = undo
	b.eventually("the new runs are killed", func() bool { _, state := done(); return state == bulk.Done })
	b.eventually("the ends are published", func() bool { return fleet.ended.Load() == runs })
	if left := b.count(`SELECT count(*) FROM runs_live`); left != 0 || fleet.bound.Load() != 0 {
		t.Errorf("%d new runs are left, %d kills were sent", left, fleet.bound.Load())
	}
	b.eventually("River's jobs are completed", func() bool {
		return b.count(`SELECT count(*) FROM `+migrations.RiverSchema+`.river_job WHERE queue = 'bulk' AND state = 'completed'`) == 2
	})
}
