//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/xxl/xxltest"
)

// The group, the app name and the access token of the executors of XXL-JOB.
const (
	xxlGroup = "billing"
	xxlApp   = "Billing.Executor"
	xxlToken = "an-access-token"
)

// xxlCore is the version of xxl-job-core that the gate tests. TestGatewayMatrix tests others.
const xxlCore = "3.3.2"

// openXXL opens the group of the tests for executors on this machine.
func openXXL(t *testing.T, api *client.Client) {
	t.Helper()
	openXXLGroup(t, api, xxlGroup, xxlApp)
}

func openXXLGroup(t *testing.T, api *client.Client, group, app string) {
	t.Helper()
	if _, err := api.CreateGroup(t.Context(), group, ""); err != nil {
		t.Fatal(err)
	}
	open := client.OpenXXLJob{Token: xxlToken, AppName: app, Networks: []string{"127.0.0.0/8"}}
	if _, err := api.OpenXXLJob(t.Context(), group, open); err != nil {
		t.Fatal(err)
	}
}

// startXXL starts a Java executor that registers at a gateway, and waits until the console lists it.
func startXXL(t *testing.T, api *client.Client, program xxltest.Program, gateway string) (*xxltest.Executor, int) {
	t.Helper()
	port := freeport.Take(t)
	e := program.Start(t, gateway, xxlApp, xxlToken, port)
	eventually(t, patience, "the executor is listed", func() bool {
		list, err := api.Instances(t.Context(), xxlGroup)
		return err == nil && len(list) > 0 && list[0].NotOffered == nil
	})
	return e, port
}

// xxlJob returns a job for the executors.
func xxlJob(name, handler, param string, edit ...func(*domain.JobSpec)) domain.JobSpec {
	s := domain.DefaultJobSpec()
	s.Group, s.Name, s.Handler, s.Param, s.Schedule = xxlGroup, name, handler, param, domain.Schedule{Kind: domain.ScheduleNone}
	for _, e := range edit {
		e(&s)
	}
	return s
}

// ends triggers a job, and returns its run when it is final.
func ends(t *testing.T, api *client.Client, job domain.JobID) (r domain.Run) {
	t.Helper()
	ids, err := api.TriggerJob(t.Context(), job, client.Trigger{})
	if err != nil {
		t.Fatal(err)
	}
	return final(t, api, ids[0])
}

func final(t *testing.T, api *client.Client, id domain.RunID) (r domain.Run) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the last state of the run: %+v", r)
		}
	}()
	eventually(t, patience, "the run is final", func() bool {
		var err error
		r, err = api.Run(t.Context(), id)
		return err == nil && r.State.Final()
	})
	return r
}

func create(t *testing.T, api *client.Client, s domain.JobSpec) domain.Job {
	t.Helper()
	job, err := api.CreateJob(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// An executor of XXL-JOB runs unchanged at `belfry standalone --gateway`: it registers, runs jobs with their params exactly once, and its successes, failures,
// timeouts, kills and log lines arrive.
func TestGateway(t *testing.T) {
	t.Parallel()
	program := xxltest.Java(t, xxlCore)
	server := standalone(t, filepath.Join(t.TempDir(), "data"), []string{"BELFRY_ADMIN_PASSWORD=" + adminPassword}, "--gateway", "127.0.0.1:0")
	gateway := server.says("gateway: ")
	api, _ := logIn(t, server.says("console: "), adminPassword)
	openXXL(t, api)
	wrongToken(t, gateway)
	startXXL(t, api, program, gateway)

	everySecond := create(t, api, xxlJob("each second", "demo", "p 1", func(s *domain.JobSpec) {
		s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second)}, domain.MisfireFireAll
	}))
	r := ends(t, api, create(t, api, xxlJob("success", "demo", "the param")).ID)
	if r.State != domain.Succeeded || r.Output != "done" || r.Instance == "" || r.Attempt != 1 {
		t.Errorf("a success: %+v", r)
	}
	log := func() string {
		page, err := api.Log(t.Context(), r.ID, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, l := range page.Lines {
			fmt.Fprintln(&text, l.Text)
		}
		return text.String()
	}
	eventually(t, patience, "the log has come", func() bool {
		return strings.Contains(log(), "param the param shard 0/1") && strings.Contains(log(), "second line")
	})
	if r := ends(t, api, create(t, api, xxlJob("failure", "fail", "")).ID); r.State != domain.Failed || r.Reason != domain.ReasonHandlerError || r.Message != "no such month" {
		t.Errorf("a failure: %+v", r)
	}
	if r := ends(t, api, create(t, api, xxlJob("retried", "fail", "", func(s *domain.JobSpec) { s.Retries, s.RetryBackoff.Initial = 1, domain.Duration(time.Second) })).ID); r.State != domain.Failed || r.Attempt != 2 {
		t.Errorf("a failure with a retry: %+v", r)
	}
	if r := ends(t, api, create(t, api, xxlJob("timeout", "sleep", "600", func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Second) })).ID); r.State != domain.Failed || r.Reason != domain.ReasonTimeout {
		t.Errorf("a timeout: %+v", r)
	}
	if r := ends(t, api, create(t, api, xxlJob("no handler", "no such handler", "")).ID); r.State != domain.Failed || r.Reason != domain.ReasonHandlerNotFound {
		t.Errorf("a handler that no executor has: %+v", r)
	}
	killed(t, api)
	groovy(t, api)

	eventually(t, patience, "the job has fired ten times", func() bool { return len(runsOfJob(t, api, everySecond.ID)) >= 10 })
	if err := api.SetJobEnabled(t.Context(), everySecond.ID, false); err != nil {
		t.Fatal(err)
	}
	fired := map[string]bool{}
	for _, r := range runsOfJob(t, api, everySecond.ID) {
		r = final(t, api, r.ID)
		at := r.FireTime.String()
		if r.State != domain.Succeeded || r.Attempt != 1 || r.Output != "done" || fired[at] {
			t.Errorf("the run of %s: %+v", at, r)
		}
		fired[at] = true
	}
	server.signal(syscall.SIGTERM)
	if code := server.exit(); code != 0 {
		t.Errorf("after SIGTERM the server ended with code %d", code)
	}
}

