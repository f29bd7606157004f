package app

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), text)
}

// A role refuses a database that a newer release has migrated, if that release says so. Otherwise it warns and works.
func TestNewerSchema(t *testing.T) {
	url := pgtest.URL(t)
	if err := store.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `INSERT INTO belfry.goose_db_version (version_id, is_applied) VALUES (99999, true)`); err != nil {
		t.Fatal(err)
	}
	db, log := config.Database{DatabaseURL: config.URL(url)}, config.Log{Level: "info", Format: "json"}
	roles := map[string]func(context.Context, *App) error{
		"scheduler": func(ctx context.Context, a *App) error {
			c := config.DefaultScheduler()
			c.Database, c.NATSURL, c.Log = db, "nats://127.0.0.1:1", log
			return a.Scheduler(ctx, c)
		},
		"dispatcher": func(ctx context.Context, a *App) error {
			c := config.DefaultDispatcher()
			c.Database, c.NATSURL, c.Log = db, "nats://127.0.0.1:1", log
			return a.Dispatcher(ctx, c)
		},
		"console": func(ctx context.Context, a *App) error {
			c := config.DefaultConsole()
			c.Database, c.NATSURL, c.HTTP, c.Log = db, "nats://127.0.0.1:1", "127.0.0.1:0", log
			return a.Console(ctx, c)
		},
		"standalone": func(ctx context.Context, a *App) error {
			c := config.DefaultStandalone()
			c.Database, c.NATSURL, c.HTTP, c.Log = db, "nats://127.0.0.1:1", "127.0.0.1:0", log
			return a.Standalone(ctx, c)
		},
	}
	start := func(role string) (log *journal, stop func(), ended chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		log, ended = &journal{}, make(chan error, 1)
		go func() { ended <- roles[role](ctx, &App{Stdout: io.Discard, Stderr: log}) }()
		return log, cancel, ended
	}
	for role := range roles {
		t.Run("warns/"+role, func(t *testing.T) {
			log, stop, ended := start(role)
			defer stop()
			for tick := time.NewTicker(10 * time.Millisecond); !log.has("a newer release has migrated the database, this process works with it"); {
				select {
				case err := <-ended:
					t.Fatal(err)
				case <-tick.C:
				}
			}
			stop()
			<-ended
		})
	}
	if _, err := conn.Exec(t.Context(), `UPDATE belfry.schema_needs SET min_binary = 99999`); err != nil {
		t.Fatal(err)
	}
	for role := range roles {
		t.Run("refuses/"+role, func(t *testing.T) {
			log, stop, ended := start(role)
			defer stop()
			err := <-ended
			if err == nil || !strings.Contains(err.Error(), "only by binaries that contain migration 99999 or later") {
				t.Errorf("ended with %v", err)
			}
			if log.has("works with it") || log.has("retrying") {
				t.Error("it warned or waited before it refused")
			}
		})
	}
	var out bytes.Buffer
	a := &App{Stdout: &out, Stderr: io.Discard}
	if err := a.MigrateUp(t.Context(), config.Migrate{Database: db}); err == nil || !strings.Contains(err.Error(), "migrate with the newest release") || out.Len() > 0 {
		t.Errorf("migrate up returned %v and printed %q", err, out.String())
	}
	if err := a.MigrateStatus(t.Context(), config.Migrate{Database: db}); err != nil || !strings.Contains(out.String(), "A newer release has migrated the database, up to 99999.") {
		t.Errorf("migrate status returned %v and printed %s", err, out.String())
	}
}
