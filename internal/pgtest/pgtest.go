// Package pgtest gives each database test its own Postgres database, at low cost.
//
// A test binary that uses it calls Main in its TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The first test that needs a database starts one ephemeral server for the whole binary (about a second), and Main stops it.
// Migrations run once, in a template. Each test gets a copy of it in a few tens of milliseconds, and the copy is dropped at the
// test's end. Tests may run in parallel, and so may test binaries, each with its own server. The server ends with a test binary
// that is killed, and a later run removes its files.
//
// BELFRY_TEST_DATABASE_URL is the URL of a server to use instead. Its role must be allowed to create databases. The names of
// the tests' databases begin with "belfry_test_".
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// patience bounds each step; a healthy machine takes seconds at most.
const patience = 5 * time.Minute

// shared is the server of this test binary. Tests have no common parent that could pass it to them, so it is the only
// variable of the package.
var shared server

// Main runs the tests, stops the server and exits. m is a *testing.M or a wrapper of one.
func Main(m interface{ Run() int }) {
	shared.allow()
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Migrate migrates the database at url to the schema that a test needs.
type Migrate = func(ctx context.Context, url string) error

// Database returns the URL of a new database on which migrate has run. migrate runs once in a test binary for all tests
// that pass the same function, so it must depend only on its arguments: two closures of one function literal count as
// the same function. The database is dropped when the test ends, with all remaining connections.
func Database(t testing.TB, migrate Migrate) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	template, err := shared.template(ctx, migrate)
	if err != nil {
		t.Fatalf("make a template database: %v", err)
	}
	return clone(ctx, t, template)
}

// URL returns the URL of a new, empty database, which is dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return clone(ctx, t, "template0")
}

// IgnoreServer makes goleak ignore the goroutines of the shared server.
func IgnoreServer() []goleak.Option {
	const process = "github.com/belfryhq/belfry/internal/embedpg.(*process)."
	return []goleak.Option{
		goleak.IgnoreAnyFunction(process + "supervise"),
		goleak.IgnoreAnyFunction(process + "copyLog"),
	}
}

func clone(ctx context.Context, t testing.TB, template string) string {
	t.Helper()
	name := newName()
	if err := shared.create(ctx, name, template); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := shared.drop(ctx, name); err != nil {
			t.Errorf("drop a database: %v", err)
		}
	})
	return shared.url(name)
}

func newName() string { return "belfry_test_" + strings.ToLower(rand.Text()[:12]) }

// server is the Postgres of one test binary, started when it is first needed.
type server struct {
	mu        sync.Mutex
	allowed   bool                          // guarded by mu: Main was called and will stop the server
	base      *url.URL                      // guarded by mu until set; then constant
	stop      func(context.Context) error   // guarded by mu; nil if there is nothing to stop
	templates map[uintptr]*templateDatabase // guarded by mu; by migrate's code
}

type templateDatabase struct {
	once sync.Once
	name string
	err  error
}

func (s *server) allow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = true
}

// start returns the URL of the server's maintenance database.
func (s *server) start(ctx context.Context) (*url.URL, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base != nil {
		return s.base, nil
	}
	if !s.allowed {
		return nil, errors.New("this package's tests need func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	address := os.Getenv("BELFRY_TEST_DATABASE_URL")
	if address == "" {
		started, stop, err := startEphemeral(ctx, "")
		if err != nil {
			return nil, err
		}
		address, s.stop = started, stop
	}
	base, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("BELFRY_TEST_DATABASE_URL is no URL") // the URL may contain a password
	}
	s.base = base
	return base, nil
}

// template returns the name of the database on which migrate has run.
func (s *server) template(ctx context.Context, migrate Migrate) (string, error) {
	code := reflect.ValueOf(migrate).Pointer()
	s.mu.Lock()
	if s.templates == nil {
		s.templates = make(map[uintptr]*templateDatabase)
	}
	template := s.templates[code]
	if template == nil {
		template = &templateDatabase{name: newName()}
		s.templates[code] = template
	}
	s.mu.Unlock()
	template.once.Do(func() { template.err = s.makeTemplate(ctx, template.name, migrate) })
	return template.name, template.err
}

func (s *server) makeTemplate(ctx context.Context, name string, migrate Migrate) error {
	if err := s.create(ctx, name, "template0"); err != nil {
		return err
	}
	if err := migrate(ctx, s.url(name)); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// A database with connections cannot be copied. A connection that migrate has closed may take a moment to end, so
	// all connections are ended here.
	return s.exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+name+"'")
}

func (s *server) create(ctx context.Context, name, template string) error {
	return s.withConn(ctx, func(conn *pgx.Conn) error {
		// With fsync off, copying files is faster than logging their content. Before version 15, there is no choice.
		strategy := " STRATEGY FILE_COPY"
		if strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14.") {
			strategy = ""
		}
		_, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+strategy)
		return err
	})
}

func (s *server) drop(ctx context.Context, name string) error {
	return s.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// url may only be called after start.
func (s *server) url(database string) string {
	u := *s.base
	u.Path = "/" + database
	return u.String()
}

func (s *server) exec(ctx context.Context, statements ...string) error {
	return s.withConn(ctx, func(conn *pgx.Conn) error {
		for _, statement := range statements {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// withConn connects to the maintenance database. A connection for each call costs a few milliseconds and leaves nothing
// open that would be visible to a test.
func (s *server) withConn(ctx context.Context, do func(*pgx.Conn) error) error {
	base, err := s.start(ctx)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, base.String())
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

// close releases the databases of the tests. The package's own server is deleted with its databases; another server is
// left unchanged.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.mu.Lock()
	stop, templates := s.stop, s.templates
	s.mu.Unlock()
	if stop != nil {
		return stop(ctx)
	}
	var errs []error
	for _, template := range templates {
		errs = append(errs, s.drop(ctx, template.name))
	}
	return errors.Join(errs...)
}
