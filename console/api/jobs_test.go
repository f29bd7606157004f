package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// A row is a request and its expected answer. Rows run in order on one database, so later rows depend on earlier ones.
type row struct {
	name         string
	method, path string
	body         string
	status       int
	fields       map[string]any // of the answer, by path
	headers      []string       // sent, in pairs
}

func (w *world) rows(rows []row) {
	for _, r := range rows {
		w.t.Run(r.name, func(t *testing.T) {
			a := w.do(w.admin, r.method, r.path, r.body, r.headers...)
			if a.status != r.status {
				t.Fatalf("%s %s: %d, want %d: %s", r.method, r.path, a.status, r.status, a.body)
			}
			for path, want := range r.fields {
				if got := a.field(path); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s is %v, want %v: %s", path, got, want, a.body)
				}
			}
			if r.status < 300 && r.status != 204 && strings.Contains(a.body, ":null,") && strings.Contains(a.body, `"items":null`) {
				t.Errorf("a list is null: %s", a.body)
			}
		})
	}
}

func TestJobs(t *testing.T) {
	const jobs = "/api/v1/jobs"
	put := `{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"fixed_rate","every":"1h"},"version":2,"id":1,"created_at":"2001-01-01T00:00:00Z","note":"x","last_fire_time":null}`
	newWorld(t).rows([]row{
		{"none", "GET", jobs, "", 200, map[string]any{"items": "[]", "next_cursor": ""}, nil},
		{"create with defaults", "POST", jobs, simpleJob, 201, map[string]any{
			"id": 1, "version": 1, "enabled": true, "tags": "[]", "children": "[]", "misfire": "skip", "route": "any", "block": "serial",
			"block_scope": "cluster", "timeout": "0s", "start_deadline": "10m", "retries": 0, "param": "", "runbook_url": "",
			"retry_backoff.initial": "1s", "retry_backoff.factor": 2, "retry_backoff.max": "5m", "schedule.dialect": "standard",
			"alert.channels": "[]", "alert.on": "[]", "last_fire_time": nil}, nil},
		{"show", "GET", jobs + "/1", "", 200, map[string]any{"name": "nightly"}, nil},
		{"patch some", "PATCH", jobs + "/1", `{"retries":3,"tags":["a","b"],"retry_backoff":{"max":"1m"},"param":"p"}`, 200, map[string]any{
			"version": 2, "retries": 3, "tags.1": "b", "retry_backoff.max": "1m", "retry_backoff.initial": "1s", "schedule.expr": "0 2 * * *"}, nil},
		{"patch the runbook", "PATCH", jobs + "/1", `{"runbook_url":"ftp://wiki.test"}`, 422, map[string]any{"errors.0.location": "runbook_url"}, nil},
		{"patch nothing", "PATCH", jobs + "/1", `{}`, 200, map[string]any{"version": 2, "retries": 3}, nil},
		{"patch to the default", "PATCH", jobs + "/1", `{"retries":null,"retry_backoff":null,"tags":null}`, 200, map[string]any{
			"version": 3, "retries": 0, "retry_backoff.max": "5m", "tags": "[]", "param": "p"}, nil},
		{"patch another kind of schedule", "PATCH", jobs + "/1", `{"schedule":{"kind":"none","expr":null,"dialect":null}}`, 200, map[string]any{
			"version": 4, "schedule.kind": "none", "schedule.expr": nil, "next_fire_time": nil}, nil},
		{"put a stale version", "PUT", jobs + "/1", put, 409, nil, nil},
		{"put with read-only fields", "PUT", jobs + "/1", strings.Replace(put, `"version":2`, `"version":4`, 1), 200, map[string]any{
			"id": 1, "version": 5, "schedule.every": "1h", "param": "", "note": nil}, nil},
		{"patch with If-Match", "PATCH", jobs + "/1", `{"author":"me"}`, 200, map[string]any{"version": 6}, []string{"If-Match", `"5"`}},
		{"the same again", "PATCH", jobs + "/1", `{"author":"you"}`, 409, nil, []string{"If-Match", `"5"`}},
		{"disable", "POST", jobs + "/1/disable", "", 200, map[string]any{"enabled": false, "version": 7, "next_fire_time": nil}, nil},
		{"disable again", "POST", jobs + "/1/disable", "{}", 200, map[string]any{"enabled": false, "version": 7}, nil},
		{"enable a stale one", "POST", jobs + "/1/enable", "", 409, nil, []string{"If-Match", `"6"`}},
		{"enable", "POST", jobs + "/1/enable", "", 200, map[string]any{"enabled": true, "version": 8}, []string{"If-Match", `"7"`}},
		{"a second", "POST", jobs, `{"group":"default","name":"Weekly Report","handler":"report","tags":["x"],"enabled":false,"schedule":{"kind":"cron","expr":"0 0 * * 7"}}`, 201, map[string]any{"id": 2, "enabled": false}, nil},
		{"a first page", "GET", jobs + "?limit=1", "", 200, map[string]any{"items.0.id": 1, "items.1": nil}, nil},
		{"by group", "GET", jobs + "?group=default", "", 200, map[string]any{"items.0.id": 1, "items.1.id": 2, "next_cursor": ""}, nil},
		{"by an unknown group", "GET", jobs + "?group=other", "", 422, map[string]any{"errors.0.location": "group", "errors.0.message": `there is no group "other"`}, nil},
		{"by words", "GET", jobs + "?q=REPORT", "", 200, map[string]any{"items.0.id": 2, "items.1": nil}, nil},
		{"by tag", "GET", jobs + "?tag=x", "", 200, map[string]any{"items.0.id": 2, "items.1": nil}, nil},
		{"by enabled", "GET", jobs + "?enabled=false", "", 200, map[string]any{"items.0.id": 2, "items.1": nil}, nil},
		{"by kind", "GET", jobs + "?kind=fixed_rate", "", 200, map[string]any{"items.0.id": 1, "items.1": nil}, nil},
		{"no missed", "GET", jobs + "/1/missed", "", 200, map[string]any{"items": "[]"}, nil},
		{"next", "GET", jobs + "/2/next?count=3", "", 200, map[string]any{"fire_times.3": nil}, nil},
		{"preview", "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"0 2 * * *","time_zone":"Asia/Shanghai"},"count":2,"from":"2026-01-01T00:00:00Z"}`, 200,
			map[string]any{"fire_times.0": "2026-01-01T18:00:00.000Z", "fire_times.1": "2026-01-02T18:00:00.000Z", "description": "At 02:00 every day, Asia/Shanghai", "time_zone": "Asia/Shanghai"}, nil},
		{"preview without a zone", "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"0 2 * * *"}}`, 200, map[string]any{"time_zone": "UTC"}, nil},
		{"preview of a schedule that never fires", "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"0 0 30 2 *"}}`, 200, map[string]any{"fire_times": "[]"}, nil},
		{"delete", "DELETE", jobs + "/2", "", 204, nil, nil},
		{"deleted", "GET", jobs + "/2", "", 404, nil, nil},
		{"delete again", "DELETE", jobs + "/2", "", 404, nil, nil},
	})
}

func TestPages(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.job(fmt.Sprintf(`{"group":"default","name":"job %d","handler":"echo","schedule":{"kind":"none"}}`, i))
	}
	var ids []any
	path := "/api/v1/jobs?limit=3"
	for cursor := ""; ; {
		a := w.must(200, "GET", path+"&cursor="+cursor, "")
		for _, item := range a.field("items").([]any) {
			ids = append(ids, item.(map[string]any)["id"])
		}
		if cursor, _ = a.field("next_cursor").(string); cursor == "" {
			break
		}
	}
	if fmt.Sprint(ids) != "[1 2 3 4 5 6 7]" {
		t.Errorf("the pages have %v", ids)
	}
}

// A job in a list has the same fields as the job alone.
func TestListedJobs(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	w.job(`{"group":"default","name":"past","handler":"echo","schedule":{"kind":"once","at":"2001-01-01T00:00:00Z"}}`)
	w.job(`{"group":"default","name":"off","handler":"echo","enabled":false,"schedule":{"kind":"fixed_rate","every":"1s"}}`)
	fired := w.running()
	w.exec(`UPDATE runs_live SET cause = 'schedule', fire_time = now() WHERE id = $1`, fired)
	list := w.must(200, "GET", "/api/v1/jobs", "").field("items").([]any)
	for i, listed := range list {
		single := w.must(200, "GET", fmt.Sprintf("/api/v1/jobs/%d", i+1), "")
		for name, value := range listed.(map[string]any) {
			if fmt.Sprint(single.field(name)) != fmt.Sprint(value) {
				t.Errorf("job %d: %s is %v in the list, %v alone", i+1, name, value, single.field(name))
			}
		}
	}
	first, past := list[0].(map[string]any), list[1].(map[string]any)
	if first["next_fire_time"] == nil || first["last_fire_time"] == nil || past["note"] == nil {
		t.Errorf("the jobs are %v and %v", first, past)
	}
}

func TestTrigger(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	token := w.must(201, "POST", "/api/v1/tokens", `{"name":"ci"}`).field("token").(string)
	causes := map[string]string{w.admin: "manual", token: "api"}
	for who, cause := range causes {
		a := w.do(who, "POST", job+"/trigger", `{"param":"hello","fire_time":"2026-03-01T00:00:00Z"}`)
		if a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		run := w.must(200, "GET", "/api/v1/runs/"+a.field("run_ids.0").(string), "")
		for path, want := range map[string]any{"cause": cause, "param": "hello", "state": "pending", "job_name": "nightly", "group": "default",
			"fire_time": "2026-03-01T00:00:00.000Z", "max_attempts": 1.0, "attempt": 1.0, "shard": nil, "broadcast_id": nil} {
			if got := run.field(path); got != want {
				t.Errorf("%s is %v, want %v", path, got, want)
			}
		}
		if list, ok := run.field("attempts").([]any); !ok || len(list) != 0 {
			t.Errorf("attempts are %v", run.field("attempts"))
		}
	}
	// Without a body the run gets the job's param.
	w.must(200, "PATCH", job, `{"param":"own","retries":4}`)
	a := w.must(202, "POST", job+"/trigger", "")
	run := w.must(200, "GET", "/api/v1/runs/"+a.field("run_ids.0").(string), "")
	if run.field("param") != "own" || run.field("max_attempts") != 5.0 {
		t.Errorf("the run is %s", run.body)
	}
	list := w.must(200, "GET", "/api/v1/runs?job_id=1&state=pending,queued&cause=manual", "")
	if n := len(list.field("items").([]any)); n != 2 {
		t.Errorf("%d runs by hand, want 2", n)
	}
	w.must(202, "POST", "/api/v1/runs/"+a.field("run_ids.0").(string)+"/kill", "")
	if len(w.fleet.ended) != 1 {
		t.Error("the kill did not reach the dispatcher")
	}
	w.must(409, "POST", "/api/v1/runs/"+a.field("run_ids.0").(string)+"/retry", "")
}

func TestIdempotency(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	key := []string{"Idempotency-Key", "one"}
	first := w.must(202, "POST", job+"/trigger", `{"param":"a"}`, key...)
	again := w.must(202, "POST", job+"/trigger", `{"param":"a"}`, key...)
	if first.body != again.body || again.header.Get("Idempotency-Replayed") != "true" || first.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("repeated: %s %v, first %s", again.body, again.header, first.body)
	}
	if a := w.must(422, "POST", job+"/trigger", `{"param":"b"}`, key...); a.locations()[0] != "Idempotency-Key" {
		t.Errorf("another body: %s", a.body)
	}
	// Keys of other users and other routes are different keys.
	w.must(201, "POST", "/api/v1/users", `{"username":"ann","password":"long enough","role":"admin"}`)
	if a := w.do(w.logIn("ann", "long enough"), "POST", job+"/trigger", `{"param":"a"}`, key...); a.status != 202 || a.body == first.body {
		t.Errorf("another user: %d %s", a.status, a.body)
	}
	// A failed request frees its key.
	w.must(422, "POST", "/api/v1/jobs", `{"name":"x"}`, key...)
	made := w.must(201, "POST", "/api/v1/jobs", strings.Replace(simpleJob, "nightly", "other", 1), key...)
	if a := w.must(201, "POST", "/api/v1/jobs", strings.Replace(simpleJob, "nightly", "other", 1), key...); a.field("id") != made.field("id") {
		t.Errorf("a second job was made: %s", a.body)
	}
	// Stored answers contain no secrets.
	secret := w.must(201, "POST", "/api/v1/groups", `{"name":"g"}`, key...).field("token").(string)
	if a := w.must(201, "POST", "/api/v1/groups", `{"name":"g"}`, key...); a.field("token") != "" || a.field("name") != "g" {
		t.Errorf("the stored answer is %s", a.body)
	}
	var kept int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE convert_from(response, 'utf8') LIKE '%' || $1 || '%'`, secret).Scan(&kept); err != nil || kept != 0 {
		t.Errorf("the token is stored in %d rows (%v)", kept, err)
	}
	// The first request is in progress, and then its process has died.
	w.exec(`UPDATE idempotency_keys SET status = NULL, response = NULL WHERE route LIKE '%trigger' AND actor = 'user/1'`)
	w.must(409, "POST", job+"/trigger", `{"param":"a"}`, key...)
	w.exec(`UPDATE idempotency_keys SET created_at = now() - interval '3 minutes'`)
	w.must(202, "POST", job+"/trigger", `{"param":"a"}`, key...)
	// After a day the key is free.
	w.exec(`UPDATE idempotency_keys SET created_at = now() - interval '25 hours'`)
	w.must(202, "POST", job+"/trigger", `{"param":"b"}`, key...)
}

// A trigger for an instance that is not live names the live ones. It makes no run, because other runs would wait behind it.
func TestTriggerOnAnInstance(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	many := []string{}
	for i := range 12 {
		many = append(many, fmt.Sprintf("i%02d", 11-i))
	}
	for _, c := range []struct {
		live []string
		says string
	}{
		{[]string{}, "none is live"}, {nil, "live: one"},
		{many, "live are i00, i01, i02, i03, i04, i05, i06, i07, i08, i09 and 2 more"},
	} {
		w.fleet.live = c.live
		if a := w.must(422, "POST", job+"/trigger", `{"instance":"nope"}`); !strings.Contains(a.body, c.says) || !strings.Contains(a.body, "nope") {
			t.Errorf("with %v: %s", c.live, a.body)
		}
	}
	other := w.job(strings.Replace(strings.Replace(simpleJob, "nightly", "other", 1), "echo", "else", 1))
	if a := w.must(422, "POST", other+"/trigger", `{"instance":"i03"}`); !strings.Contains(a.body, "i03 is live, but does not offer else") {
		t.Error(a.body)
	}
	w.fleet.live = []string{"drains", "i03"}
	if a := w.must(422, "POST", job+"/trigger", `{"instance":"drains"}`); !strings.Contains(a.body, "is draining") {
		t.Error(a.body)
	}
	w.must(202, "POST", job+"/trigger", `{"instance":"i03"}`)
	if n := len(w.must(200, "GET", "/api/v1/runs", "").field("items").([]any)); n != 1 {
		t.Errorf("%d runs were made", n)
	}
}

// The runs of a deleted group stay, and can be listed by its name.
func TestRunsOfADeletedGroup(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"gone"}`)
	job := w.job(strings.Replace(simpleJob, "default", "gone", 1))
	w.must(202, "POST", job+"/trigger", "")
	w.must(204, "DELETE", job, "")
	w.must(204, "DELETE", "/api/v1/groups/gone", "")
	if a := w.must(200, "GET", "/api/v1/runs?group=gone", ""); a.field("items.0.group") != "gone" {
		t.Errorf("the runs are %s", a.body)
	}
}

