//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/freeport"
)

// testTogether tests abilities at the same time, each with its own executors. None of these tests stops a server.
func (f *gatewayFleet) testTogether(t *testing.T) {
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(*crew){
			"runs": (*crew).testRuns, "kills": (*crew).testKills, "logs": (*crew).testLogs, "minute": (*crew).testMinute, "tokens": (*crew).testTokens,
			"stop": (*crew).testStop, "die": (*crew).testDie, "repeat": (*crew).testRepeat, "lose": (*crew).testLose,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(f.crew(t, name))
			})
		}
	})
}

// testApart tests what happens while gateways, Postgres or NATS are away.
func (f *gatewayFleet) testApart(t *testing.T) {
	c := f.crew(t, "outages")
	c.member(f.front(t, losesNothing).URL)
	c.testSwitch()
	c.testAway(canPostgres, f.postgres)
	c.testAway(canNATS, f.nats)
}

// testRuns tests how runs begin and end.
func (c *crew) testRuns() {
	admin := c.front(c.t, losesNothing).URL
	first, second := c.member(admin), c.member(admin)
	c.saw(canRegister, works) // member has waited for it
	r := c.ends("param", "echo", "the <param>")
	c.yes(canParam, r.State == domain.Succeeded && r.Output == "the <param> 0/1", r)
	r = c.ends("success", "demo", "")
	c.yes(canSucceed, r.State == domain.Succeeded && r.Output == "done" && r.Attempt == 1 && r.Message == "", r)
	r = c.ends("failure", "fail", "", func(s *domain.JobSpec) { s.Retries, s.RetryBackoff.Initial = 1, domain.Duration(time.Second) })
	c.yes(canFail, r.State == domain.Failed && r.Reason == domain.ReasonHandlerError && r.Attempt == 2 && strings.Contains(r.Message, "no such month"), r)
	r = c.ends("timeout", "sleep", "600", func(s *domain.JobSpec) { s.Timeout = domain.Duration(2 * time.Second) })
	c.yes(canTimeOut, r.State == domain.Failed && r.Reason == domain.ReasonTimeout, outcomeOf(r))
	if r := c.ends("no handler", "not-registered", ""); r.State != domain.Failed || r.Reason != domain.ReasonHandlerNotFound {
		c.t.Errorf("a handler that no executor has: %+v", r)
	}

	job := c.job("broadcast", "echo", "all", func(s *domain.JobSpec) { s.Route = domain.RouteBroadcast })
	if _, err := c.api.TriggerJob(c.t.Context(), job.ID, client.Trigger{}); err != nil {
		c.t.Fatal(err)
	}
	var shards []domain.Run
	eventually(c.t, patience, "both shards have ended", func() bool {
		shards = runsOfJob(c.t, c.api, job.ID)
		return len(shards) == 2 && shards[0].State.Final() && shards[1].State.Final()
	})
	outputs, instances := []string{shards[0].Output, shards[1].Output}, []string{shards[0].Instance, shards[1].Instance}
	slices.Sort(outputs)
	c.yes(canBroadcast, slices.Equal(outputs, []string{"all 0/2", "all 1/2"}) && slices.Contains(instances, first.instance) && slices.Contains(instances, second.instance), shards)
	c.testGiant()
}

// testGiant sends many callbacks in one body, as an executor does that could not report for days. That of a run is in the middle.
func (c *crew) testGiant() {
	id := c.begins("many callbacks", "sleep", "600")
	log := queryOne[int64](c.t, c.db, `SELECT log_id FROM gateway_sends WHERE run_id = $1 AND NOT unstarted`, id)
	var body strings.Builder
	message := strings.Repeat("x", 30_000)
	body.WriteString("[")
	for i := range 1000 {
		if i == 500 {
			fmt.Fprintf(&body, `{"logId":%d,"logDateTim":1,"handleCode":200,"handleMsg":"in the middle","executeResult":{"code":200,"msg":"in the middle"}},`, log)
		}
		fmt.Fprintf(&body, `{"logId":%d,"logDateTim":1,"handleCode":500,"handleMsg":%q},`, i+1, message)
	}
	text := strings.TrimSuffix(body.String(), ",") + "]"
	var codes []int
	for range 2 { // the second is a repetition
		codes = append(codes, c.post(c.gateways[1].url()+"/xxl-job-admin/api/callback", xxlToken, text))
	}
	r := final(c.t, c.api, id)
	c.yes(canGiant, slices.Equal(codes, []int{200, 200}) && r.State == domain.Succeeded && r.Output == "in the middle" && r.Attempt == 1, r)
}

