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
