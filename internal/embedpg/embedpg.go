package embedpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	superuser = "belfry" // the cluster's only role at first, and its owner
	database  = "belfry"
	port      = "5432" // only part of the socket's name: Postgres does not listen on TCP

	pollInterval     = 10 * time.Millisecond
	stillStarting    = 10 * time.Second // how often a long recovery is logged
	immediateTimeout = 5 * time.Second  // from SIGQUIT to SIGKILL, as Postgres itself grants its children
)

// Config holds the location of the cluster and its settings.
type Config struct {
	// DataDir contains the cluster and all related files. It is created with mode 0700 if it does not exist. Required.
	DataDir string

	// Log receives events, and Postgres's own log at level debug. Default: nothing is logged.
	Log *slog.Logger

	// Settings are additional settings as in postgresql.conf. They override this package's settings, except those that
	// keep the server private.
	Settings map[string]string

	// Ephemeral trades durability for speed, for tests: a crash of the machine
	// loses the data, and Stop deletes it.
	Ephemeral bool

	// BinDir is the directory of initdb and postgres. Default: the best installed version, otherwise a download.
	BinDir string

	noNamespaces bool // tests: behave as if the kernel refuses user namespaces
}

// InUseError means that another live process owns the data directory.
type InUseError struct {
	DataDir string
	PID     int // 0 if the owner has not written it yet
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is in use by another process", e.DataDir)
	}
	return fmt.Sprintf("data directory %s is in use by the process with id %d", e.DataDir, e.PID)
}

// Server is a running Postgres. It is safe for concurrent use.
type Server struct {
	log     *slog.Logger
	cluster *cluster
	lock    *os.File
	socket  socketDir
	process *process

	stopOnce sync.Once
	stopErr  error
}

// Start creates the cluster if there is none, starts Postgres on it, and returns when it accepts connections. This
// takes about a second the first time and less afterwards. Recovery after a crash may take longer; ctx bounds it. The
// server keeps running after ctx ends, until Stop.
//
// The error is an *InUseError if another process owns the data directory.
func Start(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.DataDir == "" {
		return nil, errors.New("the data directory for Postgres is not set")
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("find the data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}

	s := &Server{log: cfg.Log}
	if s.lock, err = lockDataDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.cleanUp(cfg.Ephemeral)
		}
	}()
	if s.cluster, err = openCluster(ctx, dir, cfg); err != nil {
		return nil, err
	}
	if s.socket, err = s.cluster.openSocketDir(); err != nil {
		return nil, err
	}
	if err := s.cluster.writeSettings(s.socket.path, cfg); err != nil {
		return nil, err
	}
	if s.process, err = startProcess(s.cluster, cfg); err != nil {
		return nil, err
	}
	if err := s.waitReady(ctx); err != nil {
		s.process.kill(syscall.SIGQUIT)
		s.process.awaitOrKill(immediateTimeout)
		return nil, err
	}
	return s, nil
}

// URL returns the URL of the database "belfry" for pgx. Its role owns the cluster.
func (s *Server) URL() string { return s.url(database) }

func (s *Server) url(database string) string {
	query := url.Values{"host": {s.socket.path}, "port": {port}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

// Done is closed when Postgres has ended, by Stop or for another reason; Err returns the reason. After an unexpected
// end, Stop must still be called.
func (s *Server) Done() <-chan struct{} { return s.process.done }

// Err returns why Postgres ended unexpectedly. It returns nil while Postgres runs and after Stop.
func (s *Server) Err() error { return s.process.unexpectedEnd() }

// Stop shuts Postgres down: open transactions are rolled back, everything is flushed, and the data directory is free
// when Stop returns. If ctx ends first, Postgres is stopped at once without flushing. It then recovers at its next
// start, and the error says so. Further calls return the same result.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.stopErr = s.stop(ctx)
		s.cleanUp(s.cluster.ephemeral)
	})
	return s.stopErr
}

func (s *Server) stop(ctx context.Context) error {
	s.process.expectEnd()
	s.process.kill(syscall.SIGINT)
	select {
	case <-s.process.done:
		return s.process.exitError()
	case <-ctx.Done():
		s.process.kill(syscall.SIGQUIT)
		s.process.awaitOrKill(immediateTimeout)
		return fmt.Errorf("stop Postgres cleanly: %w", context.Cause(ctx))
	}
}

// cleanUp releases what Start acquired. It deletes an ephemeral server's files.
func (s *Server) cleanUp(ephemeral bool) {
	if s.cluster != nil {
		s.cluster.letGo()
		s.socket.remove(s.log)
		if ephemeral {
			s.cluster.remove(s.log)
		}
	}
	// Closing the file releases the lock. The file is not removed: otherwise two processes could hold locks on two
	// files of the same name.
	if err := s.lock.Close(); err != nil {
		s.log.Warn("cannot release the lock on the data directory, it ends with the process", "err", err)
	}
}

// waitReady returns when the database accepts connections. It creates the database if an earlier start was interrupted
// before it could.
func (s *Server) waitReady(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	lastWord := time.Now()
	for {
		err := s.tryDatabase(ctx)
		if err == nil {
			return nil
		}
		if time.Since(lastWord) > stillStarting {
			lastWord = time.Now()
			s.log.Info("Postgres is still starting", "err", err)
		}
		select {
		case <-s.process.done:
			return s.process.unexpectedEnd()
		case <-ctx.Done():
			return fmt.Errorf("wait for Postgres to take connections: %w (last answer: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (s *Server) tryDatabase(ctx context.Context) error {
	err := withConn(ctx, s.url(database), func(*pgx.Conn) error { return nil })
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "3D000" { // invalid_catalog_name: no such database
		return err
	}
	return withConn(ctx, s.url("postgres"), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "CREATE DATABASE "+database)
		return err
	})
}

func withConn(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}