func TestJobsWithLastRuns(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	w.job(simpleJob)
	w.job(strings.Replace(strings.Replace(simpleJob, "nightly", "spread", 1), `{"`, `{"route":"broadcast","`, 1))
	w.job(strings.Replace(simpleJob, "nightly", "idle", 1))
	start := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
	w.exec(`SELECT make_day(d::date) FROM generate_series(timestamp '2026-11-01', '2026-11-07', '1 day') d`)
	run := func(job, day int, group, state, reason string, shard *domain.Shard, broadcast *domain.RunID) domain.RunID {
		t.Helper()
		fire := start.AddDate(0, 0, day)
		id := domain.ScheduledRunID(domain.JobID(job), fire, 0)
		var index, total *int
		if shard != nil {
			index, total = &shard.Index, &shard.Total
			id = domain.ShardRunID(id, shard.Index)
		}
		if state == "running" {
			w.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, fire_time, due_at, started_at)
			        VALUES ($1, $2, 1, $3, 'schedule', 'running', $4, $4, $4)`, id, job, group, fire)
			return id
		}
		w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, fire_time,
		        due_at, created_at, started_at, finished_at, last_line, route, shard_index, shard_total, broadcast_id)
		        VALUES ($1, $2, 1, $3, 'schedule', $4, $5, '', '', 1, $6, $6, $6, $6, $6::timestamptz + interval '1500 ms', 0, '', $7, $8, $9)`,
			id, job, group, state, reason, fire, index, total, broadcast)
		return id
	}
	run(1, 0, "default", "succeeded", "", nil, nil)
	failed := run(1, 1, "default", "failed", "timeout", nil, nil)
	w.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why)
	        VALUES (1, '2026-11-03T02:00:00Z', '2026-11-05T02:00:00Z', 3, 'skip', 'nobody was there')`)
	run(1, 5, "other", "succeeded", "", nil, nil) // before the job moved to its group
	now := run(1, 6, "default", "running", "", nil, nil)
	w.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, fire_time, due_at)
	        VALUES ($1, 1, 1, 'default', 'schedule', 'pending', now() + interval '1 minute', now() + interval '1 minute')`, domain.NewRunID(time.Now()))
	var worst domain.RunID
	for day := range 2 {
		first := domain.ScheduledRunID(2, start.AddDate(0, 0, day), 0)
		for i, state := range []string{"succeeded", "failed", "failed", "cancelled"} {
			if day == 1 {
				state = "succeeded"
			}
			id := run(2, day, "default", state, "", &domain.Shard{Index: i, Total: 4}, &first)
			if day == 0 && i == 1 {
				worst = id
			}
		}
	}
	w.rows([]row{
		{"without last_runs", "GET", "/api/v1/jobs", "", 200, map[string]any{"items.0.id": 1, "items.0.last_runs": nil}, nil},
		{"all", "GET", "/api/v1/jobs?last_runs=5", "", 200, map[string]any{
			"items.0.last_runs.0.id": now, "items.0.last_runs.0.state": "running", "items.0.last_runs.0.duration_ms": nil,
			"items.0.last_runs.1.state": "succeeded", "items.0.last_runs.1.at": "2026-11-06T02:00:00.000Z",
			"items.0.last_runs.2.state": "missed", "items.0.last_runs.2.count": 3, "items.0.last_runs.2.id": nil, "items.0.last_runs.2.at": "2026-11-05T02:00:00.000Z",
			"items.0.last_runs.2.why.text": "nobody was there",
			"items.0.last_runs.3.id":       failed, "items.0.last_runs.3.reason": "timeout", "items.0.last_runs.3.duration_ms": 1500, "items.0.last_runs.3.cause": "schedule",
			"items.0.last_runs.4.state": "succeeded", "items.0.last_runs.5": nil,
			"items.1.last_runs.0.state": "succeeded", "items.1.last_runs.0.shards": 4,
			"items.1.last_runs.1.state": "failed", "items.1.last_runs.1.id": worst, "items.1.last_runs.1.shards": 4, "items.1.last_runs.2": nil,
			"items.2.last_runs": "[]"}, nil},
		{"two of each", "GET", "/api/v1/jobs?last_runs=2&limit=1", "", 200, map[string]any{
			"items.0.last_runs.0.id": now, "items.0.last_runs.1.state": "succeeded", "items.0.last_runs.2": nil, "items.1": nil}, nil},
		{"too many", "GET", "/api/v1/jobs?last_runs=21", "", 422, map[string]any{"errors.0.location": "last_runs"}, nil},
	})
	viewer := w.confined("vera", "viewer", "default")
	if a := w.do(viewer, "GET", "/api/v1/jobs?last_runs=5&limit=1", ""); a.field("items.0.last_runs.1.state") != "missed" {
		t.Errorf("a viewer sees a run of another group: %s", a.body)
	}
}