func runsOfJob(t *testing.T, api *client.Client, job domain.JobID) []domain.Run {
	t.Helper()
	runs, err := api.Runs(t.Context(), client.RunFilter{JobID: job, Unplanned: true}, 500)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// groovy checks that executors compile and run a script in Groovy, also after an edit, and that other groups refuse such scripts.
func groovy(t *testing.T, api *client.Client) {
	t.Helper()
	code := func(answer string) *domain.Script {
		return &domain.Script{Language: domain.Groovy, Code: `import com.xxl.job.core.context.XxlJobHelper
class Answer extends com.xxl.job.core.handler.IJobHandler {
  void execute() { XxlJobHelper.handleSuccess("` + answer + ` " + XxlJobHelper.getJobParam()) }
}`}
	}
	spec := xxlJob("groovy", "", "P", func(s *domain.JobSpec) { s.Script = code("first") })
	job := create(t, api, spec)
	if r := ends(t, api, job.ID); r.State != domain.Succeeded || r.Output != "first P" {
		t.Errorf("a script in Groovy: %+v", r)
	}
	spec.Script = code("second")
	if _, err := api.ReplaceJob(t.Context(), job.ID, spec); err != nil {
		t.Fatal(err)
	}
	if r := ends(t, api, job.ID); r.State != domain.Succeeded || r.Output != "second P" {
		t.Errorf("an edited script in Groovy: %+v", r)
	}
	spec.Group = "default"
	if _, err := api.CreateJob(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "belfry group xxl-token") {
		t.Errorf("a job in a group of Belfry's executors: %v", err)
	}
}

// killed kills a run that sleeps.
func killed(t *testing.T, api *client.Client) {
	t.Helper()
	ids, err := api.TriggerJob(t.Context(), create(t, api, xxlJob("kill", "sleep", "600")).ID, client.Trigger{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the run is running", func() bool {
		r, err := api.Run(t.Context(), ids[0])
		return err == nil && r.State == domain.Running
	})
	if err := api.KillRun(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	if r := final(t, api, ids[0]); r.State != domain.Cancelled || r.Reason != domain.ReasonKilled {
		t.Errorf("a kill: %+v", r)
	}
}

// wrongToken checks that a client with another token registers nothing.
func wrongToken(t *testing.T, gateway string) {
	t.Helper()
	for _, token := range []string{"", "default_token"} {
		if answer := registers(t.Context(), gateway, token); !strings.Contains(answer, `"code":500`) {
			t.Errorf("the token %q is answered with %s", token, answer)
		}
	}
}

// gatewayRole starts a gateway of a cluster and returns its address.
func (c *cluster) gatewayRole(name string, env ...string) (*process, string) {
	c.t.Helper()
	port := rig.FreePort(c.t)
	p := c.role("gateway", env, "--http", "127.0.0.1:"+port, "--spool-dir", filepath.Join(c.dir, "callbacks-"+name))
	return p, "http://127.0.0.1:" + port
}

// A gateway answers no request before it has read which groups are open. Otherwise it would refuse executors that call during its start.
func TestGatewayStartsWithItsGroups(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	openXXL(t, c.api)
	lock := pgtest.Begin(t, c.db)
	if _, err := lock.Exec(t.Context(), `LOCK TABLE gateway_groups`); err != nil {
		t.Fatal(err)
	}
	port := rig.FreePort(t)
	p := c.starting("gateway", nil, "--http", "127.0.0.1:"+port, "--spool-dir", filepath.Join(c.dir, "callbacks"))
	eventually(t, patience, "the gateway waits for its groups", func() bool {
		return queryOne[bool](t, c.db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'belfry gateway %')`)
	})
	written, answer := make(chan struct{}), make(chan string, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(written) }})
	go func() { answer <- registers(ctx, "http://127.0.0.1:"+port, xxlToken) }()
	select {
	case <-written:
	case text := <-answer:
		t.Fatal(text)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := <-answer; !strings.Contains(text, `"code":200`) {
		t.Errorf("a registration during the start is answered with %s", text)
	}
	p.logs(`"msg":"ready"`)
}

// registers sends the registration of an executor that does not exist, and returns the answer or the error.
func registers(ctx context.Context, gateway, token string) string {
	body := `{"registryGroup": "EXECUTOR", "registryKey": "` + xxlApp + `", "registryValue": "http://127.0.0.1:1/"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/api/registry", strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("XXL-JOB-ACCESS-TOKEN", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// While a run is at an executor, its gateway is killed. Another gateway takes the executor over: the run goes on, its callback is stored once, and it is not started again. Later runs
// of the same executor go through the other gateway.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	program := xxltest.Java(t, xxlCore)
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	openXXL(t, c.api)
	first, at := c.gatewayRole("first")
	_, other := c.gatewayRole("second")
	startXXL(t, c.api, program, at+","+other)
	owner := func() string {
		return queryOne[string](t, c.db, `SELECT owner || ' ' || epoch FROM gateway_addresses`)
	}
	before := owner()
	job := create(t, c.api, xxlJob("long", "sleep", "20"))
	id := c.trigger(job.ID)
	c.reaches(id, patience, "is running", func(r domain.Run) bool { return r.State == domain.Running })
	first.kill()
	eventually(t, patience, "the other gateway has taken the executor over", func() bool { return owner() != before })
	if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 {
		t.Errorf("the run: %+v", r)
	}
	if n := queryOne[int64](t, c.db, `SELECT count(*) FROM gateway_sends WHERE run_id = $1`, id); n != 1 {
		t.Errorf("the run was sent %d times", n)
	}
	if r := c.finishes(c.trigger(create(t, c.api, xxlJob("short", "demo", "")).ID), patience); r.State != domain.Succeeded {
		t.Errorf("a later run: %+v", r)
	}
}

// An executor is killed while it has runs. They are lost after a while, and are tried again only if their job says so.
func TestGatewayExecutorKilled(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: an executor of XXL-JOB that is killed; `.ci/long gateway` runs it")
	}
	t.Parallel()
	program := xxltest.Java(t, xxlCore)
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	openXXL(t, c.api)
	_, at := c.gatewayRole("only")
	e, port := startXXL(t, c.api, program, at)
	twice := func(s *domain.JobSpec) { s.Retries = 1 }
	once := c.trigger(create(t, c.api, xxlJob("once", "sleep", "600", twice)).ID)
	again := c.trigger(create(t, c.api, xxlJob("again", "sleep", "600", twice, func(s *domain.JobSpec) { s.RetryUnknown = true })).ID)
	for _, id := range []domain.RunID{once, again} {
		c.reaches(id, patience, "is running", func(r domain.Run) bool { return r.State == domain.Running })
	}
	e.Signal(syscall.SIGKILL)
	<-e.Ended()
	program.Start(t, at, xxlApp, xxlToken, port)
	if r := c.finishes(once, patience); r.State != domain.Failed || r.Reason != domain.ReasonLost || r.Attempt != 1 {
		t.Errorf("the run: %+v", r)
	}
	r := c.reaches(again, patience, "is tried again", func(r domain.Run) bool { return r.Attempt == 2 })
	if first := r.Attempts[0]; first.Reason != domain.ReasonLost {
		t.Errorf("the first attempt of the run that may be tried again: %+v", first)
	}
}

// Postgres or NATS is away from the gateway for 20 s, while a run ends at the executor. No run is lost or started again: its result comes later.
func TestGatewayServersAway(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: Postgres and NATS away from a gateway; `.ci/long gateway` runs it")
	}
	t.Parallel()
	program := xxltest.Java(t, xxlCore)
	c := newCluster(t)
	c.scheduler()
	c.dispatcher()
	openXXL(t, c.api)
	postgres, throughPostgres := c.postgresLink()
	messages := c.natsLink()
	_, at := c.gatewayRole("only", throughPostgres, c.throughNATS(messages))
	startXXL(t, c.api, program, at)
	job := create(t, c.api, xxlJob("ten seconds", "sleep", "10", func(s *domain.JobSpec) { s.Block = domain.BlockParallel }))
	for name, link := range map[string]*rig.Proxy{"Postgres": postgres, "NATS": messages} {
		id := c.trigger(job.ID)
		c.reaches(id, patience, "is running", func(r domain.Run) bool { return r.State == domain.Running })
		link.Cut()
		every(20*time.Second, 1, func(int) {})
		link.Heal()
		if r := c.finishes(id, patience); r.State != domain.Succeeded || r.Attempt != 1 {
			t.Errorf("while %s was away: %+v", name, r)
		}
		if n := queryOne[int64](t, c.db, `SELECT count(*) FROM gateway_sends WHERE run_id = $1 AND NOT unstarted`, id); n != 1 {
			t.Errorf("while %s was away, the run was sent %d times", name, n)
		}
	}
}
