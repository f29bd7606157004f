package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// child is the environment variable that makes this binary a test run that prints its server's URL and waits to
// be killed, or, with the value "exit", ends in order.
const child = "BELFRY_PGTEST_CHILD"

func TestMain(m *testing.M) { Main(m) }

// TestChild is the child's part of the tests below. It does nothing otherwise.
func TestChild(t *testing.T) {
	mode := os.Getenv(child)
	if mode == "" {
		return
	}
	fmt.Println(Database(t, migrate))
	if mode != "exit" {
		select {} // until it is killed
	}
}

func migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE TABLE bell (name text PRIMARY KEY); INSERT INTO bell VALUES ('tenor')")
	return errors.Join(err, conn.Close(ctx))
}

func bells(t *testing.T, url string) int {
	t.Helper()
	conn := connect(t, url)
	var count int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM bell").Scan(&count); err != nil {
		t.Fatal(err)
	}
	return count
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may have closed it already
	return conn
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	for range 4 {
		t.Run("parallel", func(t *testing.T) {
			t.Parallel()
			url := Database(t, migrate)
			if _, err := connect(t, url).Exec(t.Context(), "INSERT INTO bell VALUES ('treble')"); err != nil {
				t.Fatal(err)
			}
			if got := bells(t, url); got != 2 {
				t.Errorf("%d bells, want 2", got)
			}
		})
	}
}

func TestMigratesOnce(t *testing.T) {
	var calls atomic.Int32
	counting := func(ctx context.Context, url string) error {
		calls.Add(1)
		return migrate(ctx, url)
	}
	if first, second := Database(t, counting), Database(t, counting); first == second {
		t.Errorf("both have %s", first)
	}
	if got := calls.Load(); got != 1 {
		t.Errorf("migrated %d times", got)
	}
}

func TestOtherMigrationsOtherTemplate(t *testing.T) {
	if got := bells(t, Database(t, migrate)); got != 1 {
		t.Errorf("%d bells, want 1", got)
	}
	nothing := func(context.Context, string) error { return nil }
	if tables := tables(t, Database(t, nothing)); tables != 0 {
		t.Errorf("%d tables, want none", tables)
	}
	if tables := tables(t, URL(t)); tables != 0 {
		t.Errorf("%d tables, want none", tables)
	}
}

func tables(t *testing.T, url string) int {
	t.Helper()
	var count int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&count); err != nil {
		t.Fatal(err)
	}
	return count
}

// A migration may leave connections behind, for instance those of a pool that
// is still closing.
func TestTemplateWithOpenConnections(t *testing.T) {
	var left *pgx.Conn
	careless := func(ctx context.Context, url string) (err error) {
		if left, err = pgx.Connect(ctx, url); err != nil {
			return err
		}
		return migrate(ctx, url)
	}
	if got := bells(t, Database(t, careless)); got != 1 {
		t.Errorf("%d bells, want 1", got)
	}
	_ = left.Close(t.Context()) // the server has closed it already
}

func TestDropsWithOpenConnections(t *testing.T) {
	var dropped string
	t.Run("a test", func(t *testing.T) {
		dropped = Database(t, migrate)
		if _, err := pgx.Connect(t.Context(), dropped); err != nil { // left open
			t.Fatal(err)
		}
	})
	if conn, err := pgx.Connect(t.Context(), dropped); err == nil {
		_ = conn.Close(t.Context())
		t.Errorf("%s is still there", dropped)
	}
}

func TestNothingOutlivesAKilledRun(t *testing.T) {
	cmd, address := runChild(t, "wait")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // returns an error after a kill
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			break
		}
		_ = conn.Close(t.Context())
		if time.Now().After(deadline) {
			t.Fatal("the server outlived its test run")
		}
	}
	dir := dataDir(t, address)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("the run left no litter to remove: %v", err)
	}
	removeLitter(filepath.Dir(dir), time.Now()) // too young
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a young directory was taken for litter: %v", err)
	}
	removeLitter(filepath.Dir(dir), time.Now().Add(2*litterAge))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("litter was not removed: %v", err)
	}
}

func TestNothingOutlivesAnOrderlyRun(t *testing.T) {
	cmd, address := runChild(t, "exit")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	if _, err := os.Stat(dataDir(t, address)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory is left: %v", err)
	}
}

// TestAnotherServer starts a test run that uses the server of this one.
func TestAnotherServer(t *testing.T) {
	mine := URL(t)
	cmd, address := runChild(t, "exit", "BELFRY_TEST_DATABASE_URL="+mine)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	if got, want := host(t, address), host(t, mine); got != want {
		t.Errorf("the run used %s, want %s", got, want)
	}
	var left int
	err := connect(t, mine).QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name(t, address)).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("its database is left (%d, %v)", left, err)
	}
}

func TestWithoutMainItSaysSo(t *testing.T) {
	var s server
	if _, err := s.start(t.Context()); err == nil {
		t.Error("a server was started that no process stops")
	}
}

func TestServersGoroutinesCanBeIgnored(t *testing.T) {
	URL(t)
	if err := goleak.Find(IgnoreServer()...); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(); err == nil {
		t.Error("there is nothing to ignore")
	}
}

// runChild starts this binary's TestChild and returns the URL that it prints.
func runChild(t *testing.T, mode string, env ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(append(os.Environ(), child+"="+mode), env...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // does nothing if Wait has returned
	reader := bufio.NewReader(stdout)
	var address string
	if _, err := fmt.Fscanln(reader, &address); err != nil {
		t.Fatalf("the child said %q: %v", address, err)
	}
	return cmd, address
}

func host(t *testing.T, address string) string { return parse(t, address).Query().Get("host") }

func name(t *testing.T, address string) string { return parse(t, address).Path[1:] }

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// dataDir derives a server's data directory from its socket's.
func dataDir(t *testing.T, address string) string {
	t.Helper()
	return filepath.Dir(filepath.Dir(host(t, address)))
}

// BenchmarkDatabase measures how long a test takes to create and drop its database.
func BenchmarkDatabase(b *testing.B) {
	ctx := context.Background()
	template, err := shared.template(ctx, migrate)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		name := newName()
		if err := errors.Join(shared.create(ctx, name, template), shared.drop(ctx, name)); err != nil {
			b.Fatal(err)
		}
	}
}