// post sends a request of XXL-JOB's protocol, and returns the code of the answer.
func (c *crew) post(url, token, body string) int {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["XXL-JOB-ACCESS-TOKEN"] = []string{token}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var reply struct{ Code int }
	if err := json.Unmarshal(answer, &reply); err != nil {
		c.t.Fatalf("%s answers %q: %v", url, answer, err)
	}
	return reply.Code
}

// testKills kills a run whose handler can be ended, and one whose handler goes on.
func (c *crew) testKills() {
	c.member(c.front(c.t, losesNothing).URL)
	kill := func(id domain.RunID) domain.Run {
		if err := c.api.KillRun(c.t.Context(), id); err != nil {
			c.t.Fatal(err)
		}
		return final(c.t, c.api, id)
	}
	r := kill(c.begins("kill", "sleep", "600"))
	c.yes(canKill, r.State == domain.Cancelled && r.Reason == domain.ReasonKilled, outcomeOf(r))
	file := filepath.Join(c.t.TempDir(), "end")
	r = kill(c.begins("kill hard", "stubborn", "10 "+file))
	cell := outcomeOf(r)
	if len(linesOf(c.t, file)) == 0 {
		cell += ", goes on"
	}
	c.yes(canKillHard, cell == string(domain.ReasonKilled), cell)
}

// testLogs reads logs that are complete, and one while the run goes on.
func (c *crew) testLogs() {
	c.member(c.front(c.t, losesNothing).URL)
	const count = 1000
	lines := c.written(c.ends("log", "lines", fmt.Sprint(count, " 0")))
	inOrder := len(lines) == count+1
	for i, l := range lines[:max(len(lines)-1, 0)] {
		inOrder = inOrder && strings.HasSuffix(l.Text, fmt.Sprint("line ", i+1))
	}
	c.yes(canLog, inOrder, fails)
	// A busy machine may read the log too late.
	for _, seconds := range []int{4, 10, 30} {
		r := c.ends(fmt.Sprint("live log ", seconds), "lines", fmt.Sprint("3 ", seconds))
		lines := c.written(r)
		live := len(lines) > 0 && lines[0].At.Before(r.FinishedAt.Time)
		if c.yes(canLogLive, live, fails); live || len(lines) == 0 {
			return
		}
	}
}

// written waits until the log of a run is complete, and returns the lines that its handler has written. executor-go has no logs, and says so in one line.
func (c *crew) written(r domain.Run) (lines []domain.LogLine) {
	c.t.Helper()
	eventually(c.t, patience, "the log is complete", func() bool {
		page, err := c.api.Log(c.t.Context(), r.ID, 1, 2000)
		if err != nil {
			return false
		}
		none := slices.ContainsFunc(page.Lines, func(l domain.LogLine) bool { return strings.Contains(l.Text, "LogHandler") })
		lines = slices.DeleteFunc(page.Lines, func(l domain.LogLine) bool {
			return !strings.Contains(l.Text, "line ") && !strings.Contains(l.Text, "the end")
		})
		return len(lines) > 0 && strings.Contains(lines[len(lines)-1].Text, "the end") || none
	})
	return lines
}

// testMinute fires a job each second for a minute. Each fire time has one run, whose handler runs once.
func (c *crew) testMinute() {
	c.member(c.front(c.t, losesNothing).URL)
	file := filepath.Join(c.t.TempDir(), "runs")
	job := c.job("each second", "stubborn", "0 "+file, func(s *domain.JobSpec) {
		s.Schedule, s.Misfire = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(time.Second)}, domain.MisfireFireAll
	})
	eventually(c.t, patience, "the job has fired sixty times", func() bool { return len(runsOfJob(c.t, c.api, job.ID)) >= 60 })
	if err := c.api.SetJobEnabled(c.t.Context(), job.ID, false); err != nil {
		c.t.Fatal(err)
	}
	fired := map[string]bool{}
	runs := runsOfJob(c.t, c.api, job.ID)
	for _, r := range runs {
		r = final(c.t, c.api, r.ID)
		at := r.FireTime.String()
		if r.State != domain.Succeeded || r.Attempt != 1 || fired[at] {
			c.t.Errorf("the run of %s: %+v", at, r)
		}
		fired[at] = true
	}
	handled := len(linesOf(c.t, file))
	c.yes(canFire, len(fired) == len(runs) && handled == len(runs), fmt.Sprintf("%d of %d fire times, handled %d times", len(fired), len(runs), handled))
}

