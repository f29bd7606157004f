//go:build unix

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

const (
	adminPassword = "a-password-for-tests-alone"
	natsPassword  = rig.NATSPassword
	group         = "g"
)

// cluster is Belfry as an operator runs it: each role is a process. It has its own Postgres database and NATS server.
type cluster struct {
	t       testing.TB
	dir     string
	dbURL   string
	db      *pgxpool.Pool // for queries of the test
	api     *client.Client
	token   string // for the API
	server  string // the console's address
	join    string // the token of group
	natsEnv []string
	natsURL string // with the password of user belfry
	natsFor string // for executors
	store   string // NATS's storage
	nats    *process
	console *process

	replicas int      // of the streams; 0: 1
	env      []string // of all roles and executors, in addition
}

// newCluster starts the servers and a console, and creates the group.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterOn(t, pgtest.Database(t, store.Migrate))
}

// newClusterOn is newCluster with a migrated database of the test's own.
func newClusterOn(t *testing.T, dbURL string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), dbURL: dbURL}
	c.prepareNATS()
	c.startNATS()
	c.begin()
	return c
}

// newReplicatedCluster is a cluster with three NATS servers.
func newReplicatedCluster(t *testing.T) (*cluster, *rig.NATSCluster) {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), dbURL: pgtest.Database(t, store.Migrate), replicas: rig.Replicas}
	servers := rig.NewNATSCluster(t, c.dir)
	c.natsURL, c.natsFor = servers.SystemURL(nil), servers.ExecutorURL(nil)
	c.begin()
	eventually(t, patience, "the streams have all copies", servers.Current)
	return c, servers
}

// begin starts a console and creates the group. NATS has been started.
func (c *cluster) begin() {
	c.t.Helper()
	c.db = openPool(c.t, c.dbURL)
	c.console = c.role("console", nil, "--http", "127.0.0.1:0")
	c.server = c.console.says("console: ")
	c.logIn()
	made, err := c.api.CreateGroup(c.t.Context(), group, "")
	if err != nil {
		c.t.Fatal(err)
	}
	c.join = made.Token
}

// openPool connects to a database of Belfry.
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

func (c *cluster) prepareNATS() {
	c.t.Helper()
	public := rig.WriteIssuer(c.t, filepath.Join(c.dir, "issuer.seed"))
	conf := filepath.Join(rig.Root(c.t), "deploy", "nats", "nats.conf")
	c.store = filepath.Join(c.dir, "nats")
	port := rig.FreePort(c.t)
	c.natsURL = "nats://belfry:" + natsPassword + "@127.0.0.1:" + port
	c.natsFor = "nats://127.0.0.1:" + port
	c.natsEnv = []string{
		rig.EnvNATSConf + "=" + conf, rig.EnvNATSPort + "=" + port, "BELFRY_NATS_ISSUER=" + public, "BELFRY_NATS_PASSWORD=" + natsPassword,
		"BELFRY_NATS_SYS_PASSWORD=" + rig.SysPassword, "BELFRY_NATS_STORE=" + c.store,
	}
}

func (c *cluster) startNATS() {
	c.t.Helper()
	c.nats = launch(c.t, "nats", "nats", c.dir, c.natsEnv)
	c.nats.says("ready")
}

func (c *cluster) logIn() {
	c.t.Helper()
	c.api, c.token = logIn(c.t, c.server, adminPassword)
}

