package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCalendars(t *testing.T) {
	w := newWorld(t)
	const calendars = "/api/v1/calendars"
	made := w.must(201, "POST", calendars, `{"name":"holidays","description":"closed","weekdays":["sunday","saturday"],"dates":["2027-01-01","2026-12-25","2027-01-01"]}`)
	const days = `"name":"holidays","description":"closed","weekdays":["saturday","sunday"],"dates":["2026-12-25","2027-01-01"],"jobs":0,"version":1,`
	if !strings.Contains(made.body, days) || made.field("updated_by") != "admin" || made.header.Get("ETag") != `"1"` {
		t.Errorf("created: %s", made.body)
	}
	w.must(201, "POST", calendars, `{"name":"empty"}`)
	list := w.must(200, "GET", calendars+"?limit=1", "")
	if next, _ := list.field("next_cursor").(string); list.field("items.0.name") != "empty" || next == "" ||
		w.must(200, "GET", calendars+"?limit=1&cursor="+next, "").field("items.0.name") != "holidays" {
		t.Errorf("the list: %s", list.body)
	}

	// A job can name a calendar in a POST, PATCH and PUT. The job's internal copy of the days is not shown.
	const spec = `{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *","calendar":"holidays"}}`
	job := w.job(spec)
	w.must(200, "PATCH", job, `{"author":"ann"}`)
	w.must(200, "PUT", job, spec)
	shown := w.must(200, "GET", job, "")
	if shown.field("schedule.calendar") != "holidays" || strings.Contains(shown.body, "2026-12-25") || fmt.Sprint(shown.field("version")) != "3" {
		t.Errorf("the job: %s", shown.body)
	}
	w.must(200, "PUT", job, spec)
	if again := w.must(200, "GET", job, ""); fmt.Sprint(again.field("version")) != "3" {
		t.Errorf("after a PUT without changes: %s", again.body)
	}
	times := func(a answer) string { return fmt.Sprint(a.field("fire_times")) }
	preview := func(calendar string) answer {
		return w.must(200, "POST", "/api/v1/schedules/preview", `{"from":"2026-12-24T12:00:00Z","count":3,"schedule":{"kind":"cron","expr":"0 2 * * *"`+calendar+`}}`)
	}
	with := preview(`,"calendar":"holidays"`)
	if got := times(with); got != "[2026-12-28T02:00:00.000Z 2026-12-29T02:00:00.000Z 2026-12-30T02:00:00.000Z]" ||
		with.field("description") != "At 02:00 every day, UTC, except on days off of calendar holidays" {
		t.Errorf("the preview: %s", with.body)
	}
	if got := times(preview("")); !strings.HasPrefix(got, "[2026-12-25T02:00:00.000Z 2026-12-26T") {
		t.Errorf("the preview without it: %s", got)
	}
	coming, _ := w.must(200, "GET", job+"/next?count=20", "").field("fire_times").([]any)
	for _, f := range coming {
		if day, err := time.Parse(time.RFC3339, fmt.Sprint(f)); err != nil || day.Weekday() == time.Saturday || day.Weekday() == time.Sunday {
			t.Errorf("%s is a fire time", f)
		}
	}
	if len(coming) != 20 {
		t.Errorf("%d fire times to come", len(coming))
	}

	// A change of the days makes a new version of the calendar's jobs.
	etag := w.must(200, "PUT", calendars+"/holidays", `{"name":"holidays","dates":["2026-12-26"],"version":1,"jobs":7}`, "If-Match", `"1"`).header.Get("ETag")
	if now := w.must(200, "GET", calendars+"/holidays", ""); etag != `"2"` || !strings.Contains(now.body, `"description":"","weekdays":[],"dates":["2026-12-26"],"jobs":1,"version":2`) {
		t.Errorf("replaced: %s", now.body)
	}
	if now := w.must(200, "GET", job, ""); fmt.Sprint(now.field("version")) != "4" {
		t.Errorf("the job, after a change of its calendar: %s", now.body)
	}
	for query, want := range map[string]string{"holidays": "nightly", "empty": "<nil>"} {
		if a := w.must(200, "GET", "/api/v1/jobs?calendar="+query, ""); fmt.Sprint(a.field("items.0.name")) != want {
			t.Errorf("jobs by calendar %s: %s", query, a.body)
		}
	}
	if a := w.must(409, "DELETE", calendars+"/holidays", ""); !strings.Contains(a.body, "default/nightly (1)") {
		t.Errorf("deleting a calendar that a job uses: %s", a.body)
	}
	w.must(204, "DELETE", calendars+"/empty", "", "If-Match", `"1"`)
	for _, action := range []string{"calendar.create", "calendar.update", "calendar.delete"} {
		if a := w.must(200, "GET", "/api/v1/audit", ""); !strings.Contains(a.body, `"`+action+`"`) {
			t.Errorf("no %s in the audit log", action)
		}
	}

	for _, row := range []struct {
		name, method, path, body string
		status                   int
		locations, says          string
	}{
		{"a name that is taken", "POST", calendars, `{"name":"holidays"}`, 409, "[name]", "a calendar of this name exists"},
		{"many faults at once", "POST", calendars, `{"name":"No","weekdays":["sat",5],"dates":["2026-12-25","tomorrow",null,7,"2200-01-01"],"bogus":1}`, 422,
			"[weekdays[1] dates[1] dates[3] bogus name weekdays[0] dates[2] dates[4]]", `is no date; write it like 2026-12-25`},
		{"every day", "POST", calendars, `{"name":"a","weekdays":["monday","tuesday","wednesday","thursday","friday","saturday","sunday"]}`, 422, "[weekdays]", "are all seven"},
		{"a read-only field", "POST", calendars, `{"name":"a","jobs":1}`, 422, "[jobs]", "is read only"},
		{"another name", "PUT", calendars + "/holidays", `{"name":"other"}`, 422, "[name]", "cannot be changed"},
		{"a stale version", "PUT", calendars + "/holidays", `{"version":1}`, 409, "[]", "the calendar is at version 2, not 1"},
		{"show an unknown calendar", "GET", calendars + "/nix", "", 404, "[]", "there is no calendar of this name"},
		{"change an unknown calendar", "PUT", calendars + "/nix", `{}`, 404, "[]", ""},
		{"delete an unknown calendar", "DELETE", calendars + "/nix", "", 404, "[]", ""},
		{"an unknown calendar in a job", "POST", "/api/v1/jobs", strings.NewReplacer("nightly", "x", "holidays", "nix").Replace(spec), 422, "[schedule.calendar]", "make it first"},
		{"a schedule of a kind without calendars", "POST", "/api/v1/jobs", `{"group":"default","name":"x","handler":"echo","schedule":{"kind":"none","calendar":"holidays"}}`, 422, "[schedule.calendar]", "belongs to kinds cron and fixed_rate"},
		{"days off in a job", "PATCH", job, `{"schedule":{"days_off":{"dates":[]}}}`, 422, "[schedule.days_off]", "is not a known field"},
		{"an unknown calendar in a preview", "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"61 * * * *","calendar":"nix"}}`, 422, "[schedule.calendar schedule.expr]", "there is no calendar"},
	} {
		a := w.do(w.admin, row.method, row.path, row.body)
		if a.status != row.status || fmt.Sprint(a.locations()) != row.locations || !strings.Contains(a.body, row.says) {
			t.Errorf("%s: %d %v %s", row.name, a.status, a.locations(), a.body)
		}
	}
}
