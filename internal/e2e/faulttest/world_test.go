//go:build unix

package faulttest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/e2e/checker"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/natsinfra"
	"github.com/belfryhq/belfry/internal/store"
)

// setup says which parts a world has in addition to those that every world has.
type setup struct {
	previous *rig.Release // the release before this one, whose processes replace those of this one; nil for none
	before   bool         // the world starts with processes of that release, on its schema
	standby  bool         // a standby of Postgres
	clock    bool         // a clock of Postgres that can be set
	disks    bool         // small disks of Postgres, NATS and executors
	python   string       // the interpreter for executors in Python; "" for none
	java     string       // the class path of executors of XXL-JOB, with gateways; "" for none
}

// world is the Belfry cluster under test. Each part is a process, and each link can be broken.
type world struct {
	t       testing.TB
	setup   setup
	dir     string
	server  string // the console's address
	api     *client.Client
	token   string // a session token; its triggers have the cause manual
	key     string // an API token; its triggers have the cause api
	db      *pgxpool.Pool
	hostile string // the token of hostileGroup
	nats    *rig.NATSCluster
	pg      *postgres

	members []*member

	mu     sync.Mutex
	faults []checker.Fault // guarded by mu
	deaths []string        // guarded by mu; unexpected ends of processes, and other failures outside of the history

	sending sync.Mutex
	sends   map[int64]sent // guarded by sending; the attempts that gateways have sent, by log id
}

// member is one of Belfry's processes, with its own links.
type member struct {
	w        *world
	name     string
	role     string // scheduler, dispatcher, console, gateway, executor, foreign (an executor in Python), xxl and calm (executors of XXL-JOB)
	env      []string
	args     []string
	nats     [rig.Replicas]*rig.Proxy // nil for an executor of XXL-JOB
	postgres []*rig.Proxy             // to each server; nil for an executor
	clock    string                   // file with the error of its clock
	log      string
	notes    string // file of an executor's handlers
	instance string // the instance of an executor of XXL-JOB; the names of the others are their members' names

	busy    sync.Mutex   // held during a fault of the process
	process *rig.Process // guarded by busy; the last one started
	old     bool         // guarded by busy; the process is one of the previous release
	logged  int          // guarded by busy; bytes of its log before its start
}

// inJava reports whether the member is an executor of XXL-JOB.
func (m *member) inJava() bool { return m.role == xxl || m.role == calm }

// executes reports whether the member is an executor with its own connection to NATS.
func (m *member) executes() bool { return m.role == "executor" || m.role == foreign }

// foreign is the role of executors that do not use the SDK, and the name of their group.
const foreign = "foreign"

const adminPassword = "a-password-for-tests-alone"

// testGroups has the executors of each group.
var testGroups = map[string][]string{"red": {"r1", "r2"}, "blue": {"b1", "b2"}}

// hostileGroup is the group whose token a hostile client has.
const hostileGroup = "mallory"

// newWorld starts all processes and waits until they are ready.
func newWorld(t testing.TB, with setup) *world {
	t.Helper()
	w := &world{t: t, setup: with, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			w.keepLogs()
		}
	})
	w.pg = startPostgres(w)
	if with.disks {
		for i := range rig.Replicas {
			if why := rig.SmallDisk(t, w.natsDir(i), "192m"); why != "" {
				t.Skip("NOT COVERED: full disks: " + why)
			}
		}
	}
	w.migrate()
	w.db = openPool(t, w.pg.url())
	if with.clock {
		w.pg.readClock(time.Now().Add(-time.Hour))
	}
	w.nats = rig.NewNATSCluster(t, w.dir)
	if with.before {
		newer := []string{natsinfra.Overflow, natsinfra.Probe}
		w.nats.Streams = slices.DeleteFunc(w.nats.Streams, func(name string) bool { return slices.Contains(newer, name) })
	}

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
	all := maps.Clone(testGroups)
	if with.python != "" {
		all[foreign] = []string{"p1", "p2"}
		made, err := w.api.CreateGroup(t.Context(), foreign, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all[foreign] {
			w.add(name, foreign, []string{"BELFRY_GROUP=" + foreign, "BELFRY_TOKEN=" + made.Token, "BELFRY_CAPACITY=256"})
		}
	}
	if with.java != "" {
		w.addGateways()
	}
	w.launchAll()
	if with.java != "" {
		w.awaitXXL()
		go w.watchSends(t.Context())
	}
	for g, names := range all {
		rig.Eventually(t, rig.Patience, "the executors are listed", func() bool {
			list, err := w.api.Instances(t.Context(), g)
			return err == nil && len(list) == len(names)
		})
	}
	rig.Eventually(t, rig.Patience, "the NATS cluster has all its copies", w.nats.Current)
	return w
}

