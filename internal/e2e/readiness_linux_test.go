package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// fleet is a process of each role.
type fleet struct {
	c       *cluster
	members []member
	logged  []int // lines of each member's log before the fault
}

type member struct {
	*process
	url string // of /readyz
}

func newFleet(c *cluster) *fleet {
	c.t.Helper()
	f := &fleet{c: c, members: []member{{c.console, c.server}}}
	metrics := []string{"--metrics", "127.0.0.1:0"}
	for _, p := range []*process{c.role("dispatcher", nil, metrics...), c.role("scheduler", nil, metrics...), c.executor("i1", metrics...)} {
		f.members = append(f.members, member{p, p.says("metrics: ")})
	}
	f.becomesReady()
	for _, m := range f.members {
		f.logged = append(f.logged, len(m.stderr.snapshot()))
	}
	return f
}

// ask requests a page of a process.
func ask(t testing.TB, url string) (status int, body string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// becomesReady waits until every process says that it is ready, the console also for JetStream, and a run succeeds.
func (f *fleet) becomesReady() {
	f.c.t.Helper()
	for _, m := range f.members {
		f.says(m, http.StatusOK, map[bool]string{true: `"jetstream":true`, false: "ok"}[m.process == f.c.console])
	}
	id := f.c.trigger(f.c.job("ready-"+f.c.now().Format("150405.000"), handler("echo", "{}")).ID)
	if r := f.c.finishes(id, patience); r.State != domain.Succeeded {
		f.c.t.Errorf("a run ended %s/%s", r.State, r.Reason)
	}
}

// says waits until a process gives an answer.
func (f *fleet) says(m member, status int, part string) {
	f.c.t.Helper()
	var got int
	var body string
	defer func() {
		if f.c.t.Failed() {
			f.c.t.Logf("the last answer of %s: %d %s", m.name, got, body)
		}
	}()
	eventually(f.c.t, patience, m.name+" says "+part, func() bool {
		got, body = ask(f.c.t, m.url+"/readyz")
		return got == status && strings.Contains(body, part)
	})
}

// noticesJetStream waits until every process but the console says 503 and names JetStream. The console stays ready and says so.
func (f *fleet) noticesJetStream() {
	f.c.t.Helper()
	for _, m := range f.members {
		if m.process == f.c.console {
			f.says(m, http.StatusOK, `"jetstream":false`)
			continue
		}
		f.says(m, http.StatusServiceUnavailable, "jetstream")
		if status, _ := ask(f.c.t, m.url+"/healthz"); status != http.StatusOK {
			f.c.t.Errorf("%s is not alive: %d", m.name, status)
		}
		if _, text := ask(f.c.t, m.url+"/metrics"); m.name != "i1" && !strings.Contains(text, `belfry_server_up{server="jetstream"} 0`) {
			f.c.t.Errorf("belfry_server_up of %s does not say that JetStream is unavailable", m.name)
		}
	}
}

// isQuiet checks that the outage made each process log a few lines.
func (f *fleet) isQuiet() {
	f.c.t.Helper()
	for i, m := range f.members {
		lines := m.stderr.snapshot()[f.logged[i]:]
		f.c.t.Logf("%s logged %d lines", m.name, len(lines))
		if len(lines) > noiseMax {
			f.c.t.Errorf("%s logged %d lines:\n%s", m.name, len(lines), strings.Join(lines, "\n"))
		}
	}
}

// Two of three NATS servers are frozen or killed, so that JetStream has no quorum while connections to the third one work. Each role
// says so, and recovers when the servers are back.
func TestJetStreamWithoutQuorum(t *testing.T) {
	t.Parallel()
	c, servers := newReplicatedCluster(t)
	f := newFleet(c)
	for _, fault := range []struct {
		name       string
		begin, end func(i int)
	}{
		{"killed", func(i int) { servers.Nodes[i].Kill() }, servers.Launch},
		{"frozen", func(i int) { servers.Nodes[i].Signal(syscall.SIGSTOP) }, func(i int) { servers.Nodes[i].Signal(syscall.SIGCONT) }},
	} {
		t.Logf("two servers are %s", fault.name)
		fault.begin(0)
		fault.begin(1)
		f.noticesJetStream()
		// Each process names the servers that do not answer.
		down := []string{servers.Nodes[0].Addr(), servers.Nodes[1].Addr()}
		slices.Sort(down)
		f.members[1].logs(`"unreachable":"` + strings.Join(down, ", ") + `"`)
		fault.end(0)
		fault.end(1)
		f.becomesReady()
	}
	f.isQuiet()
	for _, m := range f.members {
		if strings.Contains(strings.Join(m.stderr.snapshot(), "\n"), "uses the name of this instance") {
			t.Errorf("%s takes its own heartbeat for that of another process", m.name)
		}
	}
}

// The disk of NATS is full. Each role says that JetStream is unavailable, although NATS accepts connections. When there is space again
// and NATS was restarted, all are ready.
func TestJetStreamDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT COVERED: only root can mount a small file system")
	}
	t.Parallel()
	c := &cluster{t: t, dir: t.TempDir(), dbURL: pgtest.Database(t, store.Migrate)}
	c.prepareNATS()
	if err := os.Mkdir(c.store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", c.store, "tmpfs", 0, "size=32m"); err != nil {
		t.Skipf("NOT COVERED: the kernel does not mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(c.store, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c.startNATS()
	c.begin()
	f := newFleet(c)

	full := filepath.Join(c.store, "full")
	file, err := os.Create(full)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(bytes.Repeat([]byte{1}, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	f.noticesJetStream()
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	file.Close()
	c.nats.kill() // a stream whose write failed accepts no messages until NATS is restarted
	c.startNATS()
	f.becomesReady()
	f.isQuiet()
}

// The disk of Postgres is full. Postgres still writes to the present file of its log, but its tables cannot grow. Schedulers, dispatchers and consoles say
// that it is unavailable, until there is space again.
func TestPostgresDiskFull(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pg")
	if why := rig.SmallDisk(t, dir, "400m"); why != "" {
		t.Skip("NOT COVERED: " + why)
	}
	server := startPostgres(t, dir, nil)
	if err := store.Migrate(t.Context(), server.URL()); err != nil {
		t.Fatal(err)
	}
	f := newFleet(newClusterOn(t, server.URL()))
	empty, err := rig.Fill(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.members {
		if m.name == "i1" {
			f.says(m, http.StatusOK, "ok")
			continue
		}
		f.says(m, http.StatusServiceUnavailable, "unavailable: postgres")
		m.logs("is its disk full?")
	}
	empty()
	f.becomesReady()
	f.isQuiet()
}

// Postgres answers and accepts no writes, as a standby does. Schedulers, dispatchers and consoles say so, and executors stay ready.
func TestPostgresReadOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	f := newFleet(c)
	name := queryOne[string](t, c.db, `SELECT quote_ident(current_database())`)
	admin, err := pgx.Connect(t.Context(), c.dbURL) // keeps its setting, and is not ended
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	readOnly := func(value string) {
		t.Helper()
		for _, sql := range []string{
			`ALTER DATABASE ` + name + ` SET default_transaction_read_only = ` + value,
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
		} {
			if _, err := admin.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	readOnly("on")
	for _, m := range f.members {
		if m.name == "i1" {
			f.says(m, http.StatusOK, "ok")
			continue
		}
		f.says(m, http.StatusServiceUnavailable, "unavailable: postgres")
	}
	readOnly("off")
	f.becomesReady()
	f.isQuiet()
}
