//go:build unix

package e2e

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/store"
)

// pair is a primary Postgres and a standby that follows it by streaming replication, without synchronous commits.
type pair struct {
	t                testing.TB
	primary, standby *embedpg.Server
	data             string // the primary's data directory
	url              string // names both servers; a client connects to the one that accepts writes
}

// newPair starts a migrated primary, and a standby that is a copy of it.
func newPair(t *testing.T) *pair {
	t.Helper()
	dirs := [2]string{t.TempDir(), t.TempDir()}
	settings := map[string]string{"fsync": "off", "max_wal_senders": "4", "wal_level": "replica", "wal_keep_size": "512MB"}
	primary := startPostgres(t, dirs[0], settings)
	if err := store.Migrate(t.Context(), primary.URL()); err != nil {
		t.Fatal(err)
	}
	// The files of a server that has stopped need no base backup.
	if err := primary.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, to := filepath.Join(dirs[0], "postgres"), filepath.Join(dirs[1], "postgres")
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy the primary: %v: %s", err, out)
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(to, "data", "PG_VERSION"), filepath.Join(to, "data", "standby.signal")).CombinedOutput(); err != nil {
		t.Fatalf("make the copy a standby: %v: %s", err, out) // only the existence and the owner of this file count
	}
	p := &pair{t: t, data: filepath.Join(from, "data"), primary: startPostgres(t, dirs[0], settings)}
	host, port := address(t, p.primary)
	follow := map[string]string{"primary_conninfo": "host=" + host + " port=" + port + " user=belfry"}
	for name, value := range settings {
		follow[name] = value
	}
	p.standby = startPostgres(t, dirs[1], follow)
	second, _ := address(t, p.standby)
	p.url = "postgres:///belfry?" + url.Values{
		"host": {host + "," + second}, "port": {port + "," + port}, "user": {"belfry"}, "sslmode": {"disable"}, "target_session_attrs": {"read-write"},
	}.Encode()
	eventually(t, patience, "the standby follows", func() bool {
		return p.on(p.primary, `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`) == 1
	})
	return p
}

func startPostgres(t *testing.T, dir string, settings map[string]string) *embedpg.Server {
	t.Helper()
	server, err := embedpg.Start(t.Context(), embedpg.Config{DataDir: dir, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) }) // a killed primary has an error
	return server
}

// address returns the directory of a server's socket, and the port in the socket's name.
func address(t *testing.T, s *embedpg.Server) (host, port string) {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host"), u.Query().Get("port")
}

// on returns the number that a statement selects on one of the two servers.
func (p *pair) on(s *embedpg.Server, sql string) (n int) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), s.URL())
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(p.t.Context()))
	if err := conn.QueryRow(p.t.Context(), sql).Scan(&n); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// cutOff freezes the process that sends the primary's log to the standby. Later commits do not reach the standby.
func (p *pair) cutOff() (sender int) {
	p.t.Helper()
	sender = p.on(p.primary, `SELECT pid FROM pg_stat_replication`)
	if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	return sender
}

// failOver kills the primary and promotes the standby.
func (p *pair) failOver(sender int) {
	p.t.Helper()
	pid, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pid), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, process := range []int{postmaster, sender} {
		if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
			p.t.Fatal(err)
		}
	}
	<-p.primary.Done()
	if p.on(p.standby, `SELECT pg_promote(true)::int`) != 1 {
		p.t.Fatal("the standby was not promoted")
	}
}
