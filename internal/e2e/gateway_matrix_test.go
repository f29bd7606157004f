//go:build unix

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/xxl/xxltest"
)

// matrixVersions are the executors of the matrix, in the order of its columns.
var matrixVersions = []struct {
	name, title string
	program     func(*testing.T) xxltest.Program
}{
	{"java-2.2.0", "Java 2.2.0", func(t *testing.T) xxltest.Program { return xxltest.Java(t, "2.2.0") }},
	{"java-2.4.2", "Java 2.4.2", func(t *testing.T) xxltest.Program { return xxltest.Java(t, "2.4.2") }},
	{"java-3.3.2", "Java 3.3.2", func(t *testing.T) xxltest.Program { return xxltest.Java(t, "3.3.2") }},
	{"executor-go", "executor-go 1.2.0", xxltest.Go},
	{"pyxxl", "pyxxl 0.4.8", xxltest.Python},
}

// ability is a row of the matrix.
type ability string

// The abilities. Their methods in gateway_abilities_test.go say what is tested.
const (
	canRegister  ability = "registers"
	canFire      ability = "each fire time of a minute once"
	canParam     ability = "parameter"
	canBroadcast ability = "broadcast to two executors"
	canSucceed   ability = "success, with its message"
	canFail      ability = "failure, with its message"
	canTimeOut   ability = "timeout"
	canKill      ability = "kill"
	canKillHard  ability = "kill of a handler that goes on"
	canLog       ability = "log to its end"
	canLogLive   ability = "log while the run goes on"
	canStop      ability = "SIGTERM during a run"
	canDie       ability = "SIGKILL during a run, restart"
	canSwitch    ability = "gateway killed during a run"
	canPostgres  ability = "Postgres away for 20 s"
	canNATS      ability = "NATS away for 20 s"
	canRefuse    ability = "wrong access token"
	canCheck     ability = "checks the token of requests"
	canRepeat    ability = "callback without an answer"
	canLose      ability = "callback that is lost"
	canGiant     ability = "thousand callbacks in one body"
)

// Cells of the matrix.
const (
	works = "yes"
	fails = "no"
)

// matrix is what the versions do, in the order of matrixVersions. docs/xxl-job.md has the same table and explains it. "yes" means that the ability works as
// it does for other executors of Belfry. Other cells name what happens instead, most of them by the reason with which the run ends.
var matrix = []struct {
	ability ability
	cells   [5]string
}{
	{canRegister, [5]string{works, works, works, works, works}},
	{canFire, [5]string{works, works, works, works, works}},
	{canParam, [5]string{works, works, works, works, works}},
	{canBroadcast, [5]string{works, works, works, works, works}},
	{canSucceed, [5]string{works, works, works, works, works}},
	{canFail, [5]string{works, works, works, works, works}},
	{canTimeOut, [5]string{works, works, works, "succeeded", works}},
	{canKill, [5]string{works, works, works, "succeeded", works}},
	{canKillHard, [5]string{works, works, works, "succeeded", "killed, goes on"}},
	{canLog, [5]string{works, works, works, fails, works}},
	{canLogLive, [5]string{works, works, works, fails, works}},
	{canStop, [5]string{"lost", "lost", "lost", "lost", "lost"}},
	{canDie, [5]string{works, works, works, works, works}},
	{canSwitch, [5]string{works, works, works, works, works}},
	{canPostgres, [5]string{works, works, works, works, works}},
	{canNATS, [5]string{works, works, works, works, works}},
	{canRefuse, [5]string{"refused", "refused", "refused", "refused", "refused"}},
	{canCheck, [5]string{works, works, works, fails, fails}},
	{canRepeat, [5]string{"repeated", "repeated", "repeated", "once", "repeated"}},
	{canLose, [5]string{works, works, works, "lost", works}},
	{canGiant, [5]string{works, works, works, works, works}},
}

// The page about XXL-JOB has the table of the matrix.
func TestGatewayMatrixPage(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join(rig.Root(t), "docs", "xxl-job.md"))
	_, table, found := strings.Cut(page, "<!-- matrix -->\n")
	table, _, ended := strings.Cut(table, "<!-- /matrix -->")
	if !found || !ended {
		t.Fatal("docs/xxl-job.md has no table between <!-- matrix --> and <!-- /matrix -->")
	}
	var want strings.Builder
	want.WriteString("| |")
	for _, v := range matrixVersions {
		fmt.Fprintf(&want, " %s |", v.title)
	}
	want.WriteString("\n|---|" + strings.Repeat("---|", len(matrixVersions)) + "\n")
	for _, row := range matrix {
		fmt.Fprintf(&want, "| %s | %s |\n", row.ability, strings.Join(row.cells[:], " | "))
	}
	if table != want.String() {
		t.Errorf("the table of docs/xxl-job.md is not that of the test, which is\n%s", want.String())
	}
}

// Each cell of the matrix is true: both the abilities that work and the others. A version uses one fleet of processes.
func TestGatewayMatrix(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: the versions of executors of XXL-JOB; `.ci/long gateway` runs them, and TestGateway runs one")
	}
	for column, v := range matrixVersions {
		t.Run(v.name, func(t *testing.T) {
			f := newGatewayFleet(t, v.program(t))
			f.testTogether(t)
			f.testApart(t)
			for _, row := range matrix {
				if got := f.seen[row.ability]; got != row.cells[column] {
					t.Errorf("%s: %q, want %q", row.ability, got, row.cells[column])
				}
			}
		})
	}
}