// migrate migrates the database, with the release that the world starts with.
func (w *world) migrate() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), rig.Patience)
	defer cancel()
	if !w.setup.before {
		if err := store.Migrate(ctx, w.pg.url()); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	up := exec.CommandContext(ctx, w.setup.previous.Belfry, "migrate", "up")
	up.Env = append(rig.Env(), "HOME="+w.dir, "BELFRY_DATABASE_URL="+w.pg.url())
	if out, err := up.CombinedOutput(); err != nil {
		w.t.Fatalf("migrate with the previous release: %v\n%s", err, out)
	}
}

// natsDir is the directory of a NATS server's storage.
func (w *world) natsDir(i int) string { return filepath.Join(w.dir, fmt.Sprintf("nats-n%d", i+1)) }

// add adds a member, which launchAll starts.
func (w *world) add(name, role string, env []string) {
	w.t.Helper()
	m := &member{
		w: w, name: name, role: role, clock: filepath.Join(w.dir, name+".clock"), log: filepath.Join(w.dir, name+".log"),
		notes: filepath.Join(w.dir, name+".notes"), old: w.setup.before,
	}
	for i, n := range w.nats.Nodes {
		m.nats[i] = rig.NewProxy(w.t, n.Addr())
	}
	through := func(i int) string { return m.nats[i].Addr() }
	m.env = []string{envClock + "=" + m.clock, "BELFRY_LOG_FORMAT=json"}
	if m.executes() {
		if w.setup.disks && role == "executor" {
			if why := rig.SmallDisk(w.t, m.spool(), "16m"); why != "" {
				w.t.Skip("NOT COVERED: full disks: " + why)
			}
		}
		m.env = append(m.env, envNotes+"="+m.notes, "BELFRY_INSTANCE="+name, "BELFRY_SPOOL_DIR="+m.spool(), "BELFRY_NATS_URL="+w.nats.ExecutorURL(through))
	} else {
		for _, s := range w.pg.sides {
			m.postgres = append(m.postgres, rig.NewProxy(w.t, s.socket))
		}
		m.args = []string{role}
		m.env = append(m.env, "BELFRY_NATS_URL="+w.nats.SystemURL(through), "BELFRY_NATS_REPLICAS=3",
			"BELFRY_NATS_ISSUER_SEED="+w.nats.Seed, "BELFRY_NATS_SYSTEM_URL="+w.nats.AccountURL(through),
			"BELFRY_DATABASE_URL="+w.pg.through(m.postgres))
	}
	m.env = append(m.env, env...)
	w.members = append(w.members, m)
}

// spool is the directory of an executor's results.
func (m *member) spool() string { return filepath.Join(m.w.dir, "spool-"+m.name) }

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
	if info, err := os.Stat(m.log); err == nil {
		m.logged = int(info.Size())
	}
	switch {
	case m.inJava():
		m.process = rig.StartCommand(m.w.t, exec.Command("java", m.args...), m.w.dir, m.log, nil)
	case m.role == foreign:
		root := rig.Root(m.w.t)
		script := filepath.Join(root, "internal", "e2e", "faulttest", "testdata", "foreign.py")
		m.process = rig.StartCommand(m.w.t, exec.Command(m.w.setup.python, "-u", "-B", script), m.w.dir, m.log,
			append(m.env, "PYTHONPATH="+filepath.Join(root, "docs", "examples")))
	case m.old && m.role == "executor":
		m.process = rig.StartCommand(m.w.t, exec.Command(m.w.setup.previous.Tests), m.w.dir, m.log, append(m.env, rig.EnvAs+"=executor"))
	case m.old:
		m.process = rig.StartCommand(m.w.t, exec.Command(m.w.setup.previous.Belfry, m.args...), m.w.dir, m.log, m.env)
	case m.role == "executor":
		m.process = rig.Start(m.w.t, "executor", m.w.dir, m.log, m.env)
	default:
		m.process = rig.Start(m.w.t, "belfry", m.w.dir, m.log, m.env, m.args...)
	}
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

// awaitReady waits until the server process that was started last logs that it is ready.
func (m *member) awaitReady(bound time.Duration) bool {
	deadline := time.After(bound)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if data, err := os.ReadFile(m.log); err == nil && bytes.Contains(data[min(m.logged, len(data)):], []byte(`"msg":"ready"`)) {
				return true
			}
		case <-deadline:
			return false
		}
	}
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
		if m.old {
			m.update(false)
		}
		m.busy.Unlock()
	}
	rig.Eventually(w.t, rig.Patience, "the NATS cluster has all its copies", w.nats.Current)
}

func (m *member) links() []*rig.Proxy {
	all := append(append([]*rig.Proxy{}, m.nats[:]...), m.postgres...)
	return slices.DeleteFunc(all, func(p *rig.Proxy) bool { return p == nil })
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
