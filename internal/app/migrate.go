package app

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store"
)

// openStore connects to a database that another process migrates. It waits until the database is available and migrated.
func (p *process) openStore(ctx context.Context, c store.Config) (s *store.Store, err error) {
	var schema store.Schema
	err = p.patiently(ctx, func() (err error) {
		if schema, err = store.ReadSchema(ctx, c.URL); err != nil {
			return err
		}
		if err = usable(schema); err != nil {
			return err
		}
		s, err = store.Open(ctx, c)
		return err
	})
	if err == nil {
		p.warnOfNewer(ctx, schema)
	}
	return s, err
}

// usable returns a Conflict while the database lacks migrations of this binary, and another error if the database needs a newer
// binary. Waiting helps only in the first case.
func usable(s store.Schema) error {
	if s.Missing != "" && !s.Newer() {
		return domain.NewError(domain.Conflict, "the database lacks migration "+s.Missing+"; run: belfry migrate up")
	}
	return s.Err()
}

// warnOfNewer logs a warning if a newer release has migrated the database, and this binary may use it nevertheless.
func (p *process) warnOfNewer(ctx context.Context, s store.Schema) {
	if s.Newer() {
		p.log.WarnContext(ctx, "a newer release has migrated the database, this process works with it for now: update it", "version", s.Version)
	}
}

// migrate migrates the database of a process that does not leave that to another one. If a newer release has migrated the
// database, it changes nothing.
func (p *process) migrate(ctx context.Context, url string) error {
	s, err := store.ReadSchema(ctx, url)
	if err != nil {
		return err
	}
	if !s.Newer() {
		return store.Migrate(ctx, url)
	}
	if err := usable(s); err != nil {
		return err
	}
	p.warnOfNewer(ctx, s)
	return nil
}

// Migrate applies all missing migrations, or only prints which ones were applied.
func (a *App) Migrate(ctx context.Context, c config.Migrate, onlyStatus bool) error {
	if onlyStatus {
		return a.MigrateStatus(ctx, c)
	}
	return a.MigrateUp(ctx, c)
}

// MigrateUp applies all missing migrations.
func (a *App) MigrateUp(ctx context.Context, c config.Migrate) error {
	if err := store.Migrate(ctx, c.DatabaseURL.Reveal()); err != nil {
		return err
	}
	fmt.Fprintln(a.Stdout, "The database is up to date.")
	return nil
}

// MigrateStatus prints all migrations and when they were applied.
func (a *App) MigrateStatus(ctx context.Context, c config.Migrate) error {
	steps, err := store.MigrationStatus(ctx, c.DatabaseURL.Reveal())
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIGRATION\tAPPLIED")
	for _, s := range steps {
		applied := "no"
		if !s.AppliedAt.IsZero() {
			applied = domain.At(s.AppliedAt).String()
		}
		fmt.Fprintf(w, "%s\t%s\n", s.Name, applied)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	schema, err := store.ReadSchema(ctx, c.DatabaseURL.Reveal())
	if err == nil && schema.Newer() {
		fmt.Fprintf(a.Stdout, "A newer release has migrated the database, up to %d. Binaries that contain migration %d or later may use it.\n", schema.Version, schema.MinBinary)
	}
	return err
}
