//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/embedpg"
	"github.com/belfryhq/belfry/internal/store"
)

// world is the Belfry cluster under test. Each part is a process, and each link can be broken.
type world struct {
	t       testing.TB
	dir     string
	server  string // the console's address
	api     *client.Client
	token   string // a session token; its triggers have the cause manual
	key     string // an API token; its triggers have the cause api
	db      *pgxpool.Pool
	hostile string // the token of hostileGroup
	nats    *rig.NATSCluster
	socket  string // of Postgres

	members []*member

	pgMu sync.Mutex
	pg   *embedpg.Server // guarded by pgMu

	mu     sync.Mutex
	faults []checker.Fault // guarded by mu
	deaths []string        // guarded by mu; unexpected ends of processes, and other failures outside of the history
}

// member is one of Belfry's processes, with its own links.
type member struct {
	w        *world
	name     string
	role     string // scheduler, dispatcher, console, executor
	env      []string
	args     []string
	nats     [rig.Replicas]*rig.Proxy
	postgres *rig.Proxy // nil for an executor
	clock    string     // file with the error of its clock
	log      string
	notes    string // file of an executor's handlers

	busy    sync.Mutex   // held during a fault of the process
	process *rig.Process // guarded by busy; the last one started
}

const adminPassword = "a-password-for-tests-alone"

// testGroups has the executors of each group.
var testGroups = map[string][]string{"red": {"r1", "r2"}, "blue": {"b1", "b2"}}

// hostileGroup is the group whose token a hostile client has.
const hostileGroup = "mallory"

// newWorld starts all processes and waits until they are ready.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.startPostgres()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
		defer cancel()
		_ = w.pg.Stop(ctx) // its data is not needed any more
	})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	if err := store.Migrate(ctx, w.pg.URL()); err != nil {
		t.Fatal(err)
	}
	w.db = openPool(t, w.pg.URL())
	w.nats = rig.NewNATSCluster(t, w.dir)

	port := rig.FreePort(t)
	w.server = "http://127.0.0.1:" + port
	w.add("con", "console", []string{"BELFRY_ADMIN_PASSWORD=" + adminPassword, "BELFRY_HTTP=127.0.0.1:" + port})
	w.launchAll()
	rig.Eventually(t, rig.Patience, "the console answers", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	w.member("con").awaitReady(rig.Patience)
	w.api, w.token = w.logIn()
	key, err := w.api.CreateToken(t.Context(), client.NewToken{Name: "faulttest", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	w.key = key.Secret
	for _, name := range []string{"s1", "s2"} {
		w.add(name, "scheduler", nil)
	}
	for _, name := range []string{"d1", "d2"} {
		w.add(name, "dispatcher", nil)
	}
	for _, g := range []string{"red", "blue"} {
		made, err := w.api.CreateGroup(t.Context(), g, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testGroups[g] {
			w.add(name, "executor", []string{"BELFRY_GROUP=" + g, "BELFRY_TOKEN=" + made.Token})
		}
	}
	made, err := w.api.CreateGroup(t.Context(), hostileGroup, "")
	if err != nil {
		t.Fatal(err)
	}
	w.hostile = made.Token
	w.launchAll()
	for g, names := range testGroups {
		rig.Eventually(t, rig.Patience, "the executors are listed", func() bool {
			list, err := w.api.Instances(t.Context(), g)
			return err == nil && len(list) == len(names)
		})
	}
	rig.Eventually(t, rig.Patience, "the NATS cluster has all its copies", w.nats.Current)
	return w
}

// startPostgres starts Postgres on its data directory. Without fsync, commits survive a kill of Postgres, but not a crash of the
// machine.
func (w *world) startPostgres() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	pg, err := embedpg.Start(ctx, embedpg.Config{
		DataDir: filepath.Join(w.dir, "pg"), Settings: map[string]string{"fsync": "off", "full_page_writes": "off"},
	})
	if err != nil {
		w.t.Fatalf("start Postgres: %v", err)
	}
	u, err := url.Parse(pg.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	socket := filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
	if w.socket != "" && w.socket != socket {
		w.t.Fatalf("Postgres has moved from %s to %s", w.socket, socket)
	}
	w.pg, w.socket = pg, socket
}

// add adds a member, which launchAll starts.
func (w *world) add(name, role string, env []string) {
	w.t.Helper()
	m := &member{
		w: w, name: name, role: role, clock: filepath.Join(w.dir, name+".clock"), log: filepath.Join(w.dir, name+".log"),
		notes: filepath.Join(w.dir, name+".notes"),
	}
	for i, n := range w.nats.Nodes {
		m.nats[i] = rig.NewProxy(w.t, n.Addr())
	}
	through := func(i int) string { return m.nats[i].Addr() }
	m.env = []string{envClock + "=" + m.clock, "BELFRY_LOG_FORMAT=json"}
	if role == "executor" {
		m.env = append(m.env, envNotes+"="+m.notes, "BELFRY_INSTANCE="+name,
			"BELFRY_SPOOL_DIR="+filepath.Join(w.dir, "spool-"+name), "BELFRY_NATS_URL="+w.nats.ExecutorURL(through))
	} else {
		m.postgres = rig.NewProxy(w.t, w.socket)
		m.args = []string{role}
		m.env = append(m.env, "BELFRY_NATS_URL="+w.nats.SystemURL(through), "BELFRY_NATS_REPLICAS=3",
			"BELFRY_NATS_ISSUER_SEED="+w.nats.Seed, "BELFRY_NATS_SYSTEM_URL="+w.nats.AccountURL(through),
			"BELFRY_DATABASE_URL=postgres://belfry@"+m.postgres.Addr()+"/belfry?sslmode=disable")
	}
	m.env = append(m.env, env...)
	w.members = append(w.members, m)
}

func (w *world) launchAll() {
	w.t.Helper()
	for _, m := range w.members {
		m.busy.Lock()
		if m.process == nil {
			m.start()
		}
		m.busy.Unlock()
	}
}

func (w *world) member(name string) *member {
	for _, m := range w.members {
		if m.name == name {
			return m
		}
	}
	panic("there is no member " + name)
}

// start starts the process. busy is held.
func (m *member) start() {
	m.w.t.Helper()
	as := "belfry"
	if m.role == "executor" {
		as = "executor"
	}
	m.process = rig.Start(m.w.t, as, m.w.dir, m.log, m.env, m.args...)
}

// stop sends SIGTERM, and kills the process if it does not end. busy is held.
func (m *member) stop() {
	m.process.Signal(syscall.SIGTERM)
	select {
	case <-m.process.Gone():
	case <-time.After(rig.Patience):
		m.w.died(m.name + " did not end within " + rig.Patience.String() + " of SIGTERM")
		m.process.Kill()
	}
}

// alive reports a process that ended unexpectedly, and starts it again. busy is held.
func (m *member) alive() {
	select {
	case <-m.process.Gone():
		m.w.died(fmt.Sprintf("%s ended unexpectedly (%v); the end of its log: %s", m.name, m.process.State(), tailOf(m.log, 600)))
		m.start()
	default:
	}
}

func (w *world) died(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaths = append(w.deaths, what)
}

func tailOf(file string, n int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-n):])
}

