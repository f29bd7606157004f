package api_test

import (
	"fmt"
	"testing"

	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/bulk"
)

// perform performs a bulk action to its end, as dispatchers do.
func (w *world) perform(id string) {
	w.t.Helper()
	var n int64
	fmt.Sscan(id, &n)
	p := bulk.NewPerformer(w.bulk, w.store, account.New(w.pool).Tokens)
	for {
		step, err := p.Step(w.t.Context(), n)
		if err != nil {
			w.t.Fatal(err)
		}
		if step.Ended {
			return
		}
	}
}

func TestBulkActions(t *testing.T) {
	w := newWorld(t)
	shards, _ := w.family()
	const path = "/api/v1/runs/bulk"
	filter := `{"action":"retry","filter":{"broadcast_id":"` + shards[0].String() + `","state":["succeeded","failed"]}}`
	dry := w.must(202, "POST", path+"?dry_run=true", filter)
	if dry.field("matched") != 3.0 || dry.field("jobs.0.runs") != 3.0 || dry.field("jobs.0.job_name") != "spread" || dry.field("bulk") != nil {
		t.Errorf("%s", dry.body)
	}
	if n := w.count(`SELECT count(*) FROM bulk_actions`); n != 0 {
		t.Errorf("the dry run made %d actions", n)
	}
	made := w.must(202, "POST", path, filter, "Idempotency-Key", "one")
	again := w.must(202, "POST", path, filter, "Idempotency-Key", "one")
	if made.body != again.body || made.field("bulk.state") != "waiting" || made.field("bulk.matched") != 3.0 || made.field("done") != 0.0 {
		t.Errorf("%s\n%s", made.body, again.body)
	}
	id := fmt.Sprint(made.field("id"))
	if n := w.count(`SELECT count(*) FROM river.river_job WHERE kind = 'bulk'`); n != 1 {
		t.Errorf("%d River jobs", n)
	}
	w.perform(id)
	got := w.must(200, "GET", "/api/v1/bulk/"+id, "")
	if got.field("state") != "done" || got.field("counts.done") != 3.0 || got.field("created_by") != "admin" || got.field("finished_at") == nil ||
		got.field("filter.state.1") != "failed" || got.field("undo.action") != "kill" || fmt.Sprint(got.field("undo.filter.bulk_id")) != id {
		t.Errorf("%s", got.body)
	}
	for query, want := range map[string]int{"bulk_id=" + id: 3, "limit=2&bulk_id=" + id: 2, "state=failed&bulk_id=" + id: 0, "bulk_id=999": 0} {
		if a := w.must(200, "GET", "/api/v1/runs?"+query, ""); len(a.field("items").([]any)) != want {
			t.Errorf("%s: %s", query, a.body)
		}
	}
	undo := w.must(202, "POST", path, `{"action":"kill","filter":{"bulk_id":`+id+`}}`)
	second := fmt.Sprint(undo.field("bulk.id"))
	for range 2 {
		if a := w.must(200, "DELETE", "/api/v1/bulk/"+second, ""); a.field("state") != "stopped" || a.field("note") != "stopped by admin" {
			t.Errorf("%s", a.body)
		}
	}
	w.perform(second)
	if n := w.count(`SELECT count(*) FROM runs_live`); n != 3 {
		t.Errorf("%d new runs, although the kill was stopped before it began", n)
	}
	page := w.must(200, "GET", "/api/v1/bulk?limit=1", "")
	next, _ := page.field("next_cursor").(string)
	if fmt.Sprint(page.field("items.0.id")) != second || next == "" {
		t.Fatalf("%s", page.body)
	}
	if page = w.must(200, "GET", "/api/v1/bulk?limit=1&cursor="+next, ""); fmt.Sprint(page.field("items.0.id")) != id || page.field("next_cursor") != "" {
		t.Errorf("%s", page.body)
	}
	for action, want := range map[string]string{"run.bulk_retry": "bulk/" + id, "run.bulk_end": "bulk/" + second, "run.bulk_stop": "bulk/" + second} {
		if a := w.must(200, "GET", "/api/v1/audit?action="+action, ""); a.field("items.0.object") != want || a.field("items.0.after.filter") == nil {
			t.Errorf("%s: %s", action, a.body)
		}
	}
	w.must(404, "GET", "/api/v1/bulk/999", "")
	w.must(404, "DELETE", "/api/v1/bulk/999", "")
	for range bulk.UnfinishedMost {
		w.must(202, "POST", path, `{"action":"kill","filter":{"state":"retrying"}}`)
	}
	if a := w.must(429, "POST", path, `{"action":"kill","filter":{"state":"retrying"}}`); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
}