// testTokens starts an executor with a wrong token, and calls one with a wrong token.
func (c *crew) testTokens() {
	m := c.member(c.front(c.t, losesNothing).URL)
	code := c.post(fmt.Sprintf("http://127.0.0.1:%d/beat", m.port), "wrong", "{}")
	c.yes(canCheck, code != 200, fails)
	port := freeport.Take(c.t)
	c.program.Start(c.t, c.gateways[0].url(), c.group+".Executor", "wrong", port)
	c.gateways[0].logs("refused an executor")
	if n := queryOne[int64](c.t, c.db, `SELECT count(*) FROM gateway_addresses WHERE instance = $1`, fmt.Sprintf("127-0-0-1-%d", port)); n != 0 {
		c.saw(canRefuse, "accepted")
		return
	}
	c.saw(canRefuse, "refused")
}

// testStop stops an executor in order during a run.
func (c *crew) testStop() {
	admin := c.front(c.t, losesNothing).URL
	m := c.member(admin)
	id := c.begins("stopped", "sleep", "600")
	m.Signal(syscall.SIGTERM)
	<-m.Ended()
	c.memberAt(admin, m.port) // so that the run is lost soon, if there was no callback
	c.saw(canStop, outcomeOf(final(c.t, c.api, id)))
}

// testDie kills an executor during a run and starts it again. The run is lost and not tried again, and the executor gets later runs.
func (c *crew) testDie() {
	admin := c.front(c.t, losesNothing).URL
	m := c.member(admin)
	id := c.begins("killed", "sleep", "600", func(s *domain.JobSpec) { s.Retries = 1 })
	m.Signal(syscall.SIGKILL)
	<-m.Ended()
	c.memberAt(admin, m.port)
	r := final(c.t, c.api, id)
	later := c.ends("later", "demo", "")
	c.yes(canDie, r.State == domain.Failed && r.Reason == domain.ReasonLost && r.Attempt == 1 && c.sends(id) == 1 && later.State == domain.Succeeded, r)
}

// testRepeat loses the answer to a callback. The run has ended, whatever the executor sends next.
func (c *crew) testRepeat() {
	f := c.front(c.t, losesAnswer)
	c.member(f.URL)
	r := c.ends("callback without an answer", "demo", "")
	registered, _ := f.counts()
	callbacks := 0
	eventually(c.t, patience, "the callback is repeated, or registrations come and it is not", func() bool {
		registrations, n := f.counts()
		callbacks = n
		return n > 1 || registrations >= registered+3 // Java registers, and repeats callbacks, every 30 s
	})
	c.saw(canRepeat, map[bool]string{true: "repeated", false: "once"}[callbacks > 1])
	if later := c.ends("later", "echo", "p"); later.State != domain.Succeeded {
		c.t.Errorf("a later run: %+v", later)
	}
	if again, err := c.api.Run(c.t.Context(), r.ID); err != nil || r.State != domain.Succeeded || again.State != domain.Succeeded || again.Output != "done" || again.Attempt != 1 {
		c.t.Errorf("the run: %+v, then %+v, %v", r, again, err)
	}
}

// testLose loses a callback before the gateway has received it.
func (c *crew) testLose() {
	c.member(c.front(c.t, losesRequest).URL)
	r := c.ends("lost callback", "demo", "")
	c.yes(canLose, r.State == domain.Succeeded && r.Output == "done" && r.Attempt == 1, outcomeOf(r))
}

// testSwitch kills the gateway that serves the executor during a run. The other one takes the executor over, and the run goes on.
func (c *crew) testSwitch() {
	owner := func() string {
		return queryOne[string](c.t, c.db, `SELECT owner FROM gateway_addresses WHERE group_name = $1`, c.group)
	}
	for try := 0; ; try++ {
		g, before := c.gateways[try%2], owner()
		id := c.begins(fmt.Sprint("switch ", try), "sleep", "15")
		g.kill()
		var r domain.Run
		eventually(c.t, patience, "the other gateway has taken the executor over, or the run has ended", func() bool {
			var err error
			r, err = c.api.Run(c.t.Context(), id)
			return owner() != before || err == nil && r.State.Final()
		})
		taken := owner() != before
		r = final(c.t, c.api, id)
		g.process = g.start()
		if taken || try == 3 { // otherwise the other gateway served the executor
			c.yes(canSwitch, taken && r.State == domain.Succeeded && r.Attempt == 1 && c.sends(id) == 1, r)
			return
		}
	}
}

// testAway cuts the gateways off from a server for 20 s, while a run ends. Its result comes later.
func (c *crew) testAway(a ability, link *rig.Proxy) {
	id := c.begins(string(a), "sleep", "10")
	link.Cut()
	every(20*time.Second, 1, func(int) {})
	link.Heal()
	r := final(c.t, c.api, id)
	c.yes(a, r.State == domain.Succeeded && r.Attempt == 1 && c.sends(id) == 1, r)
}
