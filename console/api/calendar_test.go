package api_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestCalendar(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	w.must(201, "POST", "/api/v1/groups", `{"name":"paused"}`)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)
	job := func(group, name, schedule string) string {
		t.Helper()
		return w.job(fmt.Sprintf(`{"group":%q,"name":%q,"handler":"echo","schedule":%s}`, group, name, schedule))
	}
	start := day.AddDate(0, 0, -10).Format(time.RFC3339)
	for i := range 3 {
		job("default", fmt.Sprint("at two ", i), `{"kind":"cron","expr":"0 2 * * *"}`)
	}
	job("default", "in Kolkata", `{"kind":"cron","expr":"0 10 * * *","time_zone":"Asia/Kolkata"}`) // 04:30 UTC
	job("default", "each second in the fifth hour", `{"kind":"cron","expr":"* * 5 * * *"}`)
	job("default", "each second from ten on", `{"kind":"fixed_rate","every":"1s","start_at":"`+day.Add(10*time.Hour).Format(time.RFC3339)+`"}`)
	job("default", "once", `{"kind":"once","at":"`+day.Add(7*time.Hour).Format(time.RFC3339)+`"}`)
	job("default", "over", `{"kind":"fixed_rate","every":"1m","start_at":"`+start+`","end_at":"`+day.Add(-time.Hour).Format(time.RFC3339)+`"}`)
	job("default", "by hand", `{"kind":"none"}`)
	job("default", "after itself", `{"kind":"fixed_delay","delay":"1h"}`)
	job("other", "elsewhere", `{"kind":"fixed_rate","every":"10m","start_at":"`+start+`"}`)
	job("paused", "held up", `{"kind":"fixed_rate","every":"1h","start_at":"`+start+`"}`)
	w.must(200, "POST", "/api/v1/groups/paused/pause", `{"reason":"a test","until":"`+day.Add(3*time.Hour).Format(time.RFC3339)+`"}`)
	off := job("default", "off", `{"kind":"fixed_rate","every":"1m"}`)
	w.must(200, "POST", off+"/disable", "")

	ask := func(token, query string, from, to time.Time) answer {
		t.Helper()
		q := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}.Encode()
		return w.do(token, "GET", "/api/v1/calendar?"+q+query, "")
	}
	planned := func(a answer) (out []int) {
		t.Helper()
		cells, ok := a.field("cells").([]any)
		if !ok {
			t.Fatalf("%d %s", a.status, a.body)
		}
		for _, c := range cells {
			out = append(out, int(c.(map[string]any)["planned"].(float64)))
		}
		return out
	}
	a := ask(w.admin, "&group=default", day, day.Add(12*time.Hour))
	if got := planned(a); !slices.Equal(got, []int{0, 0, 3, 0, 1, 3600, 0, 1, 0, 0, 3600, 3600}) || fmt.Sprint(a.field("estimated")) != "true" || a.field("jobs") != a.field("computed") {
		t.Errorf("one group: %v %s", got, a.body[:200])
	}
	if got := planned(ask(w.admin, "&group=default&step=6h", day, day.Add(12*time.Hour))); len(got) != 2 || got[0] < 3604 || got[1] != 7201 {
		t.Errorf("by six hours: %v", got)
	}
	if got := planned(ask(w.admin, "&group=default&step=30m", day.Add(4*time.Hour), day.Add(5*time.Hour))); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("by half hours: %v", got)
	}
	if got := planned(ask(w.admin, "&group=paused", day, day.Add(5*time.Hour))); !slices.Equal(got, []int{0, 0, 0, 1, 1}) {
		t.Errorf("a paused group: %v", got)
	}
	viewer := w.confined("vera", "viewer", "other")
	a = ask(viewer, "", day, day.Add(2*time.Hour))
	if got := planned(a); !slices.Equal(got, []int{6, 6}) || fmt.Sprint(a.field("estimated")) != "false" || a.field("jobs") != 1.0 {
		t.Errorf("for a viewer of another group: %v %s", got, a.body)
	}
	if a := ask(viewer, "&group=default", day, day.Add(2*time.Hour)); a.status != 422 {
		t.Errorf("a group that the viewer may not see: %d", a.status)
	}

	hour := time.Now().UTC().Truncate(time.Hour)
	for i, state := range []string{"succeeded", "failed", "failed"} {
		w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
			due_at, created_at, started_at, finished_at, last_line, route) VALUES ($1, 1, 1, 'default', 'schedule', $2, '', '', '', 1, $3, $3, $3, $3, 0, '')`,
			domain.NewRunID(time.Now()), state, hour.Add(-time.Duration(i+1)*time.Second))
	}
	a = ask(w.admin, "&group=default", hour.Add(-2*time.Hour), hour)
	if fmt.Sprint(a.field("cells.0.runs"), a.field("cells.1.runs"), a.field("cells.1.succeeded"), a.field("cells.1.failed"), a.field("cells.1.planned"), a.field("jobs")) != "0 3 1 2 0 0" {
		t.Errorf("the past: %s", a.body)
	}
	for query, at := range map[string]string{"&step=7m": "step", "&step=day": "step", "&step=5m": "step", "&group=none": "group", "&until=1": "until"} {
		if a := ask(w.admin, query, day, day.AddDate(0, 0, 20)); a.status != 422 || a.locations()[0] != at {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	for _, c := range []struct {
		from, to time.Time
		at       string
	}{
		{day, day, "to"},
		{day.AddDate(-2, 0, 0), day.AddDate(-2, 0, 1), "from"},
		{day, day.AddDate(0, 0, 40), "step"},
		{day.AddDate(3, 0, 0), day.AddDate(3, 0, 1), "to"},
		{day, day.AddDate(0, 0, 34), "step"},
	} {
		if a := ask(w.admin, "", c.from, c.to); a.status != 422 || a.locations()[0] != c.at {
			t.Errorf("%s to %s: %d %s", c.from, c.to, a.status, a.body)
		}
	}
}
