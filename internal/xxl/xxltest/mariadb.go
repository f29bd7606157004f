// Package xxltest makes databases of XXL-JOB for tests: a MariaDB server, tables by version, fixtures and generated jobs. It also starts real
// executors. Only tests import it. This project wrote the table definitions; the names and types of the columns are those of XXL-JOB.
package xxltest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver
)

// patience bounds the start of a server. It exists only to end a test that hangs.
const patience = 3 * time.Minute

// MariaDB starts a server that ends with the test, and returns a function that makes a database and returns its DSN. Without Debian's
// package mariadb-server-core, the test is skipped. The server listens on a socket in a temporary directory. It needs no
// set-up, because it has no grant tables.
func MariaDB(t *testing.T) (create func(name string) (dsn string, db *sql.DB)) {
	t.Helper()
	program, err := exec.LookPath("mariadbd")
	if err != nil {
		if program = "/usr/sbin/mariadbd"; !isFile(program) {
			t.Skip("NOT COVERED: MariaDB, because mariadbd is not installed; Debian's package is mariadb-server-core")
		}
	}
	dir, err := os.MkdirTemp("", "belfry-mariadb-") // short, because the path of a socket is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, socket, logFile := filepath.Join(dir, "data"), filepath.Join(dir, "socket"), filepath.Join(dir, "log")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"--no-defaults", "--datadir=" + data, "--socket=" + socket, "--pid-file=" + filepath.Join(dir, "pid"), "--log-error=" + logFile,
		"--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	cmd := exec.Command(program, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the log says why it ended
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // MariaDB ignores it
		_ = cmd.Process.Kill()
		<-ended
	})
	root := open(t, "root@unix("+socket+")/")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for root.PingContext(ctx) != nil {
		select {
		case <-ended:
			text, _ := os.ReadFile(logFile)
			t.Fatalf("MariaDB ended:\n%s", text)
		case <-ctx.Done():
			t.Fatal("MariaDB does not start")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return func(name string) (string, *sql.DB) {
		t.Helper()
		if _, err := root.ExecContext(t.Context(), "CREATE DATABASE `"+name+"` CHARACTER SET utf8mb4"); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("mysql://root@localhost/%s?socket=%s", name, socket), open(t, "root@unix("+socket+")/"+name)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
