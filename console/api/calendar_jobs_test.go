package api_test

import (
	"net/url"
	"testing"
	"time"
)

func TestCalendarJobs(t *testing.T) {
	w := newWorld(t)
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)
	w.job(`{"group":"default","name":"at two","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *"}}`)
	w.job(`{"group":"default","name":"often","handler":"echo","schedule":{"kind":"cron","expr":"*/10 * * * *"}}`)
	off := w.job(`{"group":"default","name":"off","handler":"echo","schedule":{"kind":"cron","expr":"* * * * *"}}`)
	w.must(200, "POST", off+"/disable", "")
	ask := func(from, to time.Time) answer {
		q := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
		return w.do(w.admin, "GET", "/api/v1/calendar/jobs?"+q.Encode(), "")
	}
	a := ask(day.Add(2*time.Hour), day.Add(3*time.Hour))
	for path, want := range map[string]any{
		"jobs": 2.0, "computed": 2.0, "items.0.job_name": "often", "items.0.planned": 6.0, "items.1.job_name": "at two", "items.1.planned": 1.0,
		"items.1.first_fire_time": day.Add(2 * time.Hour).Format("2006-01-02T15:04:05.000Z"), "items.2": nil,
	} {
		if got := a.field(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if a := ask(day.Add(3*time.Hour), day.Add(4*time.Hour)); a.field("jobs") != 1.0 {
		t.Errorf("an hour later only one job should fire: %s", a.body)
	}
	for _, span := range []time.Duration{-time.Hour, 25 * time.Hour} {
		if a := ask(day, day.Add(span)); a.status != 422 {
			t.Errorf("a span of %v: %d", span, a.status)
		}
	}
}
