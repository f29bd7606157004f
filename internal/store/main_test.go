package store_test

import (
	"context"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// recorded keeps follow-ups instead of enqueuing them.
type recorded struct{ ups []domain.FollowUp }

func (r *recorded) InsertTx(_ context.Context, _ pgx.Tx, ups []domain.FollowUp) error {
	r.ups = append(r.ups, ups...)
	return nil
}

// open returns a store on a database of the test's own, with the group "g".
func open(t testing.TB) (*store.Store, *recorded) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &recorded{}
	s.UseFollowUps(r)
	if _, err := s.Pool().Exec(t.Context(), `INSERT INTO groups (name, token_sha256) VALUES ('g', 'x')`); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// spec returns a valid job of group g.
func spec(name string, edit ...func(*domain.JobSpec)) domain.JobSpec {
	sp := domain.DefaultJobSpec()
	sp.Group, sp.Name, sp.Handler = "g", name, "echo"
	sp.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	for _, e := range edit {
		e(&sp)
	}
	return sp
}
