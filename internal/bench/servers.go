package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/migrations"
)

// servers are the Postgres and NATS that the baseline and the engine share, and a directory for their files.
type servers struct {
	config  config.Bench
	display *display
	stderr  io.Writer // for the parts

	dir        string
	pg         *embedpg.Server
	pgPID      int  // 0: unknown
	statements bool // Postgres records the cost of statements
	db         *pgxpool.Pool
	nats       *child
	natsURL    string
	password   string
}

// start starts the servers, and creates the schemas, the group and the streams. After an error, stop is required too.
func (s *servers) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp(s.config.Dir, "belfry-bench-"); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	if err := s.startPostgres(ctx); err != nil {
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
	if err := s.prepareDatabase(ctx); err != nil {
		return err
	}
	s.password = rand.Text()
	s.nats, err = startPart(ctx, Order{Part: partNATS, Dir: filepath.Join(s.dir, "nats"), Password: s.password, Profile: s.config.Profile}, s.stderr)
	if err != nil {
		return err
	}
	answer, err := s.takeNATS(ctx)
	if err != nil {
		return err
	}
	s.natsURL = answer.URL
	// Otherwise the first part would create the streams, and the others would wait for it.
	nc, js, err := connectNATS(Order{Part: "set-up", NATS: s.natsURL, Password: s.password})
	if err != nil {
		return err
	}
	defer nc.Close()
	return natsinfra.Ensure(ctx, js, 1)
}

// startPostgres starts Postgres. If profiles are asked for, it loads pg_stat_statements where that is installed.
func (s *servers) startPostgres(ctx context.Context) (err error) {
	cfg := embedpg.Config{DataDir: filepath.Join(s.dir, "postgres"), Log: logger(s.stderr), Settings: map[string]string{
		"track_commit_timestamp": "on",
		// These values fit a server that runs only Postgres. With the defaults, Postgres would read evicted pages again and
		// write a checkpoint every half minute, and the measurement would include both.
		"shared_buffers": "1GB",
		"max_wal_size":   "4GB",
	}}
	if s.config.Profile != "" {
		cfg.Settings["shared_preload_libraries"] = "pg_stat_statements"
		cfg.Settings["pg_stat_statements.track_planning"] = "on"
		if s.pg, err = embedpg.Start(ctx, cfg); err == nil || ctx.Err() != nil {
			s.statements = err == nil
			return err
		}
		s.display.say("Postgres does not start with pg_stat_statements; the profile will lack the cost of statements: %v", err)
		delete(cfg.Settings, "shared_preload_libraries")
		delete(cfg.Settings, "pg_stat_statements.track_planning")
	}
	s.pg, err = embedpg.Start(ctx, cfg)
	return err
}

// prepareDatabase creates the baseline's schema and the group, and finds the process id of Postgres.
func (s *servers) prepareDatabase(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, baselineSchema); err != nil {
		return err
	}
	if err := s.createGroup(ctx, group); err != nil {
		return err
	}
	if s.statements {
		if _, err := s.db.Exec(ctx, `CREATE EXTENSION pg_stat_statements SCHEMA public`); err != nil {
			return fmt.Errorf("create the extension pg_stat_statements: %w", err)
		}
	}
	var backend int
	if err := s.db.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return err
	}
	if st, err := readStat(backend); err == nil {
		s.pgPID = st.parent
	}
	return nil
}

// createGroup creates a group without limits.
func (s *servers) createGroup(ctx context.Context, name string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO groups (name, description, token_sha256, limits) VALUES ($1, 'A measurement.', sha256(gen_random_uuid()::text::bytea),
		'{"max_jobs": 1000000000, "max_fires_per_minute": 1000000000, "max_live_runs": 1000000000}')`, name)
	return err
}

// takeNATS returns the URL and the counters of the NATS server.
func (s *servers) takeNATS(ctx context.Context) (natsAnswer, error) {
	var out natsAnswer
	data, err := s.nats.ask(ctx, "take")
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}

// vacuum vacuums the tables and writes a checkpoint, so that each measurement starts from the same state.
func (s *servers) vacuum(ctx context.Context) error {
	for _, sql := range []string{
		`VACUUM (ANALYZE) runs_live, job_due, block_slots, runs_waiting, route_state, jobs, baseline.live`, `CHECKPOINT`,
	} {
		if _, err := s.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the database for a measurement: %w", err)
		}
	}
	return nil
}

// startPart starts a part that uses the database, and returns when it is ready.
func (s *servers) startPart(ctx context.Context, o Order) (*child, error) {
	o.Database, o.Profile = s.pg.URL(), s.config.Profile
	return startPart(ctx, o, s.stderr)
}

// systemURL returns the URL of NATS with the name and password of the system user.
func (s *servers) systemURL() string {
	const scheme = "nats://"
	return scheme + systemUser + ":" + s.password + "@" + s.natsURL[len(scheme):]
}

// stop stops the servers and removes their files.
func (s *servers) stop() error {
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
