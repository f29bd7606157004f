package store_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// A newer release has migrated the database. Whether this binary may use it depends on what that release has recorded. This
// binary never migrates it.
func TestNewerSchema(t *testing.T) {
	url := pgtest.URL(t)
	read := func() store.Schema {
		t.Helper()
		s, err := store.ReadSchema(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := read(); s.Missing == "" || s.Own == 0 || s.Version != 0 || s.MinBinary != 0 || s.Newer() || s.Err() != nil {
		t.Errorf("an empty database: %+v", s)
	}
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	own := read()
	if own.Missing != "" || own.Version != own.Own || own.MinBinary <= 0 || own.MinBinary > own.Own || own.Newer() || own.Err() != nil {
		t.Errorf("after the migration: %+v", own)
	}

	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO belfry.goose_db_version (version_id, is_applied) VALUES ($1, true)`, own.Own+2)
	for _, tt := range []struct {
		needs  int64
		usable bool
	}{{own.MinBinary, true}, {own.Own, true}, {own.Own + 1, false}, {own.Own + 2, false}} {
		exec(`UPDATE belfry.schema_needs SET min_binary = $1`, tt.needs)
		s := read()
		if !s.Newer() || s.Version != own.Own+2 || s.Own != own.Own || s.MinBinary != tt.needs || (s.Err() == nil) != tt.usable {
			t.Errorf("needs %d: %+v, %v", tt.needs, s, s.Err())
		}
		if err := store.Migrate(t.Context(), url); domain.CodeOf(err) != domain.Conflict || !strings.Contains(err.Error(), "newer release") {
			t.Errorf("needs %d: the migration returned %v", tt.needs, err)
		}
	}
}

// The schema has one row of needs, also after a faulty statement of a later migration.
func TestSchemaNeedsIsOneRow(t *testing.T) {
	s, _ := open(t)
	if _, err := s.Pool().Exec(t.Context(), `INSERT INTO schema_needs (min_binary) VALUES (1)`); err == nil {
		t.Error("a second row was stored")
	}
}
