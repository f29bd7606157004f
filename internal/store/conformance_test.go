package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/storetest"
)

// The store passes the same suite as package memstore, which the simulations use.
func TestConformance(t *testing.T) {
	storetest.Test(t, func(t *testing.T) *storetest.Backend {
		s, ups := open(t)
		ownClock(t, s)
		return &storetest.Backend{
			Scheduler:  s,
			Stores:     dispatcher.Stores{Announce: s, Settle: s, Offer: s, Kill: s, Fire: s},
			RoleStores: dispatcher.RoleStores{Assign: s, Verdict: s, Reconcile: s, Upkeep: s, Glance: s},
			Jobs:       s,
			Pauses:     s,
			Replan:     s.Replan,
			PlanChild: func(ctx context.Context, parent domain.RunID, child domain.JobID, endedAt time.Time) error {
				return pgx.BeginFunc(ctx, s.Pool(), func(tx pgx.Tx) error {
					_, err := s.PlanChildTx(ctx, tx, parent, child, endedAt)
					return err
				})
			},
			Advance: func(t *testing.T, d time.Duration) {
				t.Helper()
				exec(t, s, `UPDATE belfry.test_clock SET ahead = ahead + $1::interval`, d)
				if err := s.SyncClock(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			FollowUps: func(*testing.T) []engine.FollowUp {
				ups.mu.Lock()
				defer ups.mu.Unlock()
				out := ups.ups
				ups.ups = nil
				return out
			},
			Runs:   func(t *testing.T, job domain.JobID) []storetest.Run { return viewRuns(t, s, job) },
			Missed: func(t *testing.T, job domain.JobID) []domain.Missed { return viewMissed(t, s, job) },
			OwnedSlots: func(t *testing.T) int {
				return int(query[int64](t, s, `SELECT count(*) FROM block_slots WHERE owner IS NOT NULL`))
			},
			HasLate: func(t *testing.T, run domain.RunID, attempt int) bool {
				return query[bool](t, s, `SELECT EXISTS (SELECT 1 FROM late_results WHERE run_id = $1 AND attempt = $2)`, run, attempt)
			},
		}
	})
}

// ownClock gives the database a clock that the test can move forward: on each connection of the pool, functions of the test
// replace the built-in clock functions.
func ownClock(t *testing.T, s *store.Store) {
	t.Helper()
	exec(t, s, `CREATE TABLE belfry.test_clock (ahead interval NOT NULL)`)
	exec(t, s, `INSERT INTO belfry.test_clock VALUES ('0')`)
	for _, name := range []string{"clock_timestamp", "statement_timestamp"} {
		exec(t, s, `CREATE FUNCTION belfry.`+name+`() RETURNS timestamptz LANGUAGE sql STABLE AS
			$$ SELECT pg_catalog.`+name+`() + ahead FROM belfry.test_clock $$`)
	}
	var all []*pgxpool.Conn
	for range s.Pool().Config().MaxConns {
		c, err := s.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		if _, err := c.Exec(t.Context(), `SET search_path = belfry, pg_catalog`); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range all {
		c.Release()
	}
}

func viewRuns(t *testing.T, s *store.Store, job domain.JobID) []storetest.Run {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `SELECT id, job_version, state, CASE WHEN finished_at IS NULL THEN '' ELSE reason END, cause, attempt,
		COALESCE(fire_time, 'epoch'), due_at, COALESCE(instance, ''), COALESCE(parent_run_id, '00000000-0000-0000-0000-000000000000'),
		message, COALESCE(message_notes, '') FROM runs WHERE job_id = $1 ORDER BY id`, job)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r storetest.Run, err error) {
		err = row.Scan(&r.ID, &r.Version, &r.State, &r.Reason, &r.Cause, &r.Attempt, &r.FireTime, &r.DueAt, &r.Instance, &r.Parent, &r.Message, &r.Notes)
		r.FireTime, r.DueAt = r.FireTime.UTC(), r.DueAt.UTC()
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func viewMissed(t *testing.T, s *store.Store, job domain.JobID) []domain.Missed {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `SELECT first_fire_time, last_fire_time, count, why, why_note, policy FROM missed WHERE job_id = $1 ORDER BY id`, job)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m domain.Missed, err error) {
		var first, last time.Time
		var sentence string
		var note explain.Note
		err = row.Scan(&first, &last, &m.Count, &sentence, &note, &m.Policy)
		if m.Why = note.Explanation(); m.Why.Text != sentence {
			t.Errorf("the ledger has %s and %q, which differ", note, sentence)
		}
		m.First, m.Last = domain.At(first), domain.At(last)
		return m, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
