//go:build unix

package embedpg

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience bounds every wait of these tests; a healthy machine needs a second.
const patience = 5 * time.Minute

// With one of these variables set, this binary is a process that the tests can kill: the owner of a data directory, or of a
// watchdog on a process.
const (
	childDir     = "BELFRY_EMBEDPG_CHILD_DIR"
	childWatches = "BELFRY_EMBEDPG_CHILD_WATCHES"
)

func TestMain(m *testing.M) {
	if pid, err := strconv.Atoi(os.Getenv(childWatches)); err == nil {
		if _, err := startShellWatchdog(pid, syscall.SIGTERM); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {} // until it is killed
	}
	if dir := os.Getenv(childDir); dir != "" {
		if err := ownDataDir(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ownDataDir starts Postgres, prints that it is ready, and stops it on SIGTERM.
func ownDataDir(dir string) error {
	terminated, release := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server, err := Start(ctx, Config{DataDir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	fmt.Println("ready", server.process.cmd.Process.Pid, server.URL())
	<-terminated.Done()
	return server.Stop(ctx)
}

// child is another process that owns a data directory.
type child struct {
	cmd        *exec.Cmd
	postmaster int
	url        string
}

// startChild runs binary, this test's own or a copy of it, and waits until its
// Postgres takes connections.
func startChild(t *testing.T, binary, dir string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), childDir+"="+dir, "HOME="+dir)
	cmd.SysProcAttr = attr
	cmd.Stderr = &stderr
	cmd.Dir = "/"
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // does nothing if Wait has returned
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	c := &child{cmd: cmd}
	if _, scanErr := fmt.Sscanf(line, "ready %d %s", &c.postmaster, &c.url); err != nil || scanErr != nil {
		t.Fatalf("the child said %q (%v, %v); its log: %s", line, err, scanErr, stderr.String())
	}
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // returns an error after a kill
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	began := time.Now()
	server, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(began))
	t.Cleanup(func() { _ = server.Stop(context.Background()) }) // tests that check the result have called Stop already
	return server
}

func stop(t *testing.T, server *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	err := withConn(t.Context(), url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), sql)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	var got string
	err := withConn(t.Context(), url, func(conn *pgx.Conn) error {
		return conn.QueryRow(t.Context(), sql).Scan(&got)
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

const (
	writeRow = "CREATE TABLE bell (name text); INSERT INTO bell VALUES ('tenor')"
	readRow  = "SELECT string_agg(name, ',') FROM bell"
)

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// copyOfSelf copies this binary to a place where every user can run it.
func copyOfSelf(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "child")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// sharedTempDir is like t.TempDir, but other users can pass through it.
func sharedTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "embedpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// needsRoot skips the test unless it runs as root. The summary of the tests lists the skip.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT COVERED: this test needs root, to become another user")
	}
}

// processesOn lists the processes that use the cluster of a data directory.
func processesOn(t *testing.T, dir string) []int {
	t.Helper()
	found, err := processesOf(t.Context(), filepath.Join(dir, "postgres", "data"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
