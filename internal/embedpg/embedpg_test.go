//go:build unix

package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestDataOutlivesAStopAndAStart(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir})
	execute(t, server.URL(), writeRow)
	stop(t, server)
	if err := server.Err(); err != nil {
		t.Errorf("Err after Stop = %v, want nil", err)
	}
	select {
	case <-server.Done():
	default:
		t.Error("Done is open after Stop")
	}

	server = start(t, Config{DataDir: dir})
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("after a restart: %q", got)
	}
	stop(t, server)
	stop(t, server) // a second Stop returns the same result
}

func TestStandaloneSettings(t *testing.T) {
	server := start(t, Config{DataDir: t.TempDir(), Settings: map[string]string{
		"work_mem":         "7MB",
		"listen_addresses": "*", // must have no effect
	}})
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "TimeZone": "UTC", "jit": "off",
		"server_encoding": "UTF8", "lc_collate": "C", "work_mem": "7MB", "listen_addresses": "", "max_connections": "200",
	} {
		if name == "lc_collate" { // no longer a setting since version 16
			if got := query(t, server.URL(), "SELECT datcollate FROM pg_database WHERE datname = current_database()"); got != want {
				t.Errorf("collation = %q, want %q", got, want)
			}
			continue
		}
		if got := query(t, server.URL(), "SELECT current_setting('"+name+"')"); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if got := query(t, server.URL(), "SELECT count(*)::text FROM pg_file_settings WHERE error IS NOT NULL AND error !~ 'restart'"); got != "0" {
		t.Errorf("%s lines of postgresql.conf are refused", got)
	}
	stop(t, server)
}

func TestMalformedSettingIsRefused(t *testing.T) {
	for name, value := range map[string]string{"work mem": "1MB", "work_mem": "1MB\nfsync = off"} {
		server, err := Start(t.Context(), Config{DataDir: t.TempDir(), Ephemeral: true, Settings: map[string]string{name: value}})
		if err == nil {
			stop(t, server)
			t.Errorf("setting %q = %q was taken", name, value)
		}
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir})
	_, err := Start(t.Context(), Config{DataDir: dir})
	var inUse *InUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("second Start = %v, want an InUseError", err)
	}
	if inUse.PID != os.Getpid() {
		t.Errorf("it names process %d, want %d", inUse.PID, os.Getpid())
	}
	if got := query(t, server.URL(), "SELECT 'unharmed'"); got != "unharmed" {
		t.Error(got)
	}
	stop(t, server)
	stop(t, start(t, Config{DataDir: dir}))
}

func TestRecoversAfterPostgresWasKilled(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir})
	execute(t, server.URL(), writeRow)
	server.process.kill(syscall.SIGKILL)
	select {
	case <-server.Done():
	case <-time.After(patience):
		t.Fatal("Done was not closed")
	}
	if server.Err() == nil {
		t.Error("Err is nil after Postgres was killed")
	}
	if err := server.Stop(t.Context()); err == nil {
		t.Error("Stop is silent about a killed Postgres")
	}
	server = start(t, Config{DataDir: dir})
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("after recovery: %q", got)
	}
	stop(t, server)
}

func TestRecoversAfterItsOwnerWasKilled(t *testing.T) {
	dir := t.TempDir()
	owner := startChild(t, os.Args[0], dir, nil)
	execute(t, owner.url, writeRow)
	var inUse *InUseError
	if _, err := Start(t.Context(), Config{DataDir: dir}); !errors.As(err, &inUse) || inUse.PID != owner.cmd.Process.Pid {
		t.Fatalf("Start with a live owner = %v, want an InUseError for process %d", err, owner.cmd.Process.Pid)
	}
	owner.kill(t)
	server := start(t, Config{DataDir: dir}) // at once, probably while the orphan still runs
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("after its owner was killed: %q", got)
	}
	stop(t, server)
}

func TestPostgresDoesNotOutliveItsOwner(t *testing.T) {
	dir := t.TempDir()
	owner := startChild(t, os.Args[0], dir, nil)
	owner.kill(t)
	eventually(t, "the orphaned Postgres ends by itself", func() bool { return len(processesOn(t, dir)) == 0 })
}

// An orphan keeps running if its death signal was lost, or if the system has no death signals. The test starts an orphan by
// hand.
func TestStopsAnOrphan(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir})
	execute(t, server.URL(), writeRow)
	if err := server.lock.Close(); err != nil { // as if the owner had died
		t.Fatal(err)
	}
	next := start(t, Config{DataDir: dir})
	select {
	case <-server.Done():
	default:
		t.Error("the orphan still runs")
	}
	if got := query(t, next.URL(), readRow); got != "tenor" {
		t.Errorf("after an orphan: %q", got)
	}
	stop(t, next)
}

