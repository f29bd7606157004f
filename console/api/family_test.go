package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// family makes a broadcast of three final shards, of which the last one failed, and a child run of it. It returns their ids.
func (w *world) family() (shards []domain.RunID, child domain.RunID) {
	w.t.Helper()
	w.job(`{"group":"default","name":"spread","handler":"echo","route":"broadcast","schedule":{"kind":"none"}}`)
	w.job(`{"group":"default","name":"after","handler":"echo","schedule":{"kind":"none"}}`)
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	first := domain.NewRunID(at)
	const insert = `INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at,
		created_at, finished_at, last_line, route, instance, shard_index, shard_total, broadcast_id, parent_run_id)
		VALUES ($1, $2, 1, 'default', $3, $4, $5, '', '', 1, $6, $6, $6, 0, '', $7, $8, $9, $10, $11)`
	for i, state := range []string{"succeeded", "succeeded", "failed"} {
		reason := ""
		if state == "failed" {
			reason = "handler_error"
		}
		id := domain.ShardRunID(first, i)
		w.exec(insert, id, 1, "manual", state, reason, at, fmt.Sprintf("i%d", i), i, 3, first, nil)
		shards = append(shards, id)
	}
	child = domain.ChildRunID(first, 2, at)
	w.exec(insert, child, 2, "child", "succeeded", "", at, "i0", nil, nil, nil, first)
	return shards, child
}

func TestABroadcastIsOneThing(t *testing.T) {
	w := newWorld(t)
	shards, child := w.family()
	for _, id := range shards {
		a := w.must(200, "GET", "/api/v1/runs/"+id.String()+"/shards", "")
		if a.field("total") != 3.0 || a.field("counts.failed") != 1.0 || a.field("counts.succeeded") != 2.0 || a.field("broadcast_id") != shards[0].String() {
			t.Errorf("%s", a.body)
		}
		for i, want := range shards {
			if got := a.field(fmt.Sprintf("items.%d.id", i)); got != want.String() {
				t.Errorf("shard %d is %v", i, got)
			}
		}
		if a := w.must(200, "GET", "/api/v1/runs/"+id.String(), ""); a.field("children.0.id") != child.String() || a.field("children.0.job_name") != "after" {
			t.Errorf("%s", a.body)
		}
	}
	if a := w.must(200, "GET", "/api/v1/runs/"+child.String(), ""); a.field("parent_run_id") != shards[0].String() || !strings.Contains(a.body, `"children":[]`) {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "GET", "/api/v1/runs/"+child.String()+"/shards", ""); a.field("total") != 0.0 || a.field("broadcast_id") != nil {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "GET", "/api/v1/runs/"+shards[1].String()+"/children", ""); a.field("items.0.id") != child.String() {
		t.Errorf("%s", a.body)
	}
	count := func(query string) int {
		return strings.Count(w.must(200, "GET", "/api/v1/runs?"+query, "").body, `"job_id"`)
	}
	for query, want := range map[string]int{
		"broadcast_id=" + shards[0].String():                    3,
		"broadcast_id=" + shards[0].String() + "&state=failed":  1,
		"broadcast_id=" + shards[0].String() + "&limit=2":       2,
		"broadcast_id=" + shards[0].String() + "&group=default": 3,
		"broadcast_id=" + child.String():                        0,
		"parent_run_id=" + shards[0].String():                   1,
		"parent_run_id=" + shards[0].String() + "&state=failed": 0,
		"parent_run_id=" + child.String():                       0,
	} {
		if got := count(query); got != want {
			t.Errorf("%s: %d runs, want %d", query, got, want)
		}
	}
	page := w.must(200, "GET", "/api/v1/runs?limit=2&broadcast_id="+shards[0].String(), "")
	if next, _ := page.field("next_cursor").(string); next == "" || count("limit=2&broadcast_id="+shards[0].String()+"&cursor="+next) != 1 {
		t.Errorf("%s", page.body)
	}
	w.must(422, "GET", "/api/v1/runs?broadcast_id="+child.String()+"&parent_run_id="+child.String(), "")
	w.must(422, "GET", "/api/v1/runs?broadcast_id=nonsense", "")
	for _, reason := range domain.Reasons {
		w.must(200, "GET", "/api/v1/runs?reason="+string(reason), "")
	}
	w.must(422, "GET", "/api/v1/runs?reason=mood", "")
	w.must(404, "GET", "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/shards", "")
	w.must(404, "GET", "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/children", "")
}

