package followup_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/alerts"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/migrations"
)

const riverJobs = migrations.RiverSchema + `.river_job`

// receiver is a webhook that gives the configured answers and records its requests.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	answers []int // status codes of the next requests; after them, 200
	got     []alert.Message
}

func newReceiver(t *testing.T, answers ...int) *receiver {
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var m alert.Message
		body, _ := io.ReadAll(req.Body)
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("got %s: %v", body, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, m)
		if len(r.answers) > 0 {
			w.WriteHeader(r.answers[0])
			r.answers = r.answers[1:]
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) messages() []alert.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]alert.Message(nil), r.got...)
}

// alarm is a bench with alerts.
type alarm struct {
	*bench
	kept     *alerts.Store
	registry *prometheus.Registry
	trace    func(string)
}

func newAlarm(t *testing.T) *alarm {
	b := newBench(t)
	a := &alarm{bench: b, registry: prometheus.NewRegistry(), kept: alerts.New(b.pg.Pool(), alerts.Config{ConsoleURL: "https://belfry.test"})}
	return a
}

func (a *alarm) channel(name, url string) {
	a.t.Helper()
	if _, err := a.kept.CreateChannel(context.Background(), alert.Channel{Name: name, Kind: alert.KindWebhook, Language: alert.English, URL: url}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *alarm) work() (stop func()) {
	a.t.Helper()
	sender := alert.NewSender(alert.Config{Timeout: patience})
	w, err := followup.NewWorkers(a.pg.Pool(), migrations.RiverSchema, a.pg,
		&followup.Alerts{Store: a.kept, Sender: sender, Registry: a.registry}, nil, slog.New(slog.DiscardHandler), a.trace)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(sender.Close)
	return a.background(w.Run)
}

func (a *alarm) wants(channels ...string) func(*domain.JobSpec) {
	return func(s *domain.JobSpec) {
		s.Alert = domain.Alert{Channels: channels, On: domain.AlertKinds}
		s.Schedule.TimeZone, s.Retries = "Europe/Berlin", 0
	}
}

// start fires one run of a job.
func (a *alarm) start(job domain.JobID) engine.LiveRun {
	a.t.Helper()
	fire := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	if _, err := a.pg.Trigger(context.Background(), job, domain.Trigger{Cause: domain.CauseManual, FireTime: &fire}); err != nil {
		a.t.Fatal(err)
	}
	due, _, err := a.pg.ClaimNear(context.Background(), 10)
	if err != nil {
		a.t.Fatal(err)
	}
	f := &firer{a.pg, make(chan engine.LiveRun, 10)}
	if _, err := f.Fire(context.Background(), due); err != nil {
		a.t.Fatal(err)
	}
	return f.next(a.t)
}

// end ends one run of a job with an outcome and a number of log lines.
func (a *alarm) end(job domain.JobID, outcome domain.Outcome, lines int) engine.LiveRun {
	a.t.Helper()
	r := a.start(job)
	e := engine.Ended{
		RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Group: r.Group, Outcome: outcome,
		StartedAt: a.pg.Now(), FinishedAt: a.pg.Now(), LastLine: int64(lines), Message: "exit status 3",
	}
	if outcome == domain.OutcomeFailed {
		e.Reason = domain.ReasonHandlerError
	}
	out, err := a.pg.Settle(context.Background(), []engine.Ended{e})
	if err != nil || out.Dispositions[0] != engine.Settled {
		a.t.Fatalf("settle: %+v, %v", out, err)
	}
	return r
}

func (a *alarm) log(r engine.LiveRun, lines int) {
	a.t.Helper()
	var text []domain.LogLine
	for i := range lines {
		text = append(text, domain.LogLine{N: int64(i + 1), At: domain.At(a.pg.Now()), Text: fmt.Sprintf("line %d", i+1)})
	}
	err := a.pg.StoreLogs(context.Background(), []engine.LogChunk{{RunID: r.ID, Attempt: r.Attempt, First: 1, Last: int64(lines), Lines: logchunk.Encode(text)}})
	if err != nil {
		a.t.Fatal(err)
	}
}

// soon makes River retry waiting jobs at once.
func (a *alarm) soon() {
	a.exec(`UPDATE ` + riverJobs + ` SET state = 'available', scheduled_at = now() WHERE state IN ('retryable', 'scheduled', 'available')`)
}

func (a *alarm) deliveries(state string) int {
	return a.count(`SELECT count(*) FROM alert_deliveries WHERE state = $1`, state)
}

// outcomes returns the number of tries with an outcome.
func (a *alarm) outcomes(outcome string) (n float64) {
	families, err := a.registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "belfry_alert_deliveries_total" && m.GetLabel()[0].GetValue() == outcome {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// A failure that is committed while no dispatcher runs is reported when one starts, once per channel and with all
// details. A delivery that a server refuses temporarily is retried with the same id.
func TestAlertIsDelivered(t *testing.T) {
	a := newAlarm(t)
	busy, other := newReceiver(t, 503, 500), newReceiver(t)
	a.channel("busy", busy.URL)
	a.channel("other", other.URL)
	job := a.job("nightly", a.wants("busy", "other"), func(s *domain.JobSpec) { s.RunbookURL = "https://wiki.test/nightly" })
	r := a.end(job, domain.OutcomeFailed, 30)
	a.log(r, 30)
	stop := a.work()
	a.eventually("the alert is delivered", func() bool {
		a.soon()
		return a.deliveries("delivered") == 2
	})
	stop()
	got := busy.messages()
	if len(got) != 3 || got[0].ID != got[2].ID || len(other.messages()) != 1 {
		t.Fatalf("%d and %d requests came", len(got), len(other.messages()))
	}
	m := got[2]
	if m.Kind != domain.AlertFailed || m.Job != "nightly" || m.Group != "g" || m.RunID != r.ID.String() || m.URL != "https://belfry.test/runs/"+m.RunID ||
		m.RunbookURL != "https://wiki.test/nightly" ||
		m.Reason != domain.ReasonHandlerError || m.Message != "exit status 3" || m.Instance != "a" || m.Attempt != 1 || m.MaxAttempts != 1 ||
		m.LocalTime != "2026-03-29 03:30:00 CEST" || m.Count != 1 || len(m.Log) != 20 || m.Log[19] != "line 30" {
		t.Errorf("delivered: %+v", m)
	}
	listed, err := a.kept.Alerts(t.Context(), alerts.Filter{Job: job, Kind: domain.AlertFailed, State: alerts.Delivered, Limit: 10})
	if err != nil || len(listed) != 1 || listed[0].ID != m.ID || len(listed[0].Deliveries) != 2 || listed[0].Deliveries[0].Tries != 3 {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	if d, r := a.outcomes("delivered"), a.outcomes("retried"); d != 2 || r != 2 {
		t.Errorf("counted %v delivered, %v retried", d, r)
	}
}

// If the engine ended the run, the alert has the codes of the message. A channel in Chinese shows them in Chinese.
func TestAlertOfTheEngine(t *testing.T) {
	a := newAlarm(t)
	hook := newReceiver(t)
	a.channel("hook", hook.URL)
	r := a.start(a.job("nightly", a.wants("hook")))
	out, err := a.pg.Settle(t.Context(), []engine.Ended{{
		RunID: r.ID, Attempt: r.Attempt, Instance: r.Instance, BootID: r.BootID, Bind: r.Bind, Outcome: domain.OutcomeFailed, Reason: domain.ReasonLost,
		Why: explain.Of(explain.InstanceDied, "a"), FinishedAt: a.pg.Now(),
	}})
	if err != nil || out.Dispositions[0] != engine.Settled {
		t.Fatalf("settle: %+v, %v", out, err)
	}
	stop := a.work()
	a.eventually("the alert is delivered", func() bool { return len(hook.messages()) == 1 })
	stop()
	m := hook.messages()[0]
	said := alert.Render(&alert.Channel{Kind: alert.KindWebhook, Language: alert.Chinese}, m).Text
	if m.Message != "instance a died" || len(m.Parts) != 1 || m.Parts[0].Code != explain.InstanceDied || !strings.Contains(said, "\n信息:实例 a 已失联\n") {
		t.Errorf("delivered: %+v, in Chinese: %s", m, said)
	}
}

// An alert that cannot be delivered is given up, at once if a retry cannot help, and remains visible.
func TestAlertIsGivenUp(t *testing.T) {
	a := newAlarm(t)
	gone, broken := newReceiver(t, 404, 404), newReceiver(t, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500)
	a.channel("gone", gone.URL)
	a.channel("broken", broken.URL)
	job := a.job("j", a.wants("gone", "broken"))
	a.end(job, domain.OutcomeFailed, 0)
	a.work()
	a.eventually("both are given up", func() bool {
		a.soon()
		return a.deliveries("failed") == 2
	})
	if len(gone.messages()) != 1 || len(broken.messages()) != 10 {
		t.Errorf("%d and %d tries", len(gone.messages()), len(broken.messages()))
	}
	listed, err := a.kept.Alerts(t.Context(), alerts.Filter{State: alerts.Failed, Limit: 10})
	if err != nil || len(listed) != 1 || !strings.Contains(listed[0].Deliveries[0].Error, "500") || !strings.Contains(listed[0].Deliveries[1].Error, "404") {
		t.Errorf("listed: %+v, %v", listed, err)
	}
}

// A folded alert is sent when its period has ended, even if no other event follows. The recovery follows with the
// number of all failures.
func TestFoldedAlertIsDelivered(t *testing.T) {
	a := newAlarm(t)
	ops := newReceiver(t)
	a.channel("ops", ops.URL)
	job := a.job("j", a.wants("ops"))
	a.work()
	for range 4 {
		a.end(job, domain.OutcomeFailed, 0)
	}
	a.eventually("the first is delivered", func() bool { return a.deliveries("delivered") == 1 })
	a.exec(`UPDATE alert_state SET told_at = told_at - interval '1 hour'`) // simulates that an hour passes
	a.eventually("the rest is delivered", func() bool {
		a.soon()
		return a.deliveries("delivered") == 2
	})
	a.end(job, domain.OutcomeSucceeded, 0)
	a.eventually("the recovery is delivered", func() bool { return a.deliveries("delivered") == 3 })
	got := ops.messages()
	if len(got) != 3 || got[0].Count != 1 || got[1].Kind != domain.AlertFailed || got[1].Count != 3 || got[2].Kind != domain.AlertRecovered || got[2].Count != 4 {
		t.Errorf("delivered: %+v", got)
	}
	if n := a.count(`SELECT count(*) FROM ` + riverJobs + ` WHERE state NOT IN ('completed')`); n != 0 {
		t.Errorf("%d follow-ups are left", n)
	}
}

// A dispatcher is killed after a channel has accepted the alert and before that is recorded. Another dispatcher
// delivers the alert again, with the same id. River finds such deliveries by their age, which the test sets.
func TestAlertSurvivesItsWorker(t *testing.T) {
	a := newAlarm(t)
	ops := newReceiver(t)
	a.channel("ops", ops.URL)
	job := a.job("j", a.wants("ops"))
	sent, hang := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	a.trace = func(point string) { // the same process may also be the one that delivers the alert again
		if point == "alert_sent" && !first.Swap(true) {
			close(sent)
			<-hang
		}
	}
	stop := a.work()
	a.end(job, domain.OutcomeFailed, 0)
	select {
	case <-sent:
	case <-time.After(patience):
		t.Fatal("nothing is sent")
	}
	// From the database's view, the process is dead, because its job has been running for too long.
	a.exec(`UPDATE ` + riverJobs + ` SET state = 'available', attempt = 1 WHERE state = 'running'`)
	a.trace, a.registry = nil, prometheus.NewRegistry()
	a.work()
	a.eventually("it is delivered again", func() bool { return a.deliveries("delivered") == 1 })
	close(hang)
	stop()
	if got := ops.messages(); len(got) != 2 || got[0].ID != got[1].ID {
		t.Errorf("delivered: %+v", got)
	}
	if n := a.deliveries("delivered"); n != 1 {
		t.Errorf("%d deliveries", n)
	}
}

// A log's lines may arrive after the result. An alert waits for them briefly, with a bound.
func TestAlertWaitsForTheLog(t *testing.T) {
	a := newAlarm(t)
	ops := newReceiver(t)
	a.channel("ops", ops.URL)
	job := a.job("j", a.wants("ops"))
	r := a.end(job, domain.OutcomeFailed, 3)
	a.work()
	a.eventually("it has waited", func() bool { return a.count(`SELECT count(*) FROM `+riverJobs+` WHERE metadata ? 'snoozes'`) == 1 })
	a.log(r, 3)
	a.eventually("it is delivered", func() bool { return a.deliveries("delivered") == 1 })
	if got := ops.messages(); len(got) != 1 || len(got[0].Log) != 3 {
		t.Errorf("delivered: %+v", got)
	}
}

// An alert about a broadcast contains the number of failed shards and names the shard that it describes. An alert about
// missed fires names the fire times.
func TestAlertOfABroadcastAndOfMissedFires(t *testing.T) {
	a := newAlarm(t)
	ops := newReceiver(t)
	a.channel("ops", ops.URL)
	job := a.job("b", a.wants("ops"), func(s *domain.JobSpec) { s.Route = domain.RouteBroadcast })
	first := domain.NewRunID(time.Now())
	for i, state := range []string{"succeeded", "failed", "failed"} {
		a.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at,
			finished_at, last_line, instance, route, shard_index, shard_total, broadcast_id)
			VALUES ($1, $2, 1, 'g', 'manual', $3, '', $4, '', 1, now(), now(), now() + $5 * interval '1 second', 0, 'a', '', $5, 3, $6)`,
			domain.ShardRunID(first, i), job, state, fmt.Sprint("shard ", i), i, first)
	}
	at := domain.At(time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC))
	a.insert(engine.FollowUp{Alert: &engine.AlertNote{Kind: domain.AlertFailed, JobID: job, JobVersion: 1, RunID: first, At: at, Since: at, Count: 1}},
		engine.FollowUp{Alert: &engine.AlertNote{Kind: domain.AlertMissed, JobID: job, JobVersion: 1, At: at, Since: at, Count: 60, Missed: &engine.MissedAt{First: at, Last: at, Why: "no scheduler"}}},
		engine.FollowUp{Alert: &engine.AlertNote{Kind: domain.AlertFailed, JobID: 999, JobVersion: 1, At: at, Since: at}})
	a.work()
	a.eventually("they are delivered", func() bool { return a.deliveries("delivered") == 2 })
	for _, m := range ops.messages() {
		switch m.Kind {
		case domain.AlertFailed:
			if m.Shards != 3 || m.ShardsBad != 2 || m.Message != "shard 1" || m.RunID != first.String() {
				t.Errorf("the broadcast: %+v", m)
			}
		case domain.AlertMissed:
			if m.Count != 60 || m.Missed == nil || m.Missed.Why != "no scheduler" || m.URL != fmt.Sprintf("https://belfry.test/jobs/%d", job) {
				t.Errorf("the missed: %+v", m)
			}
		case domain.AlertRecovered, domain.AlertLate, domain.AlertTest:
			t.Errorf("delivered: %+v", m)
		}
	}
	a.worked(5)
}

// Old alerts are deleted with their deliveries, and so are the alert states of deleted jobs.
func TestAlertSweep(t *testing.T) {
	a := newAlarm(t)
	a.exec(`INSERT INTO alerts (kind, job_id, job_name, group_name, content, at) SELECT 'failed', 1, 'j', 'g', '{}', now() - i * interval '1 day' FROM generate_series(0, 9) i`)
	a.exec(`INSERT INTO alert_deliveries (alert_id, channel, updated_at) SELECT id, 'ops', at FROM alerts`)
	a.exec(`INSERT INTO alert_state (job_id, kind, open, opened_at, failures, told_at, told, telling, since, job_version) SELECT 999, 'failed', true, now(), 1, now(), 1, true, now(), 1`)
	if err := a.kept.Sweep(t.Context(), 5*24*time.Hour+time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := a.count(`SELECT count(*) FROM alerts`); n != 6 {
		t.Errorf("%d alerts are left", n)
	}
	if p, f := a.deliveries("pending"), a.deliveries("failed"); p != 1 || f != 5 {
		t.Errorf("%d deliveries are pending, %d failed", p, f)
	}
	if n := a.count(`SELECT count(*) FROM alert_state`); n != 0 {
		t.Errorf("%d states are left", n)
	}
}

// The metrics show the backlog of each queue and the workers. Counting reads only the index by which River fetches jobs.
func TestMeter(t *testing.T) {
	a := newAlarm(t)
	slow, answer := make(chan struct{}), make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		slow <- struct{}{}
		<-answer
	}))
	t.Cleanup(hook.Close)
	a.channel("hook", hook.URL)
	a.end(a.job("nightly", a.wants("hook")), domain.OutcomeFailed, 0)
	a.exec(`INSERT INTO ` + riverJobs + ` (state, queue, kind, args, max_attempts, scheduled_at, priority)
		SELECT 'scheduled', 'followup', 'retry', '{}', 1, now() + interval '1 hour', 1 FROM generate_series(1, 3)`)
	a.exec(`INSERT INTO ` + riverJobs + ` (state, queue, kind, args, max_attempts, scheduled_at, priority)
		VALUES ('available', 'nobody works this', 'retry', '{}', 1, now() - interval '1 hour', 1)`)
	stop := a.work()
	<-slow
	a.eventually("the worker is busy and the queues are counted", func() bool {
		return a.metric("belfry_followup_workers_busy", "alert") == 1 && a.metric("belfry_followups", "followup", "scheduled") == 3
	})
	if n := a.metric("belfry_followup_workers", "alert"); n != 10 {
		t.Errorf("%v workers", n)
	}
	close(answer)
	stop()
	if n := a.metric("belfry_followup_workers_busy", "alert"); n != 0 {
		t.Errorf("%v workers are busy after the end", n)
	}
}

// metric returns the value of a gauge with these label values, -1 if there is none.
func (a *alarm) metric(name string, labels ...string) float64 {
	families, err := a.registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(got, labels) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}
