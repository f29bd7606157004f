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
	w.exec(`INSERT INTO job_failures (job_id, failing, streak, version, hour, hour_failed, failing_since, failed_at, run, past_failed, reason, message)
		VALUES ($1, $2, 3, 1, extract(epoch FROM now())::int / 3600, 3, $3, $3, $4, '', $5, $6)`, job, failing, since, domain.NewRunID(since), reason, message)
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