// gatewayFleet is a cluster with two gateways, which reach Postgres and NATS through links.
type gatewayFleet struct {
	*cluster
	program        xxltest.Program
	gateways       []*gatewayProcess
	postgres, nats *rig.Proxy

	mu   sync.Mutex
	seen map[ability]string
}

// gatewayProcess is a gateway that can be started again at the same address.
type gatewayProcess struct {
	*process
	port  string
	start func() *process
}

func newGatewayFleet(t *testing.T, program xxltest.Program) *gatewayFleet {
	t.Helper()
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	f := &gatewayFleet{cluster: c, program: program, nats: c.natsLink(), seen: map[ability]string{}}
	link, throughPostgres := c.postgresLink()
	f.postgres = link
	for i := range 2 {
		g := &gatewayProcess{port: rig.FreePort(t)}
		g.start = func() *process {
			return c.role("gateway", []string{throughPostgres, c.throughNATS(f.nats)}, "--http", "127.0.0.1:"+g.port, "--spool-dir", filepath.Join(c.dir, fmt.Sprint("callbacks-", i)))
		}
		g.process = g.start()
		f.gateways = append(f.gateways, g)
	}
	return f
}

func (g *gatewayProcess) url() string { return "http://127.0.0.1:" + g.port }

// front starts a load balancer before the gateways.
func (f *gatewayFleet) front(t *testing.T, loses loss) *front {
	t.Helper()
	return newFront(t, loses, f.gateways[0].url(), f.gateways[1].url())
}

// saw records what an ability did.
func (f *gatewayFleet) saw(a ability, cell string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[a] = cell
}

// yes records that an ability works. If it does not, the cell is the result.
func (f *gatewayFleet) yes(a ability, ok bool, instead any) {
	if ok {
		f.saw(a, works)
		return
	}
	f.saw(a, fmt.Sprintf("%+v", instead))
}

// crew is a group with executors and jobs.
type crew struct {
	*gatewayFleet
	t     *testing.T // of the ability
	group string
}

// crewMember is an executor of a crew.
type crewMember struct {
	*xxltest.Executor
	port     int
	instance string
}

// crew opens a group for executors.
func (f *gatewayFleet) crew(t *testing.T, group string) *crew {
	t.Helper()
	openXXLGroup(t, f.api, group, group+".Executor")
	return &crew{f, t, group}
}

// member starts an executor of the crew that registers at an admin, and waits until it gets runs.
func (c *crew) member(admin string) *crewMember {
	c.t.Helper()
	return c.memberAt(admin, freeport.Take(c.t))
}

func (c *crew) memberAt(admin string, port int) *crewMember {
	c.t.Helper()
	m := &crewMember{port: port, instance: fmt.Sprintf("127-0-0-1-%d", port)}
	m.Executor = c.program.Start(c.t, admin, c.group+".Executor", xxlToken, port)
	eventually(c.t, patience, "the executor is listed", func() bool { return c.offered(m.instance) })
	return m
}

// offered reports whether an instance of the crew gets runs.
func (c *crew) offered(instance string) bool {
	list, err := c.api.Instances(c.t.Context(), c.group)
	for _, i := range list {
		if err == nil && i.ID == instance && !i.Draining && i.NotOffered == nil {
			return true
		}
	}
	return false
}

// job creates a job of the crew.
func (c *crew) job(name, handler, param string, edits ...func(*domain.JobSpec)) domain.Job {
	c.t.Helper()
	in := func(s *domain.JobSpec) { s.Group = c.group }
	return create(c.t, c.api, xxlJob(name, handler, param, append([]func(*domain.JobSpec){in}, edits...)...))
}

// ends creates a job, triggers it, and returns its run when it is final.
func (c *crew) ends(name, handler, param string, edits ...func(*domain.JobSpec)) domain.Run {
	c.t.Helper()
	return ends(c.t, c.api, c.job(name, handler, param, edits...).ID)
}

// begins creates a job, triggers it, and returns its run when it is running.
func (c *crew) begins(name, handler, param string, edits ...func(*domain.JobSpec)) domain.RunID {
	c.t.Helper()
	ids, err := c.api.TriggerJob(c.t.Context(), c.job(name, handler, param, edits...).ID, client.Trigger{})
	if err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, patience, "the run is running at the executor", func() bool { return c.sent(ids[0]) != "" })
	return ids[0]
}

// sent returns the state of a run's send, once the executor has taken the run, or "".
func (c *crew) sent(id domain.RunID) string {
	c.t.Helper()
	return queryOne[string](c.t, c.db, `SELECT COALESCE((SELECT state FROM gateway_sends WHERE run_id = $1 AND state NOT IN ('accepted', 'sending', 'unstarted') LIMIT 1), '')`, id)
}

// sends returns how often a run was sent.
func (c *crew) sends(id domain.RunID) int64 {
	c.t.Helper()
	return queryOne[int64](c.t, c.db, `SELECT count(*) FROM gateway_sends WHERE run_id = $1 AND NOT unstarted`, id)
}

// outcomeOf names the end of a run.
func outcomeOf(r domain.Run) string {
	if r.State == domain.Succeeded {
		return string(domain.Succeeded)
	}
	return string(r.Reason)
}
