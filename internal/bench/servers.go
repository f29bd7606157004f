package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
)

// servers are what baseline and engine share: Postgres, NATS, and a directory that is removed at the end.
type servers struct {
	dir      string
	pg       *embedpg.Server
	pgPID    int
	db       *pgxpool.Pool
	nats     *child
	natsURL  string
	password string
}

func (b *Bench) startServers(ctx context.Context) (err error) {
	s := &b.servers
	if s.dir, err = os.MkdirTemp(b.Config.Dir, "belfry-bench-"); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	if err := b.startPostgres(ctx); err != nil {
		return err
	}
	if err := store.Migrate(ctx, s.pg.URL()); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(s.pg.URL())
	if err != nil {
		return err
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.RuntimeParams["search_path"] = migrations.Schema
	cfg.ConnConfig.RuntimeParams["application_name"] = "belfry bench"
	cfg.ConnConfig.RuntimeParams["timezone"] = "UTC"
	if s.db, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	if err := b.prepareDatabase(ctx); err != nil {
		return err
	}
	s.password = rand.Text()
	s.nats, err = startPart(ctx, Order{Part: partNATS, Dir: filepath.Join(s.dir, "nats"), Password: s.password, Profile: b.Config.Profile}, b.Stderr)
	if err != nil {
		return err
	}
	answer, err := b.takeNATS(ctx)
	if err != nil {
		return err
	}
	s.natsURL = answer.URL
	// Made by whoever comes first, else; here by nobody, so that no part has to wait for it.
	nc, js, err := connectNATS(Order{Part: "set-up", NATS: s.natsURL, Password: s.password})
	if err != nil {
		return err
	}
	defer nc.Close()
	return natsinfra.Ensure(ctx, js, 1)
}

// startPostgres starts Postgres; for profiles with the costs of statements, if it has the library for that.
func (b *Bench) startPostgres(ctx context.Context) (err error) {
	cfg := embedpg.Config{DataDir: filepath.Join(b.servers.dir, "postgres"), Log: b.log, Settings: map[string]string{
		"track_commit_timestamp": "on",
		// As on a server that is Postgres's own: what is measured is neither the reading of pages that were just put away, nor
		// a checkpoint every half minute.
		"shared_buffers": "1GB",
		"max_wal_size":   "4GB",
	}}
	if b.Config.Profile != "" {
		cfg.Settings["shared_preload_libraries"] = "pg_stat_statements"
		cfg.Settings["pg_stat_statements.track_planning"] = "on"
		if b.servers.pg, err = embedpg.Start(ctx, cfg); err == nil || ctx.Err() != nil {
			b.statements = err == nil
			return err
		}
		b.say("Postgres does not start with pg_stat_statements; the profile will lack the costs of statements: %v", err)
		delete(cfg.Settings, "shared_preload_libraries")
		delete(cfg.Settings, "pg_stat_statements.track_planning")
	}
	b.servers.pg, err = embedpg.Start(ctx, cfg)
	return err
}

func (b *Bench) prepareDatabase(ctx context.Context) error {
	for _, sql := range []string{
		baselineSchema,
		`INSERT INTO groups (name, description, token_sha256) VALUES ('` + group + `', 'A measurement.', sha256(gen_random_uuid()::text::bytea))`,
	} {
		if _, err := b.servers.db.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if b.statements {
		if _, err := b.servers.db.Exec(ctx, `CREATE EXTENSION pg_stat_statements SCHEMA public`); err != nil {
			return fmt.Errorf("make the extension pg_stat_statements: %w", err)
		}
	}
	var backend int
	if err := b.servers.db.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return err
	}
	if st, err := readStat(backend); err == nil {
		b.servers.pgPID = st.parent
	}
	return nil
}

func (b *Bench) takeNATS(ctx context.Context) (natsAnswer, error) {
	var out natsAnswer
	data, err := b.servers.nats.ask(ctx, "take")
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}

// stopServers removes all that was made.
func (b *Bench) stopServers() error {
	s := &b.servers
	var errs []error
	if s.nats != nil {
		errs = append(errs, s.nats.stop())
	}
	if s.db != nil {
		s.db.Close()
	}
	if s.pg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, s.pg.Stop(ctx))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
