package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestOverviewAndReport(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	hour := time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)
	finish := func(group, state, reason string, started time.Time, late int) {
		t.Helper()
		w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
			due_at, created_at, started_at, finished_at, lateness_ms, last_line, route)
			VALUES ($1, 1, 1, $2, 'schedule', $3, $4, 'no such month', '', 1, $5, $5, $5, $5::timestamptz + interval '2 seconds', $6, 0, '')`,
			domain.NewRunID(started), group, state, reason, started, late)
	}
	finish("default", "succeeded", "", hour, 0)
	finish("default", "succeeded", "", hour.Add(time.Minute), 0)
	finish("default", "failed", "timeout", hour.Add(time.Hour), 2)
	finish("other", "failed", "lost", hour.Add(time.Hour+time.Second), 2)
	w.running()
	for i, group := range []string{"default", "other"} {
		w.job(fmt.Sprintf(`{"group":%q,"name":"late %d","handler":"echo","schedule":{"kind":"none"}}`, group, i))
		w.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why)
			SELECT max(id), $1, $1::timestamptz + interval '1 hour', 60, 'skip', repeat('so ', 1000) FROM jobs`, hour)
	}
	span := url.Values{"from": {hour.Format(time.RFC3339)}, "to": {hour.Add(2 * time.Hour).Format(time.RFC3339)}}.Encode()
	w.rows([]row{
		{"all", "GET", "/api/v1/overview", "", 200, map[string]any{"counts.runs": 4, "counts.succeeded": 2, "counts.failed": 2, "counts.cancelled": 0,
			"counts.success_rate": 0.5, "counts.lateness_p50_ms": 0, "counts.lateness_p99_ms": 2, "counts.mean_duration_ms": 2000,
			"counts.reasons": "map[lost:1 timeout:1]", "now.running": 1, "now.instances": 1, "now.slots": 4, "now.groups": 2, "missed": 120,
			"recent_missed.0.group": "other", "recent_missed.0.job_name": "late 1", "recent_missed.0.job_id": 2, "recent_missed.0.count": 60,
			"recent_missed.0.first": domain.At(hour), "recent_missed.0.policy": "skip", "recent_missed.1.job_name": "late 0", "recent_missed.2": nil,
			"recent_failures.0.reason": "lost", "recent_failures.1.message": "no such month", "recent_failures.2": nil}, nil},
		{"a group", "GET", "/api/v1/overview?group=default&" + span, "", 200, map[string]any{"counts.runs": 3, "recent_failures.1": nil,
			"missed": 0, "recent_missed": "[]", "from": domain.At(hour)}, nil},
		{"nothing", "GET", "/api/v1/overview?from=2026-01-01T00:00:00Z&to=2026-01-01T00:01:00Z", "", 200, map[string]any{"counts.runs": 0,
			"counts.success_rate": nil, "counts.lateness_p50_ms": nil, "counts.reasons": "map[]"}, nil},
		{"by hours", "GET", "/api/v1/reports/runs?" + span, "", 200, map[string]any{"step": "1h", "total.runs": 4, "points.0.succeeded": 2,
			"points.0.success_rate": 1, "points.1.failed": 2, "points.1.at": domain.At(hour.Add(time.Hour)).String(), "points.2": nil}, nil},
		{"by minutes", "GET", "/api/v1/reports/runs?step=30m&group=default&" + span, "", 200, map[string]any{"points.0.runs": 2, "points.1.runs": 0,
			"points.2.runs": 1, "points.3.runs": 0, "points.4": nil}, nil},
	})
	for _, bad := range []struct {
		name, path string
		fields     []string
	}{
		{"to before from", "/api/v1/overview?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", []string{"to"}},
		{"from in the future", "/api/v1/overview?from=2126-01-02T00:00:00Z", []string{"from"}},
		{"from too long ago", "/api/v1/overview?from=2006-01-02T00:00:00Z", []string{"from"}},
		{"no such group, no such step", "/api/v1/reports/runs?group=none&step=90s", []string{"group", "step"}},
		{"a step that does not divide an hour", "/api/v1/reports/runs?step=7m", []string{"step"}},
		{"a step that is not a duration", "/api/v1/reports/runs?step=day", []string{"step"}},
		{"too many points", "/api/v1/reports/runs?step=1m&from=" + time.Now().Add(-50*time.Hour).UTC().Format(time.RFC3339), []string{"step"}},
		{"minutes too far back", "/api/v1/reports/runs?step=30m&from=" + time.Now().Add(-80*time.Hour).UTC().Format(time.RFC3339), []string{"step"}},
		{"an unknown parameter", "/api/v1/overview?since=1h", []string{"since"}},
	} {
		if a := w.do(w.admin, "GET", bad.path, ""); a.status != 422 || !slices.Equal(a.locations(), bad.fields) {
			t.Errorf("%s: %d %s, want 422 for %v", bad.name, a.status, a.body, bad.fields)
		}
	}
	w.must(201, "POST", "/api/v1/users", `{"username":"viv","password":"a-good-password","role":"viewer","groups":["other"]}`)
	viewer := w.logIn("viv", "a-good-password")
	if a := w.do(viewer, "GET", "/api/v1/overview", ""); a.status != 200 ||
		fmt.Sprint(a.field("counts.runs"), a.field("now.running"), a.field("now.groups"), a.field("missed"), a.field("recent_missed.1")) != "1 0 1 60 <nil>" ||
		a.field("recent_missed.0.job_name") != "late 1" || len(a.field("recent_missed.0.why.text").(string)) > 310 {
		t.Errorf("a viewer of one group gets %d %s", a.status, a.body)
	}
	if a := w.do(viewer, "GET", "/api/v1/reports/runs?group=default", ""); a.status != 422 || fmt.Sprint(a.locations()) != "[group]" {
		t.Errorf("a group that the viewer may not see: %d %s", a.status, a.body)
	}
}
