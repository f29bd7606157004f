package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// planned=false leaves out runs that are not due, for every filter and for callers of one group. Without it, lists are as before.
func TestRunsWithoutPlanned(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	viewer := w.must(201, "POST", "/api/v1/tokens", `{"name":"vi","role":"viewer","groups":["default"]}`).field("token").(string)
	stranger := w.must(201, "POST", "/api/v1/tokens", `{"name":"st","role":"viewer","groups":["other"]}`).field("token").(string)
	var ids []string
	for i, held := range []bool{false, true, true} {
		due := time.Now().Add(time.Hour)
		if held {
			due = time.Now().Add(-time.Hour)
		}
		id := domain.NewRunID(due.Add(time.Duration(-i) * time.Second))
		w.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, fire_time, due_at, held, held_by)
		        VALUES ($1, 1, 1, 'default', 'schedule', 'pending', $2, $2, $3, CASE WHEN $3 THEN gen_random_uuid() END)`, id, due, held)
		ids = append(ids, id.String())
	}
	for query, want := range map[string]string{
		"": "0 1 2", "planned=true": "0 1 2", "planned=false": "1 2", "planned=false&group=default": "1 2", "planned=false&job_id=1": "1 2",
		"planned=false&state=pending": "1 2", "state=pending": "0 1 2", "planned=false&state=failed": "", "planned=false&limit=1": "1",
	} {
		for _, token := range []string{w.admin, viewer} {
			a := w.do(token, "GET", "/api/v1/runs?"+query, "")
			var got []string
			for i, id := range ids {
				if strings.Contains(a.body, `"id":"`+id) {
					got = append(got, fmt.Sprint(i))
				}
			}
			if a.status != 200 || strings.Join(got, " ") != want {
				t.Errorf("%q: %s, want %s: %s", query, got, want, a.body)
			}
		}
	}
	next := w.must(200, "GET", "/api/v1/runs?planned=false&limit=1", "").field("next_cursor").(string)
	if a := w.must(200, "GET", "/api/v1/runs?planned=false&limit=1&cursor="+next, ""); !strings.Contains(a.body, ids[2]) || a.field("next_cursor") != "" {
		t.Errorf("the second page: %s", a.body)
	}
	if a := w.do(stranger, "GET", "/api/v1/runs?planned=false", ""); a.status != 200 || strings.Contains(a.body, "job_id") {
		t.Errorf("a viewer of another group: %s", a.body)
	}
}

// q finds texts of the runs that the caller may see, page by page, and says how far back it searched. A viewer cannot find masked secrets.
func TestSearchRuns(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	viewer := w.must(201, "POST", "/api/v1/tokens", `{"name":"vi","role":"viewer","groups":["default"]}`).field("token").(string)
	base := time.Now().UTC().Truncate(time.Minute).Add(-time.Minute)
	var ids []string
	for i, group := range []string{"default", "default", "other", "default"} {
		id := domain.NewRunID(base.Add(time.Duration(i) * time.Second))
		w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt, due_at, created_at, finished_at, last_line, route)
		        VALUES ($1, 1, 1, $2, 'manual', 'failed', 'handler_error', 'Disk full', 'password=hunter2', 'n=' || $3::text, 1, now(), now(), now(), 0, '')`, id, group, fmt.Sprint(i))
		ids = append(ids, id.String())
	}
	found := func(token, query string) (string, answer) {
		t.Helper()
		a := w.do(token, "GET", "/api/v1/runs?"+query, "")
		if a.status != 200 {
			t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		var got []string
		for i, id := range ids {
			if strings.Contains(a.body, `"id":"`+id) {
				got = append(got, fmt.Sprint(i))
			}
		}
		return strings.Join(got, " "), a
	}
	for _, c := range []struct{ query, admin, viewer string }{
		{"q=dISK", "0 1 2 3", "0 1 3"}, {"q=disk&group=other", "2", ""}, {"q=disk&state=failed&job_id=1&planned=false", "0 1 2 3", "0 1 3"}, {"q=n%3D1", "1", "1"},
		{"q=hunter2", "0 1 2 3", ""}, {"q=password%3Dh", "0 1 2 3", ""}, {"q=password%3D%E2%80%A2", "", "0 1 3"}, {"q=nothing", "", ""},
		{"q=disk&from=" + base.Add(time.Second).Format(time.RFC3339), "1 2 3", "1 3"}, {"q=", "0 1 2 3", "0 1 3"},
	} {
		if got, a := found(w.admin, c.query); got != c.admin || (a.field("searched_back_to") == nil) != (c.query == "q=") || a.field("next_cursor") != "" {
			t.Errorf("%s: %q, want %q: %s", c.query, got, c.admin, a.body)
		}
		if c.query == "q=disk&group=other" {
			continue // a viewer gets 422, as for each list of a group that they do not see
		}
		if got, a := found(viewer, c.query); got != c.viewer {
			t.Errorf("a viewer's %s: %q, want %q: %s", c.query, got, c.viewer, a.body)
		}
	}
	cursor, back := "", ""
	for i, want := range []string{"3", "2", "1", "0"} {
		got, a := found(w.admin, "q=disk&limit=1&cursor="+cursor)
		cursor, _ = a.field("next_cursor").(string)
		back, _ = a.field("searched_back_to").(string)
		if got != want || (cursor == "") != (i == 3) {
			t.Errorf("page %d: %s", i, a.body)
		}
	}
	if back != domain.At(base).String() {
		t.Errorf("searched back to %s, want the oldest run", back)
	}
	for query, at := range map[string]string{"q=x": "q", "q=" + strings.Repeat("x", 201): "q", "bulk_id=0": "bulk_id", "q=a%00b": "q",
		"bulk_id=1&broadcast_id=" + ids[0]: "bulk_id"} {
		if a := w.must(422, "GET", "/api/v1/runs?"+query, ""); fmt.Sprint(a.locations()) != "["+at+"]" {
			t.Errorf("%s: %s", query, a.body)
		}
	}
}
