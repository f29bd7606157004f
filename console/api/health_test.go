package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// fares sets the health of a job as the roll-up does.
func (w *world) fares(job int, failing bool, reason, message string, since time.Time, p95 int) {
	w.t.Helper()
	w.exec(`INSERT INTO job_health (job_id, success_at, success_version, hour, hour_succeeded, p95, success_run, durations, past_succeeded)
		VALUES ($1, now(), 1, 0, 0, $2::int, gen_random_uuid(), set_byte('\x00', 0, $2::int), '')`, job, p95)
	w.exec(`INSERT INTO job_failures (job_id, failing, streak, version, hour, hour_failed, failing_since, failed_at, run, past_failed, reason, message, group_name)
		SELECT id, $2, 3, 1, extract(epoch FROM now())::int / 3600, 3, $3, $3, $4, '', $5, $6, group_name FROM jobs WHERE id = $1`, job, failing, since, domain.NewRunID(since), reason, message)
}

func TestJobsByHealth(t *testing.T) {
	w := newWorld(t)
	const jobs = "/api/v1/jobs"
	for i := range 5 {
		w.job(fmt.Sprintf(`{"group":"default","name":"job %d","handler":"echo","schedule":{"kind":"none"}}`, 9-i))
	}
	since := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	w.fares(2, true, "handler_error", "exit status 1: password=hunter2", since, 90)
	w.fares(3, true, "timeout", "", since.Add(-time.Hour), 80)
	w.fares(4, false, "lost", "", since.Add(time.Hour), 100)
	list := func(query string) string {
		t.Helper()
		var ids []string
		for cursor := ""; ; {
			a := w.must(200, "GET", jobs+"?limit=2&"+query+"&cursor="+cursor, "")
			for _, item := range a.field("items").([]any) {
				ids = append(ids, fmt.Sprint(item.(map[string]any)["id"]))
			}
			if cursor = a.field("next_cursor").(string); cursor == "" {
				return strings.Join(ids, " ")
			}
		}
	}
	for query, want := range map[string]string{
		"":                                  "1 2 3 4 5",
		"sort=name":                         "5 4 3 2 1",
		"sort=p95_ms":                       "4 2 3 1 5",
		"sort=failing_since":                "3 2 1 4 5",
		"sort=last_failure":                 "4 2 3 1 5",
		"health=failing":                    "2 3",
		"health=failing&sort=failing_since": "3 2",
		"health=ok&sort=p95_ms":             "4",
		"health=unknown&group=default":      "1 5",
	} {
		if got := list(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	w.rows([]row{
		{"failing", "GET", jobs + "/2", "", 200, map[string]any{"health.state": "failing", "health.streak": 3.0, "health.failing_since": "2026-03-01T02:00:00.000Z", "health.last_success.version": 1.0,
			"health.last_failure.reason": "handler_error", "health.last_failure.message": "exit status 1: password=hunter2", "health.last_24h.failed": 3.0, "health.last_24h.succeeded": 0.0}, nil},
		{"without runs", "GET", jobs + "/1", "", 200, map[string]any{"health.state": "unknown", "health.p95_ms": nil}, nil},
		{"sent back", "PUT", jobs + "/1", `{"group":"default","name":"job 9","handler":"echo","schedule":{"kind":"none"},"health":{"state":"ok"}}`, 200, map[string]any{"name": "job 9"}, nil},
		{"created with", "POST", jobs, `{"group":"default","name":"new","handler":"echo","schedule":{"kind":"none"},"health":{"state":"ok"}}`, 422, map[string]any{"errors.0.location": "health"}, nil},
		{"unknown order", "GET", jobs + "?sort=size", "", 422, map[string]any{"errors.0.location": "sort"}, nil},
		{"unknown health", "GET", jobs + "?health=sick", "", 422, map[string]any{"errors.0.location": "health"}, nil},
		{"the cursor of another order", "GET", jobs + "?sort=name&limit=1&cursor=" + fmt.Sprint(w.must(200, "GET", jobs+"?sort=p95_ms&limit=1", "").field("next_cursor")), "", 422,
			map[string]any{"errors.0.location": "cursor"}, nil},
	})
	viewer := w.confined("vera", "viewer", "default")
	if a := w.do(viewer, "GET", jobs+"/2", ""); strings.Contains(a.body, "hunter2") {
		t.Errorf("a viewer sees a secret: %s", a.body)
	}
}

// A failing job says what changed since its last success, and where both runs ran.
func TestChangesOfAFailingJob(t *testing.T) {
	w := newWorld(t)
	const job = "/api/v1/jobs/1"
	w.job(`{"group":"default","name":"report","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *","time_zone":"Asia/Shanghai"}}`)
	w.must(200, "PATCH", job, `{"param":"new"}`)
	w.fares(1, true, "handler_error", "exit status 1", time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), 90)
	w.exec(`UPDATE job_health SET success_instance = 'node-1', success_executor = '1.4'`)
	w.exec(`UPDATE job_failures SET version = 2, instance = 'node-2', executor = '1.5'`)
	w.rows([]row{
		{"the job", "GET", job, "", 200, map[string]any{
			"health.last_success.instance": "node-1", "health.last_success.executor_version": "1.4",
			"health.last_failure.instance": "node-2", "health.last_failure.executor_version": "1.5",
			"health.changes.0.code": "job_edited", "health.changes.0.args.from": 1.0, "health.changes.0.args.to": 2.0, "health.changes.0.args.by": "admin",
			"health.changes.1.code": "executor_changed", "health.changes.2.code": "instance_changed",
			"health.changes.2.text": "the instance changed from node-1 to node-2"}, nil},
		{"in the list", "GET", "/api/v1/jobs", "", 200, map[string]any{"items.0.health.last_failure.executor_version": "1.5"}, nil},
		{"its item", "GET", "/api/v1/attention", "", 200, map[string]any{"items.0.kind": "job_failing", "items.0.last_success.instance": "node-1",
			"items.0.changes.0.code": "job_edited", "items.0.changes.1.args.to": "1.5", "items.0.changes.2.args.from": "node-1"}, nil},
		{"acknowledged", "POST", "/api/v1/attention/job_failing:1/acknowledge", "{}", 200, map[string]any{"changes.1.code": "executor_changed"}, nil},
	})
	w.exec(`UPDATE job_failures SET failing = false`)
	if a := w.must(200, "GET", job, ""); strings.Contains(a.body, "changes") {
		t.Errorf("a job that has recovered: %s", a.body)
	}
}

func TestScheduleDescription(t *testing.T) {
	w := newWorld(t)
	const jobs = "/api/v1/jobs"
	made := w.must(201, "POST", jobs, `{"group":"default","name":"report","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *","time_zone":"Asia/Shanghai"}}`)
	preview := w.must(200, "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"0 2 * * *","time_zone":"Asia/Shanghai"}}`)
	want := "At 02:00 every day, Asia/Shanghai"
	if preview.field("description") != want || made.field("schedule_description") != want {
		t.Errorf("the preview says %s, the new job %s", preview.body, made.body)
	}
	chinese := []string{"Accept-Language", "zh-CN"}
	w.rows([]row{
		{"the job", "GET", jobs + "/1", "", 200, map[string]any{"schedule_description": want}, nil},
		{"the list", "GET", jobs, "", 200, map[string]any{"items.0.schedule_description": want}, nil},
		{"the job in Chinese", "GET", jobs + "/1", "", 200, map[string]any{"schedule_description": "每天 02:00，Asia/Shanghai"}, chinese},
		{"the list in Chinese", "GET", jobs, "", 200, map[string]any{"items.0.schedule_description": "每天 02:00，Asia/Shanghai"}, chinese},
		{"sent back", "PUT", jobs + "/1", w.must(200, "GET", jobs+"/1", "").body, 200, map[string]any{"version": 1.0, "schedule_description": want}, nil},
		{"sent in a patch", "PATCH", jobs + "/1", `{"schedule_description":"x","param":"y"}`, 200, map[string]any{"version": 2.0, "schedule_description": want}, nil},
		{"created with", "POST", jobs, `{"group":"default","name":"new","handler":"echo","schedule":{"kind":"none"},"schedule_description":"x"}`, 422,
			map[string]any{"errors.0.location": "schedule_description"}, nil},
	})
	if a := w.must(200, "GET", "/api/v1/export", ""); strings.Contains(a.body, "schedule_description") {
		t.Errorf("the export has it: %s", a.body)
	}
}
