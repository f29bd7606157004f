package api_test

import (
	"slices"
	"strings"
	"testing"
)

func TestBackfill(t *testing.T) {
	w := newWorld(t)
	path := w.job(simpleJob) + "/backfill"
	const march = `{"from":"2026-03-01T00:00:00Z","to":"2026-03-04T00:00:00Z"}`
	dry := w.must(202, "POST", path+"?dry_run=true", march)
	if !strings.Contains(dry.body, `"run_ids":[]`) || dry.field("fire_times.2") != "2026-03-03T02:00:00.000Z" || dry.field("next_from") != nil {
		t.Errorf("%s", dry.body)
	}
	made := w.must(202, "POST", path, march, "Idempotency-Key", "march")
	again := w.must(202, "POST", path, march, "Idempotency-Key", "march")
	if made.field("run_ids.2") == nil || made.body != again.body {
		t.Errorf("%s, then %s", made.body, again.body)
	}
	id, _ := made.field("run_ids.0").(string)
	run := w.must(200, "GET", "/api/v1/runs/"+id, "")
	if run.field("cause") != "backfill" || run.field("fire_time") != "2026-03-01T02:00:00.000Z" {
		t.Errorf("%s", run.body)
	}
	if n := strings.Count(w.must(200, "GET", "/api/v1/runs?cause=backfill", "").body, `"cause":"backfill"`); n != 3 {
		t.Errorf("%d runs", n)
	}
	if a := w.must(202, "POST", path, `{"from":"2026-03-01T00:00:00Z","to":"2026-03-04T00:00:00Z","max":1}`); a.field("next_from") != "2026-03-02T02:00:00.000Z" {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "GET", "/api/v1/audit?action=job.backfill", ""); a.field("items.1.after.runs") != 3.0 {
		t.Errorf("%s", a.body)
	}
	for body, want := range map[string][]string{
		`{}`: {"from", "to"},
		`{"from":"2026-03-04T00:00:00Z","to":"2026-03-01T00:00:00Z","max":0}`:     {"max", "to"},
		`{"from":"2026-03-04T00:00:00Z","to":"2026-03-05T00:00:00Z","max":1001}`:  {"max"},
		`{"from":"2999-03-04T00:00:00Z","to":"2999-03-05T00:00:00Z"}`:             {"from"},
		`{"from":"yesterday","to":5,"max":"all","till":"2026-03-05T00:00:00Z"}`:   {"from", "max", "till", "to"},
		`{"from":"2026-03-04T00:00:00Z","to":"2026-03-05T00:00:00Z","dry_run":1}`: {"dry_run"},
	} {
		got := w.must(422, "POST", path, body).locations()
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s names %v, want %v", body, got, want)
		}
	}
	none := w.job(`{"group":"default","name":"by hand","handler":"echo","schedule":{"kind":"none"}}`)
	if a := w.must(422, "POST", none+"/backfill", march); !strings.Contains(a.body, "no fire times of its own") {
		t.Errorf("%s", a.body)
	}
	w.must(404, "POST", "/api/v1/jobs/999/backfill", march)
	w.must(201, "POST", "/api/v1/users", `{"username":"viewer","password":"`+adminPassword+`","role":"viewer","groups":["default"]}`)
	if a := w.do(w.logIn("viewer", adminPassword), "POST", path, march); a.status != 403 {
		t.Errorf("a viewer backfills: %d", a.status)
	}
}
