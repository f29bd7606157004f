package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/belfryhq/belfry/internal/store/pgerr"
	"github.com/belfryhq/belfry/migrations"
)

// Schema compares the schema of a database with the migrations of this binary. Several releases use a database at the
// same time while it is updated, so a binary must know whether it may use a schema that a newer release has made. Only
// the newer release can know that: its migrations record in table schema_needs the oldest binary that may still run.
type Schema struct {
	Missing   string // the first migration of this binary that the database lacks; "" if it has all
	Own       int64  // number of the newest migration of this binary
	Version   int64  // number of the newest migration of the database
	MinBinary int64  // the oldest binary that may use the database, by its newest migration; 0 if the schema does not say
}

// Newer reports whether a newer release has migrated the database.
func (s Schema) Newer() bool { return s.Version > s.Own }

// Err returns an error if a newer release has migrated the database so that this binary must not use it.
func (s Schema) Err() error {
	if !s.Newer() || s.MinBinary <= s.Own {
		return nil
	}
	return fmt.Errorf("the database has migration %d of a newer release and may be used only by binaries that contain migration %d or later; "+
		"this binary contains migrations up to %d: use the release that migrated the database", s.Version, s.MinBinary, s.Own)
}

// ReadSchema reads the schema's state. It changes nothing, except that it creates the schema and the list of migrations
// in an empty database.
func ReadSchema(ctx context.Context, url string) (Schema, error) {
	db, err := openSQL(url)
	if err != nil {
		return Schema{}, err
	}
	defer db.Close()
	provider, err := newProvider(ctx, db)
	if err != nil {
		return Schema{}, err
	}
	return readSchema(ctx, db, provider)
}

// newProvider returns the migrator of Belfry's tables.
func newProvider(ctx context.Context, db *sql.DB) (*goose.Provider, error) {
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+migrations.Schema); err != nil {
		return nil, fmt.Errorf("create schema %s: %w", migrations.Schema, pgerr.Translate(err))
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return provider, nil
}

// migrateTries bounds how often a migrator is tried.
const migrateTries = 30

// withoutDeadlock runs a migrator, and runs it again after a deadlock. A migration takes exclusive locks on several tables, and running
// processes may use these tables in another order. Postgres then aborts one of the two transactions. Each migration is one transaction,
// so it has either happened or left nothing, and the migrator continues with the first one that is missing.
func withoutDeadlock(ctx context.Context, migrate func() error) error {
	for tries := 1; ; tries++ {
		err := migrate()
		if err == nil || tries == migrateTries || !pgerr.Deadlocked(err) {
			return err
		}
		pause := time.NewTimer(200 * time.Millisecond) // longer than most transactions
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func readSchema(ctx context.Context, db *sql.DB, provider *goose.Provider) (s Schema, err error) {
	steps, err := provider.Status(ctx)
	if err != nil {
		return s, fmt.Errorf("read the migrations' status: %w", pgerr.Translate(err))
	}
	for _, step := range steps {
		s.Own = max(s.Own, step.Source.Version)
		if step.AppliedAt.IsZero() && s.Missing == "" {
			s.Missing = step.Source.Path
		}
	}
	if s.Version, err = provider.GetDBVersion(ctx); err != nil {
		return s, fmt.Errorf("read the database's version: %w", pgerr.Translate(err))
	}
	var known sql.NullString
	if err := db.QueryRowContext(ctx, `SELECT to_regclass('schema_needs')`).Scan(&known); err != nil {
		return s, fmt.Errorf("look for the schema's needs: %w", pgerr.Translate(err))
	}
	if !known.Valid { // an older schema
		return s, nil
	}
	err = db.QueryRowContext(ctx, `SELECT min_binary FROM schema_needs`).Scan(&s.MinBinary)
	if err != nil {
		return s, fmt.Errorf("read the schema's needs: %w", pgerr.Translate(err))
	}
	return s, nil
}