// awaitReady waits until the process has logged "ready" for the first time.
func (m *member) awaitReady(bound time.Duration) bool {
	said := func() int { return strings.Count(tailOf(m.log, 1<<30), `"msg":"ready"`) }
	deadline := time.After(bound)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said() == 0 {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

// setClock shifts the process's wall clock by d.
func (m *member) setClock(d time.Duration) {
	// A rename is atomic, so the process never reads a half-written file.
	fresh := m.clock + ".new"
	if err := os.WriteFile(fresh, []byte(strconv.FormatInt(d.Milliseconds(), 10)), 0o600); err == nil {
		_ = os.Rename(fresh, m.clock)
	}
}

// heal repairs all links and clocks, resumes frozen processes, and starts processes that have ended. It is called after all lanes have
// ended.
func (w *world) heal() {
	w.t.Helper()
	for _, m := range w.members {
		m.busy.Lock()
		for _, p := range m.links() {
			p.Heal()
			p.Delay(0)
		}
		m.setClock(0)
		m.process.Signal(syscall.SIGCONT)
		m.alive()
		m.busy.Unlock()
	}
	rig.Eventually(w.t, rig.Patience, "the NATS cluster has all its copies", w.nats.Current)
}

func (m *member) links() []*rig.Proxy {
	links := append([]*rig.Proxy{}, m.nats[:]...)
	if m.postgres != nil {
		links = append(links, m.postgres)
	}
	return links
}

// openPool connects to Belfry's database directly.
func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = "belfry,river,public"
	cfg.MaxConns = 3
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// logIn returns a client of the console and the token of its session.
func (w *world) logIn() (*client.Client, string) {
	w.t.Helper()
	guest, err := client.New(w.server, "")
	if err != nil {
		w.t.Fatal(err)
	}
	defer guest.Close()
	session, err := guest.Login(w.t.Context(), "admin", adminPassword)
	if err != nil {
		w.t.Fatal(err)
	}
	user, err := client.New(w.server, session.Token)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(user.Close)
	return user, session.Token
}