func TestParents(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	w.job(simpleJob)
	for _, group := range []string{"default", "other"} {
		w.job(`{"group":"` + group + `","name":"parent in ` + group + `","handler":"echo","children":[{"job_id":1,"on":"failure"}],"schedule":{"kind":"none"}}`)
	}
	const parents = "/api/v1/jobs?child_id="
	w.rows([]row{
		{"both", "GET", parents + "1", "", 200, map[string]any{"items.0.id": 2, "items.0.children.0.on": "failure", "items.1.id": 3, "items.2": nil}, nil},
		{"a page", "GET", parents + "1&limit=1", "", 200, map[string]any{"items.0.id": 2, "items.1": nil}, nil},
		{"of a group", "GET", parents + "1&group=other&last_runs=1", "", 200, map[string]any{"items.0.id": 3, "items.0.last_runs": "[]", "items.1": nil}, nil},
		{"of a parent", "GET", parents + "2", "", 200, map[string]any{"items": "[]", "next_cursor": ""}, nil},
		{"of none", "GET", parents + "99", "", 200, map[string]any{"items": "[]"}, nil},
		{"no id", "GET", parents + "0", "", 422, map[string]any{"errors.0.location": "child_id"}, nil},
		{"no number", "GET", parents + "x", "", 422, map[string]any{"errors.0.location": "child_id"}, nil},
		{"no longer its child", "PATCH", "/api/v1/jobs/2", `{"children":[]}`, 200, nil, nil},
		{"then", "GET", parents + "1", "", 200, map[string]any{"items.0.id": 3, "items.1": nil}, nil},
	})
	viewer := w.confined("vera", "viewer", "default")
	if a := w.do(viewer, "GET", parents+"1", ""); a.status != 200 || fmt.Sprint(a.field("items")) != "[]" {
		t.Errorf("a viewer sees a parent of another group: %d %s", a.status, a.body)
	}
}