func TestBulk(t *testing.T) {
	w := newWorld(t)
	shards, _ := w.family()
	const path = "/api/v1/runs/bulk"
	made := w.must(202, "POST", path, `{"action":"retry","max":9,"filter":{"broadcast_id":"`+shards[0].String()+`"}}`)
	if made.field("matched") != 1.0 || made.field("done") != 1.0 || made.field("next_cursor") != "" {
		t.Fatalf("%s", made.body)
	}
	id, _ := made.field("run_ids.0").(string)
	again := w.must(200, "GET", "/api/v1/runs/"+id, "")
	if again.field("shard.index") != 2.0 || again.field("shard.total") != 3.0 || again.field("broadcast_id") != id || again.field("cause") != "manual" {
		t.Errorf("the retry of the shard is %s", again.body)
	}
	if alone := w.must(202, "POST", path, `{"action":"retry","max":9,"filter":{"ids":["`+id+`"],"state":"failed"}}`); alone.field("matched") != 1.0 {
		t.Errorf("a state without brackets: %s", alone.body)
	}
	w.must(202, "POST", path, `{"action":"retry","max":9,"filter":{"ids":["`+id+`"],"state":null}}`)
	for range 5 {
		w.must(202, "POST", "/api/v1/jobs/2/trigger", "{}")
	}
	var killed int
	cursor := ""
	for rounds := 0; rounds == 0 || cursor != ""; rounds++ {
		a := w.must(202, "POST", path, `{"action":"kill","filter":{"job_id":2},"max":2,"cursor":"`+cursor+`"}`)
		killed += int(a.field("done").(float64))
		cursor, _ = a.field("next_cursor").(string)
		if rounds > 3 {
			t.Fatalf("next_cursor is not empty after %d rounds: %s", rounds, a.body)
		}
	}
	if killed != 5 || len(w.fleet.ended) != 5 {
		t.Errorf("%d runs were killed, and the dispatcher got %d kills", killed, len(w.fleet.ended))
	}
	byID := w.must(202, "POST", path, `{"action":"retry","max":9,"filter":{"ids":["`+id+`","`+shards[1].String()+`"]}}`)
	if byID.field("matched") != 2.0 || byID.field("done") != 1.0 || byID.field("skipped") != 1.0 { // one is not final
		t.Errorf("%s", byID.body)
	}
	if a := w.must(200, "GET", "/api/v1/audit?action=run.bulk_kill", ""); a.field("items.0.after.filter.job_id") != 2.0 {
		t.Errorf("%s", a.body)
	}
	// If the client disconnects halfway, the audit log has the part that was done.
	gone, leave := context.WithCancel(t.Context())
	w.fleet.kills = leave
	for range 2 {
		w.must(202, "POST", "/api/v1/jobs/2/trigger", "{}")
	}
	r := httptest.NewRequestWithContext(gone, "POST", path, strings.NewReader(`{"action":"kill","max":9,"filter":{"job_id":2}}`))
	r.Header.Set("Authorization", "Bearer "+w.admin)
	r.Header.Set("Content-Type", "application/json")
	w.api.ServeHTTP(httptest.NewRecorder(), r)
	if a := w.must(200, "GET", "/api/v1/audit?action=run.bulk_kill", ""); a.field("items.0.after.done") != 1.0 {
		t.Errorf("after a disconnect halfway the audit log has %s", a.body)
	}
	for body, want := range map[string][]string{
		`{}`: {"action", "filter"},
		`{"action":"kill","filter":{"group":"nowhere"}}`:                                                {"filter.group"},
		`{"action":"stop","filter":{"state":["failed","done"],"cause":"luck","reason":"mood"},"max":0}`: {"action", "filter.cause", "filter.reason", "filter.state[1]", "max"},
		`{"action":"kill","filter":{"state":["failed"]}}`:                                               {"filter.state[0]"},
		`{"action":"retry","filter":{"state":["running"],"jobs":1}}`:                                    {"filter.jobs", "filter.state[0]"},
		`{"action":"kill","filter":{"ids":["x"],"from":"soon","job_id":"2"}}`:                           {"filter.from", "filter.ids[0]", "filter.job_id"},
		`{"action":"retry","filter":{"state":5}}`:                                                       {"filter", "filter.state"},
		`{"action":"kill","filter":{"job_id":2},"cursor":"x"}`:                                          {"cursor"},
		`{"action":"kill","filter":{"broadcast_id":"` + id + `","parent_run_id":"` + id + `"}}`:         {"filter.parent_run_id"},
	} {
		got := w.must(422, "POST", path, body).locations()
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s names %v, want %v", body, got, want)
		}
	}
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"`+adminPassword+`","role":"operator","groups":["other"]}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"viewer","password":"`+adminPassword+`","role":"viewer","groups":["default"]}`)
	op, viewer := w.logIn("op", adminPassword), w.logIn("viewer", adminPassword)
	for _, filter := range []string{`{"job_id":2}`, `{"ids":["` + id + `"]}`, `{"broadcast_id":"` + shards[0].String() + `"}`} {
		if a := w.do(op, "POST", path, `{"action":"retry","max":9,"filter":`+filter+`}`); a.status != 202 || a.field("matched") != 0.0 {
			t.Errorf("%s of another group: %s", filter, a.body)
		}
	}
	if a := w.do(viewer, "POST", path, `{"action":"kill","filter":{"job_id":2}}`); a.status != 403 {
		t.Errorf("a viewer kills: %d", a.status)
	}
	if a := w.do(op, "GET", "/api/v1/runs/"+id+"/shards", ""); a.status != 404 {
		t.Errorf("the shards of another group: %d", a.status)
	}
}

// If a job has moved to a group that the caller may not see, the caller cannot retry its old runs.
func TestRetryOfAJobThatMoved(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	run := w.running()
	w.end(run, 0)
	w.must(201, "POST", "/api/v1/groups", `{"name":"secret"}`)
	w.must(200, "PATCH", "/api/v1/jobs/1", `{"group":"secret"}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"a-good-password","role":"operator","groups":["default"]}`)
	op := w.logIn("op", "a-good-password")
	path := "/api/v1/runs/" + run.String() + "/retry"
	if a := w.do(op, "POST", path, ""); a.status != 409 || strings.Contains(a.body, "secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do(op, "POST", "/api/v1/runs/bulk", `{"action":"retry","max":9,"filter":{"ids":["`+run.String()+`"]}}`); a.field("skipped") != 1.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := w.count(`SELECT count(*) FROM runs_live`); n != 0 {
		t.Errorf("%d runs were made", n)
	}
	w.must(202, "POST", path, "")
}