func TestStopsOrphanedBackends(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("NOT COVERED: on this system orphaned backends cannot be seen, only waited for")
	}
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir})
	// A busy backend does not check whether its postmaster still runs.
	busy := make(chan error, 1)
	go func() {
		busy <- withConn(context.Background(), server.URL(), func(conn *pgx.Conn) error {
			_, err := conn.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 100000000000)")
			return err
		})
	}()
	eventually(t, "the query runs", func() bool {
		return query(t, server.URL(), "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%generate\\_series%' AND pid <> pg_backend_pid()") == "1"
	})
	server.process.kill(syscall.SIGKILL)
	<-server.Done()
	_ = server.Stop(t.Context()) // returns an error after a kill
	next := start(t, Config{DataDir: dir})
	if err := <-busy; err == nil {
		t.Error("the endless query ended well")
	}
	stop(t, next)
}

// A Postgres in another container that shares the directory cannot be seen, but
// holds the running lock.
func TestUnseenPostgresIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir, Ephemeral: true})
	running := filepath.Join(dir, "postgres", "running.lock")
	short, cancel := context.WithTimeout(t.Context(), 20*pollInterval)
	defer cancel()
	if lock, err := waitLock(short, running); err == nil {
		closeQuietly(lock)
		t.Error("a running Postgres does not hold its lock")
	}
	server.process.kill(syscall.SIGKILL)
	<-server.Done()
	patient, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lock, err := waitLock(patient, running)
	if err != nil {
		t.Fatalf("after the end of Postgres: %v", err)
	}
	closeQuietly(lock)
	_ = server.Stop(t.Context()) // returns an error after a kill
}

func TestStalePIDFileOfALiveStranger(t *testing.T) {
	dir := t.TempDir()
	stop(t, start(t, Config{DataDir: dir}))
	// The id in the file is that of this process. Without help, Postgres would refuse to start.
	stale := fmt.Sprintf("%d\n%s\n0\n%s\n\n\n", os.Getpid(), dir, port)
	if err := os.WriteFile(filepath.Join(dir, "postgres/data/postmaster.pid"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "postgres/run", socketName+".lock"), []byte(stale), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	stop(t, start(t, Config{DataDir: dir}))
}

func TestHalfMadeClusterIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	half := filepath.Join(dir, "postgres", "data.new")
	if err := os.MkdirAll(filepath.Join(half, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop(t, start(t, Config{DataDir: dir}))
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half is still there: %v", err)
	}
}

func TestOwnerKilledInTheMidstOfInitdb(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Config{DataDir: dir})
		failed <- err
	}()
	half := filepath.Join(dir, "postgres", "data.new", "PG_VERSION")
	eventually(t, "initdb has begun", func() bool {
		_, err := os.Stat(half)
		return err == nil
	})
	cancel() // kills initdb
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("Start, cut off in initdb = %v", err)
	}
	if _, err := os.Stat(half); err != nil {
		t.Fatalf("there is no half cluster to begin with: %v", err)
	}
	stop(t, start(t, Config{DataDir: dir}))
}

func TestForeignDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "postgres", "data", "precious")
	if err := os.MkdirAll(precious, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Config{DataDir: dir}); err == nil {
		t.Fatal("it started on a directory that is no cluster")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestClusterOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	stop(t, start(t, Config{DataDir: dir}))
	if err := os.WriteFile(filepath.Join(dir, "postgres/data/PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{DataDir: dir})
	var version *VersionError
	if !errors.As(err, &version) || version.Major != 9 || len(version.Found) == 0 {
		t.Errorf("Start on a cluster of version 9 = %v, want a VersionError with what was found", err)
	}
}

func TestLongDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30), "dir with 'quotes' and spaces")
	server := start(t, Config{DataDir: dir})
	execute(t, server.URL(), writeRow)
	private := server.socket.path
	info, err := os.Stat(private)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory has mode %v", info.Mode())
	}
	server.process.kill(syscall.SIGKILL)
	<-server.Done()
	// After a crash of both, the socket's directory remains.
	if err := server.lock.Close(); err != nil {
		t.Fatal(err)
	}
	server = start(t, Config{DataDir: dir})
	if server.socket.path != private {
		t.Errorf("the socket moved from %s to %s", private, server.socket.path)
	}
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("after a restart: %q", got)
	}
	stop(t, server)
	if _, err := os.Stat(private); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's directory was left behind: %v", err)
	}
}

func TestEphemeralLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir, Ephemeral: true})
	if got := query(t, server.URL(), "SELECT current_setting('fsync')"); got != "off" {
		t.Errorf("fsync = %q", got)
	}
	stop(t, server)
	if _, err := os.Lstat(filepath.Join(dir, "postgres")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cluster was left behind: %v", err)
	}
}

func TestStopThatMayNotWait(t *testing.T) {
	dir := t.TempDir()
	server := start(t, Config{DataDir: dir})
	execute(t, server.URL(), writeRow)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	// Stop returns the context's error unless Postgres ends first.
	if err := server.Stop(impatient); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Stop without time = %v", err)
	}
	if left := processesOn(t, dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	server = start(t, Config{DataDir: dir})
	if got := query(t, server.URL(), readRow); got != "tenor" {
		t.Errorf("after a stop at once: %q", got)
	}
	stop(t, server)
}