// A search that matches few jobs has short pages with a cursor.
func TestSearchOverManyPages(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO jobs (id, group_name, name, enabled, kind, tags, spec, version, created_at, updated_at)
	        SELECT i, 'default', CASE i WHEN 11050 THEN 'needle' ELSE 'straw ' || i END, i % 2 = 0, 'none', '{}',
	               '{"handler":"echo","description":"","schedule":{"kind":"none"}}', 1, now(), now() FROM generate_series(1001, 11100) i`)
	const jobs = "/api/v1/jobs?q=needle"
	first := w.must(200, "GET", jobs, "")
	cursor, _ := first.field("next_cursor").(string)
	if first.field("items.0") != nil || cursor == "" {
		t.Fatalf("the first page: %s", first.body)
	}
	w.rows([]row{
		{"the next page", "GET", jobs + "&cursor=" + cursor, "", 200, map[string]any{"items.0.id": 11050, "items.1": nil, "next_cursor": ""}, nil},
		{"the overview", "GET", "/api/v1/overview", "", 200, map[string]any{"now.jobs": 10100, "now.jobs_enabled": 5050}, nil},
		{"groups", "GET", "/api/v1/groups", "", 200, map[string]any{"items.0.name": "default", "items.0.jobs": 10100}, nil},
		{"a group", "GET", "/api/v1/groups/default", "", 200, map[string]any{"jobs": 10100}, nil},
	})
}
