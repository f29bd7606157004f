package followup_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Workers without follow-ups rest. They begin to work at the notification of a follow-up, which other processes can have inserted; without one, if it was lost; and after their
// connection is lost.
func TestWorkersRest(t *testing.T) {
	b := newBench(t)
	pool := b.pool(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "workers" })
	w, err := followup.NewWorkers(pool, migrations.RiverSchema, b.pg, nil, nil, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.RestAfter(50 * time.Millisecond)
	b.background(w.Run)
	up := engine.FollowUp{RunID: domain.NewRunID(time.Now()), Retry: true, Attempt: 1} // of no run
	for i, begin := range []struct {
		what string
		do   func()
	}{
		{"a follow-up", func() { b.insert(up) }},
		{"two at the same time", func() { b.insert(up, up) }},
		{"one without a notification", func() {
			b.exec(`INSERT INTO ` + migrations.RiverSchema + `.river_job (args, kind, max_attempts, queue, state)
				SELECT args, kind, max_attempts, queue, 'available' FROM ` + migrations.RiverSchema + `.river_job LIMIT 1`)
		}},
		{"one after a lost connection", func() {
			b.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'workers'`)
			b.insert(up)
		}},
	} {
		b.eventually("the workers rest", func() bool { return w.Resting() && w.Sessions() == i })
		begin.do()
		b.eventually("they work: "+begin.what, func() bool { return w.Sessions() == i+1 })
	}
	b.worked(5)
}

// slowStore makes each retry wait.
type slowStore struct {
	*store.Store
	begun, release chan struct{}
}

func (s *slowStore) ReplanTx(context.Context, pgx.Tx, domain.RunID, int) error {
	close(s.begun)
	<-s.release
	return nil
}

// logFunc is called with the message of each record.
type logFunc func(message string)

func (logFunc) Enabled(context.Context, slog.Level) bool { return true }

func (f logFunc) Handle(_ context.Context, r slog.Record) error { f(r.Message); return nil }

func (f logFunc) WithAttrs([]slog.Attr) slog.Handler { return f }

func (f logFunc) WithGroup(string) slog.Handler { return f }

// A long follow-up that begins when the workers are about to rest is worked to its end.
func TestWorkersStopForARest(t *testing.T) {
	b := newBench(t)
	slow := &slowStore{b.pg, make(chan struct{}), make(chan struct{})}
	release := sync.OnceFunc(func() { close(slow.release) })
	log := slog.New(logFunc(func(message string) {
		if strings.Contains(message, "about to rest") {
			release()
		}
	}))
	w, err := followup.NewWorkers(b.pg.Pool(), migrations.RiverSchema, slow, nil, nil, log, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.insert(engine.FollowUp{RunID: domain.NewRunID(time.Now()), Retry: true, Attempt: 1})
	if err := w.StopIn(t.Context(), slow.begun, 10*time.Millisecond); err != nil {
		t.Error(err)
	}
	b.worked(1)
}