// logIn returns a client of a console and the token of its session.
func logIn(t testing.TB, server, password string) (*client.Client, string) {
	t.Helper()
	guest, err := client.New(server, "")
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	var session client.Session
	eventually(t, patience, "the user can log in", func() bool {
		// A log-in needs much CPU, and a console cancels a request that takes too long.
		session, err = guest.Login(t.Context(), "admin", password)
		if err != nil && domain.CodeOf(err) != domain.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
	user, err := client.New(server, session.Token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(user.Close)
	return user, session.Token
}

// role starts a scheduler, dispatcher or console and waits until it is ready.
// role starts a role and waits until it is ready.
func (c *cluster) role(role string, env []string, args ...string) *process {
	c.t.Helper()
	p := c.starting(role, env, args...)
	p.logs(`"msg":"ready"`)
	return p
}

// starting starts a role.
func (c *cluster) starting(role string, env []string, args ...string) *process {
	c.t.Helper()
	env = append([]string{
		"BELFRY_DATABASE_URL=" + c.dbURL, "BELFRY_NATS_URL=" + c.natsURL, "BELFRY_LOG_FORMAT=json",
		"BELFRY_NATS_SYSTEM_URL=" + strings.ReplaceAll(c.natsURL, "belfry:"+natsPassword, "sys:"+rig.SysPassword),
		"BELFRY_NATS_REPLICAS=" + strconv.Itoa(max(1, c.replicas)),
		"BELFRY_NATS_ISSUER_SEED=" + filepath.Join(c.dir, "issuer.seed"), "BELFRY_ADMIN_PASSWORD=" + adminPassword,
	}, append(slices.Clone(c.env), env...)...)
	return launch(c.t, role, "belfry", c.dir, env, append([]string{role}, args...)...)
}

func (c *cluster) scheduler(env ...string) *process  { c.t.Helper(); return c.role("scheduler", env) }
func (c *cluster) dispatcher(env ...string) *process { c.t.Helper(); return c.role("dispatcher", env) }

// executor starts an agent and waits until the console lists it.
func (c *cluster) executor(instance string, args ...string) *process {
	c.t.Helper()
	p := c.agent(instance, args...)
	eventually(c.t, patience, "the executor "+instance+" is listed", func() bool { return c.listed(instance) })
	return p
}

func (c *cluster) agent(instance string, args ...string) *process {
	c.t.Helper()
	args = append([]string{"executor", "--group", group, "--instance", instance, "--nats-url", c.natsFor, "--allow-command",
		"--spool-dir", filepath.Join(c.dir, "spool-"+instance), "--log-format", "json"}, args...)
	return launch(c.t, instance, "belfry", c.dir, append([]string{"BELFRY_TOKEN=" + c.join, "TMPDIR=" + c.dir}, c.env...), args...)
}

func (c *cluster) listed(instance string) bool {
	list, err := c.api.Instances(c.t.Context(), group)
	for _, i := range list {
		if err == nil && i.ID == instance {
			return true
		}
	}
	return false
}

// job creates a job of the group without a schedule, after edit has changed its spec.
func (c *cluster) job(name string, edit ...func(*domain.JobSpec)) domain.Job {
	c.t.Helper()
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler, spec.Schedule = group, name, "echo", domain.Schedule{Kind: domain.ScheduleNone}
	for _, e := range edit {
		e(&spec)
	}
	job, err := c.api.CreateJob(c.t.Context(), spec)
	if err != nil {
		c.t.Fatal(err)
	}
	return job
}

// handler returns an edit that sets a job's handler and param.
func handler(name, param string) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) { s.Handler, s.Param = name, param }
}

// shell returns an edit that makes a job run a line of sh.
func shell(script string) func(*domain.JobSpec) {
	return handler("command", fmt.Sprintf(`["sh", "-c", %q]`, script))
}

func retries(n int) func(*domain.JobSpec) { return func(s *domain.JobSpec) { s.Retries = n } }

func (c *cluster) trigger(job domain.JobID) domain.RunID {
	c.t.Helper()
	ids, err := c.api.TriggerJob(c.t.Context(), job, client.Trigger{})
	if err != nil || len(ids) != 1 {
		c.t.Fatalf("trigger: %v %v", ids, err)
	}
	return ids[0]
}

func (c *cluster) run(id domain.RunID) domain.Run {
	c.t.Helper()
	r, err := c.api.Run(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// reaches waits until a run fulfils ok.
func (c *cluster) reaches(id domain.RunID, bound time.Duration, what string, ok func(domain.Run) bool) domain.Run {
	c.t.Helper()
	var r domain.Run
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the last state of the run: %+v", r)
		}
	}()
	eventually(c.t, bound, "the run "+what, func() bool { r = c.run(id); return ok(r) })
	return r
}

// finishes waits for the end of a run.
func (c *cluster) finishes(id domain.RunID, bound time.Duration) domain.Run {
	c.t.Helper()
	return c.reaches(id, bound, "is final", func(r domain.Run) bool { return r.State.Final() })
}

// now reads the database's clock.
func (c *cluster) now() time.Time {
	c.t.Helper()
	return queryOne[time.Time](c.t, c.db, `SELECT clock_timestamp()`)
}

// queryOne returns the first value that sql selects.
func queryOne[T any](t testing.TB, db *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	return query[T](t, db, pgx.RowTo[T], sql, args...)[0]
}

// query returns the rows that sql selects.
func query[T any](t testing.TB, db *pgxpool.Pool, as pgx.RowToFunc[T], sql string, args ...any) []T {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, as)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// linesOf returns the words that jobs appended to a file, none if the file does not exist yet.
func linesOf(t testing.TB, path string) []string {
	t.Helper()
	return strings.Fields(read(t, path))
}
