package attention_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/attention"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type fixture struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *attention.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &fixture{t, s.Pool(), attention.New(s.Pool())}
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) items(only []string, alive ...string) attention.List {
	f.t.Helper()
	l, err := f.store.Items(f.t.Context(), only, func(group string) bool {
		for _, g := range alive {
			if g == group {
				return true
			}
		}
		return false
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// The list is bounded, and its cost depends neither on the number of jobs nor on that of failing ones.
func TestItemsAreBounded(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a'), ('b', 'b')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at)
		SELECT i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, i, true, 'none', '{}', 1, now(), now() FROM generate_series(1, 30000) i`)
	f.exec(`INSERT INTO job_failures (job_id, failing, streak, version, hour, hour_failed, failing_since, failed_at, run, past_failed, reason, message)
		SELECT i, i % 100 < 2, 1, 1, 0, 0, now() - i * interval '1 s', now(), gen_random_uuid(), '', CASE WHEN i % 2 = 0 THEN 'no_executor' ELSE 'timeout' END, ''
		  FROM generate_series(1, 30000) i`)
	f.exec(`VACUUM ANALYZE`)
	read := func() (rows int64) {
		t.Helper()
		f.exec(`SELECT pg_stat_force_next_flush()`)
		if err := f.pool.QueryRow(t.Context(), `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables
			WHERE relname IN ('jobs', 'job_health', 'job_failures', 'runs_live') OR relname LIKE 'runs_history%'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for _, c := range []struct {
		only, alive []string
		items       int
		first       string
		truncated   bool
	}{
		{nil, []string{"a", "b"}, attention.MaxItems, "job_failing:1", true},
		{nil, []string{"b"}, 1 + attention.MaxItems, "group_without_executors:a", true}, // 300 jobs of a are in its item
		{[]string{"a"}, nil, 1, "group_without_executors:a", false},
		{[]string{}, nil, 0, "", false},
	} {
		before := read()
		l := f.items(c.only, c.alive...)
		if len(l.Items) != c.items || c.items > 0 && l.Items[0].ID() != c.first || l.Truncated != c.truncated {
			t.Errorf("only %q: %d items, truncated %t", c.only, len(l.Items), l.Truncated)
		}
		if n := read() - before; n > 6000 { // 600 failing jobs, with their jobs and texts, by three queries
			t.Errorf("only %q: %d rows were read", c.only, n)
		}
	}
	f.exec(`UPDATE job_failures SET failing = true, failing_since = now()`)
	before := read()
	if l := f.items(nil, "a", "b"); len(l.Items) != attention.MaxItems || !l.Truncated {
		t.Errorf("if all jobs fail: %d items, truncated %t", len(l.Items), l.Truncated)
	}
	if n := read() - before; n > 100_000 {
		t.Errorf("if all jobs fail: %d rows were read", n)
	}
}

// The acknowledgement of the absence of executors ends when an instance is seen.
func TestAbsencesEnd(t *testing.T) {
	f := newFixture(t)
	f.exec(`INSERT INTO groups (name, token_sha256) VALUES ('a', 'a')`)
	f.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, spec, version, created_at, updated_at) VALUES (1, 'a', 'x', true, 'none', '{}', 1, now(), now())`)
	item := f.items(nil).Items[0]
	if err := f.store.Acknowledge(t.Context(), &item, "me", "n", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if a := f.items(nil).Items[0].Ack; a == nil || a.By != "me" || !a.Until.IsZero() {
		t.Errorf("the acknowledgement is %+v", a)
	}
	if l := f.items(nil, "a"); len(l.Items) != 0 {
		t.Errorf("with an instance: %+v", l.Items)
	}
	if err := f.store.InstancesSeen(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if a := f.items(nil).Items[0].Ack; a != nil {
		t.Errorf("the acknowledgement stays: %+v", a)
	}
}
