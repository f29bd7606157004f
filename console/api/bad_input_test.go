package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each row is a bad input, with the status of the answer and the fields that it names. None of them may store anything.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	second := w.job(`{"group":"default","name":"second","handler":"echo","schedule":{"kind":"none"},"children":[{"job_id":1}]}`)
	const jobs, post, put, patch, get = "/api/v1/jobs", "POST", "PUT", "PATCH", "GET"
	with := func(fields string) string {
		return `{"group":"default","name":"bad","handler":"echo","schedule":{"kind":"none"},` + fields + `}`
	}
	cron := func(fields string) string {
		return `{"group":"default","name":"bad","handler":"echo","schedule":{"kind":"cron",` + fields + `}}`
	}
	long := strings.Repeat("x", 2000)
	rows := []struct {
		name         string
		method, path string
		body         string
		status       int
		locations    []string
		says         string // a part of the answer
	}{
		{"malformed JSON", post, jobs, "{\n  \"group\": default\n}", 400, []string{"body"}, "line 2, column 12"},
		{"JSON cut off", post, jobs, `{"group":`, 400, []string{"body"}, "unexpected end"},
		{"garbage after the JSON", post, jobs, simpleJob + `{}`, 400, []string{"body"}, "after top-level value"},
		{"not UTF-8", post, jobs, "{\"group\":\"\xff\"}", 400, []string{"body"}, "UTF-8"},
		{"no body", post, jobs, "", 400, []string{"body"}, ""},
		{"blank body", post, jobs, "  ", 400, []string{"body"}, ""},
		{"an array", post, jobs, `[]`, 422, []string{"body"}, "must be an object, not an array"},
		{"null", post, jobs, `null`, 422, []string{"body"}, ""},
		{"deep nesting", post, jobs, strings.Repeat("[", 100_000), 400, []string{"body"}, ""},
		{"unknown field", post, jobs, with(`"shedule":1`), 422, []string{"shedule"}, "the known fields are group, name"},
		{"unknown field within", post, jobs, cron(`"expr":"* * * * *","timezone":"UTC"`), 422, []string{"schedule.timezone"}, "time_zone"},
		{"unknown field in a list", post, jobs, with(`"children":[{"job_id":1,"when":"x"}]`), 422, []string{"children[0].when"}, ""},
		{"a field name in another case", post, jobs, with(`"Retries":1`), 422, []string{"Retries"}, ""},
		{"a field twice", post, jobs, with(`"retries":1,"retries":2`), 422, []string{"retries"}, "twice"},
		{"read-only field in a new job", post, jobs, with(`"id":3`), 422, []string{"id"}, "is read only"},
		{"another id in a patch", patch, job, `{"id":3}`, 422, []string{"id"}, "this is job 1"},
		{"many faults at once", post, jobs, `{"group":1,"name":[],"retries":"3","timeout":90,"nosuch":0,"schedule":{"kind":5,"at":1},"tags":["a",2]}`, 422,
			[]string{"group", "name", "retries", "timeout", "nosuch", "schedule.kind", "schedule.at", "tags[1]"}, ""},
		{"many values at once", post, jobs, `{"group":"No Group","name":"","retries":-1,"route":"somewhere","block":"x","start_deadline":"0.1s","schedule":{"kind":"none"}}`, 422,
			[]string{"group", "name", "retries", "route", "block", "start_deadline", "handler"}, ""},
		{"zeros where zero is not allowed", post, jobs, `{"group":"default","name":"zeros","handler":"echo","schedule":{"kind":"none"},"start_deadline":"0s","retry_backoff":{"initial":"0s","factor":0,"max":"0s"}}`, 422,
			[]string{"start_deadline", "retry_backoff.initial", "retry_backoff.factor", "retry_backoff.max"}, ""},
		{"faulty names, types and values at once", post, jobs, `{"group":"NOPE!","bogus":1,"name":"","schedule":{"kind":"weekly","dialekt":1},"route":"zig","retries":1000,"timeout":"5 minutes","tags":[5]}`, 422,
			[]string{"group", "bogus", "name", "schedule.kind", "schedule.dialekt", "route", "retries", "timeout", "handler", "tags[0]"}, ""},
		{"the same in a put", put, job, `{"group":"default","bogus":1,"name":"","schedule":{"kind":"cron","expr":"61 * * * *","at":5},"retries":"x","shards":-1}`, 422,
			[]string{"bogus", "name", "schedule.expr", "schedule.at", "retries", "shards", "handler"}, ""},
		{"the same in a patch", patch, job, `{"bogus":null,"retries":500,"timeout":5,"schedule":{"expr":"61 * * * *"},"script":7}`, 422,
			[]string{"bogus", "retries", "timeout", "schedule.expr", "script"}, ""},
		{"the same in a preview", post, "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"61 * * * *"},"count":0,"bogus":1}`, 422, []string{"count", "schedule.expr", "bogus"}, ""},
		{"the same in a user", post, "/api/v1/users", `{"username":"A B","password":"x","role":5,"bogus":1}`, 422, []string{"username", "password", "role", "bogus"}, ""},
		{"fraction for a whole number", post, jobs, with(`"retries":1.5`), 422, []string{"retries"}, "whole number"},
		{"number out of range", post, jobs, with(`"retries":1e99`), 422, []string{"retries"}, ""},
		{"bad duration", post, jobs, with(`"timeout":"90 seconds"`), 422, []string{"timeout"}, "90s"},
		{"bad instant", post, jobs, `{"group":"default","name":"bad","handler":"echo","schedule":{"kind":"once","at":"tomorrow"}}`, 422, []string{"schedule.at"}, ""},
		{"too long", post, jobs, with(`"description":"` + long + `"`), 422, []string{"description"}, "1024"},
		{"param over 64 KiB", post, jobs, with(`"param":"` + strings.Repeat("x", 64<<10+1) + `"`), 422, []string{"param"}, "65536"},
		{"NUL in a text", post, jobs, with(`"description":"a\u0000b"`), 422, []string{"description"}, ""},
		{"no group", post, jobs, `{"name":"bad","handler":"echo","schedule":{"kind":"none"}}`, 422, []string{"group"}, "required"},
		{"unknown group", post, jobs, `{"group":"nowhere","name":"bad","handler":"echo","schedule":{"kind":"none"}}`, 422, []string{"group"}, "there is no group"},
		{"handler and script", post, jobs, with(`"script":{"language":"sh","code":"true"}`), 422, []string{"script"}, ""},
		{"bad cron", post, jobs, cron(`"expr":"61 * * * *"`), 422, []string{"schedule.expr"}, ""},
		{"cron with TZ", post, jobs, cron(`"expr":"TZ=UTC 0 * * * *"`), 422, []string{"schedule.expr"}, "time_zone"},
		{"unknown zone", post, jobs, cron(`"expr":"0 * * * *","time_zone":"Mars/Olympus"`), 422, []string{"schedule.time_zone"}, ""},
		{"unknown child", post, jobs, with(`"children":[{"job_id":999}]`), 422, []string{"children[0].job_id"}, ""},
		{"a cycle", patch, job, `{"children":[{"job_id":2}]}`, 422, []string{"children[0].job_id"}, "→"},
		{"the name is taken", post, jobs, simpleJob, 409, []string{"name"}, ""},
		{"stale version in the body", put, job, `{"group":"default","name":"nightly","handler":"x","schedule":{"kind":"none"},"version":7}`, 409, nil, "version"},
		{"version out of range", patch, job, `{"version":-1}`, 422, []string{"version"}, ""},
		{"unknown field in a patch", patch, job, `{"nosuch":null}`, 422, []string{"nosuch"}, ""},
		{"patch that is no object", patch, job, `3`, 422, []string{"body"}, ""},
		{"patch to a bad value", patch, second, `{"retries":500,"route":"x"}`, 422, []string{"retries", "route"}, ""},
		{"unknown job", get, jobs + "/999", "", 404, nil, "there is no such job"},
		{"id that is no number", get, jobs + "/first", "", 422, []string{"id"}, ""},
		{"id out of range", get, jobs + "/0", "", 422, []string{"id"}, ""},
		{"trigger with a wrong type", post, job + "/trigger", `{"param":5}`, 422, []string{"param"}, ""},
		{"trigger with a long param", post, job + "/trigger", `{"param":"` + strings.Repeat("x", 64<<10+1) + `"}`, 422, []string{"param"}, ""},
		{"trigger on no instance", post, job + "/trigger", `{"instance":"a.b"}`, 422, []string{"instance"}, ""},
		{"trigger on an instance that is not live", post, job + "/trigger", `{"instance":"two","param":5}`, 422, []string{"instance", "param"}, "live: one"},
		{"token of an unknown group", post, "/api/v1/tokens", `{"name":"x","role":"viewer","groups":["default","nix"]}`, 422, []string{"groups[1]"}, `there is no group \"nix\"`},
		{"user of an unknown group", post, "/api/v1/users", `{"username":"x","password":"long enough","role":"viewer","groups":["nix"]}`, 422, []string{"groups[0]"}, ""},
		{"jobs of an unknown group", get, jobs + "?group=nix", "", 422, []string{"group"}, `there is no group \"nix\"`},
		{"runs of an unknown group", get, "/api/v1/runs?group=nix&state=failed", "", 422, []string{"group"}, `there is no group \"nix\"`},
		{"trigger of an unknown job", post, jobs + "/999/trigger", "", 404, nil, ""},
		{"preview of nothing", post, "/api/v1/schedules/preview", `{}`, 422, []string{"schedule.kind"}, ""},
		{"preview of too many", post, "/api/v1/schedules/preview", `{"schedule":{"kind":"none"},"count":101}`, 422, []string{"count"}, ""},
		{"limit too large", get, jobs + "?limit=501", "", 422, []string{"limit"}, ""},
		{"limit no number", get, jobs + "?limit=many", "", 422, []string{"limit"}, ""},
		{"several bad parameters", get, "/api/v1/runs?state=done&from=yesterday&cause=x&limit=0", "", 422, []string{"limit", "state[0]", "cause", "from"}, ""},
		{"planned is no boolean", get, "/api/v1/runs?planned=maybe", "", 422, []string{"planned"}, ""},
		{"NUL in parameters", get, jobs + "?q=a%00&tag=%00&group=%ff", "", 422, []string{"group", "q", "tag"}, "NUL"},
		{"NUL in a parameter of another list", get, "/api/v1/audit?actor=%00&limit=1", "", 422, []string{"actor"}, "NUL"},
		{"NUL in a path", get, "/api/v1/groups/a%00b", "", 422, []string{"name"}, "NUL"},
		{"no UTF-8 in a path", get, "/api/v1/groups/%ff", "", 422, []string{"name"}, "UTF-8"},
		{"an unknown bulk action", post, "/api/v1/runs/bulk", `{"action":"kill","filter":{"bulk_id":999}}`, 422, []string{"filter.bulk_id"}, "no such"},
		{"new runs of a bulk action, step by step", post, "/api/v1/runs/bulk", `{"action":"kill","filter":{"bulk_id":1},"max":1}`, 422, []string{"filter.bulk_id"}, "max"},
		{"a cursor of another list", get, "/api/v1/bulk?cursor=x", "", 422, []string{"cursor"}, "next_cursor"},
		{"a bulk action without a number", "DELETE", "/api/v1/bulk/x", "", 422, []string{"id"}, ""},
		{"NUL in a filter", post, "/api/v1/runs/bulk", `{"action":"kill","filter":{"instance":"\u0000"}}`, 422, []string{"filter.instance"}, "NUL"},
		{"NUL in a channel's name", post, jobs, with(`"alert":{"channels":["a\u0000"]}`), 422, []string{"alert.channels[0]"}, ""},
		{"unknown parameter", get, jobs + "?grop=default", "", 422, []string{"grop"}, ""},
		{"made-up cursor", get, jobs + "?cursor=abc", "", 422, []string{"cursor"}, ""},
		{"cursor of another list", get, "/api/v1/runs?cursor=am9iOjE", "", 422, []string{"cursor"}, ""},
		{"why of an unknown job", get, jobs + "/999/why?at=2026-03-29T01:30:00Z", "", 404, nil, "there is no such job"},
		{"why without an instant", get, job + "/why", "", 422, []string{"at"}, ""},
		{"why at no instant", get, job + "/why?at=tomorrow", "", 422, []string{"at"}, "2026-03-29T01:30:00Z"},
		{"why on no day", get, job + "/why?at=2026-02-30T02:00", "", 422, []string{"at"}, "time zone, which is UTC"},
		{"audit of an unknown job", get, "/api/v1/audit/fires?job_id=999", "", 422, []string{"job_id"}, "there is no such job"},
		{"audit since no instant", get, "/api/v1/audit/fires?since=-24h&until=soon", "", 422, []string{"since", "until"}, ""},
		{"audit backwards", get, "/api/v1/audit/fires?since=2026-03-29T01:30:00Z&until=2026-03-28T01:30:00Z", "", 422, []string{"since"}, "before until"},
		{"audit of the future", get, "/api/v1/audit/fires?since=2199-03-29T01:30:00Z", "", 422, []string{"since"}, "past"},
		{"audit with a made-up cursor", get, "/api/v1/audit/fires?cursor=abc", "", 422, []string{"cursor"}, ""},
		{"audit with a cursor of another list", get, "/api/v1/audit/fires?cursor=am9iOjE", "", 422, []string{"cursor"}, ""},
		{"malformed run id", get, "/api/v1/runs/xyz", "", 422, []string{"id"}, ""},
		{"unknown run", get, "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab", "", 404, nil, "there is no such run"},
		{"log of an unknown run", get, "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/log", "", 404, nil, ""},
		{"kill of an unknown run", post, "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/kill", "", 404, nil, ""},
		{"retry of an unknown run", post, "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/retry", "", 404, nil, ""},
		{"retry of an unknown run with a bad body", post, "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/retry", `{"param":5}`, 404, nil, ""},
		{"bad group name", post, "/api/v1/groups", `{"name":"a.b"}`, 422, []string{"name"}, ""},
		{"group exists", post, "/api/v1/groups", `{"name":"default"}`, 409, []string{"name"}, ""},
		{"group with jobs", "DELETE", "/api/v1/groups/default", "", 409, nil, "jobs"},
		{"a group without room", "PATCH", "/api/v1/groups/default", `{"limits":{"max_jobs":0,"max_instances":1000000}}`, 422,
			[]string{"limits.max_jobs", "limits.max_instances"}, "between 1 and"},
		{"unknown group's token", post, "/api/v1/groups/nowhere/token", "", 404, nil, ""},
		{"unknown instance", post, "/api/v1/groups/default/instances/two/drain", "", 404, nil, ""},
		{"weak password", post, "/api/v1/users", `{"username":"eve","password":"short","role":"god"}`, 422, []string{"password", "role"}, ""},
		{"token that expires in the past", post, "/api/v1/tokens", `{"name":"","expires_at":"2001-01-01T00:00:00Z"}`, 422, []string{"name", "expires_at"}, ""},
		{"unknown token", "DELETE", "/api/v1/tokens/99", "", 404, nil, ""},
		{"unknown path", get, "/api/v1/nothing", "", 404, nil, ""},
		{"unsupported method", "DELETE", "/api/v1/auth/me", "", 405, nil, ""},
	}
	before := w.must(200, get, jobs, "").body
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			a := w.do(w.admin, r.method, r.path, r.body)
			if a.status != r.status {
				t.Fatalf("%d, want %d: %s", a.status, r.status, a.body)
			}
			if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("the content type is %q", ct)
			}
			if a.field("status") != float64(r.status) || a.field("title") == "" {
				t.Errorf("the problem has a wrong status or no title: %s", a.body)
			}
			for _, want := range r.locations {
				if !slices.Contains(a.locations(), want) {
					t.Errorf("the answer does not name %s: %s", want, a.body)
				}
			}
			if len(r.locations) == 0 && len(a.locations()) > 0 {
				t.Errorf("the answer names fields: %s", a.body)
			}
			if !strings.Contains(a.body, r.says) {
				t.Errorf("the answer lacks %q: %s", r.says, a.body)
			}
			if len(a.body) > 4000 {
				t.Errorf("the problem has %d bytes", len(a.body))
			}
		})
	}
	if after := w.must(200, get, jobs, "").body; after != before {
		t.Errorf("the jobs have changed to\n%s\nfrom\n%s", after, before)
	}
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("bad input was logged as an error: %s", w.log)
	}
}

func TestBadHeaders(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	for _, r := range []struct {
		name, method, path, body, header, value string
		status                                  int
		location                                string
	}{
		{"a form", "POST", "/api/v1/jobs", simpleJob, "Content-Type", "application/x-www-form-urlencoded", 415, "Content-Type"},
		{"plain text", "PATCH", job, `{}`, "Content-Type", "text/plain", 415, "Content-Type"},
		{"a merge patch", "PATCH", job, `{}`, "Content-Type", "application/merge-patch+json", 200, ""},
		{"stale If-Match", "DELETE", job, "", "If-Match", `"7"`, 409, ""},
		{"If-Match no version", "DELETE", job, "", "If-Match", `"abc"`, 422, "If-Match"},
		{"two versions", "PUT", job, strings.Replace(simpleJob, "{", `{"version":1,`, 1), "If-Match", `"2"`, 422, "version"},
		{"bad Last-Event-ID", "GET", "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/log/stream", "", "Last-Event-ID", "x", 422, "Last-Event-ID"},
		{"long Idempotency-Key", "POST", job + "/trigger", "", "Idempotency-Key", strings.Repeat("k", 256), 422, "Idempotency-Key"},
		{"malformed Idempotency-Key", "POST", job + "/trigger", "", "Idempotency-Key", "a\tb", 422, "Idempotency-Key"},
		{"from another site", "POST", job + "/trigger", "", "Sec-Fetch-Site", "cross-site", 403, ""},
		{"from another origin", "POST", job + "/trigger", "", "Origin", "https://evil.example", 403, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			a := w.do(w.admin, r.method, r.path, r.body, r.header, r.value)
			if a.status != r.status {
				t.Fatalf("%d, want %d: %s", a.status, r.status, a.body)
			}
			if r.location != "" && !slices.Contains(a.locations(), r.location) {
				t.Errorf("the answer does not name %s: %s", r.location, a.body)
			}
		})
	}
}

func TestTooLarge(t *testing.T) {
	w := newWorld(t)
	body := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, headers := range [][]string{nil, {"Idempotency-Key", "k"}} {
		if a := w.do(w.admin, "POST", "/api/v1/jobs", body, headers...); a.status != 413 ||
			a.header.Get("Content-Type") != "application/problem+json" ||
			a.field("detail") != "the body is over 1 MiB (1048576 bytes)" || !slices.Equal(a.locations(), []string{"body"}) {
			t.Errorf("with %v: %d %s", headers, a.status, a.body)
		}
	}
	if a := w.do("", "POST", "/api/v1/auth/login", body); a.status != 413 {
		t.Errorf("a log-in: %d", a.status)
	}
	if a := w.do(w.admin, "POST", "/api/v1/jobs", body[:1<<20-2]+`"}`); a.status != 422 {
		t.Errorf("1 MiB exactly: %d %.200s", a.status, a.body)
	}
}

// The answer to a body with very many faults is bounded.
func TestManyFaults(t *testing.T) {
	w := newWorld(t)
	var body strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&body, `,"f%d":0`, i)
	}
	a := w.do(w.admin, "POST", "/api/v1/jobs", "{"+body.String()[1:]+"}")
	if a.status != 422 || len(a.body) > 100_000 || !strings.Contains(a.body, "more faults") {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
}

func TestMethods(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/api/v1/jobs", "/api/v1/auth/me"} {
		if a := w.do(w.admin, "HEAD", path, ""); a.status != 200 {
			t.Errorf("HEAD %s: %d %s", path, a.status, a.body)
		}
	}
	if a := w.do("", "HEAD", "/api/v1/jobs", ""); a.status != 401 {
		t.Errorf("HEAD without credentials: %d", a.status)
	}
	for path, allow := range map[string]string{
		"/api/v1/auth/me": "GET, HEAD", "/api/v1/jobs": "GET, HEAD, POST", "/api/v1/jobs/1": "GET, HEAD, PUT, PATCH, DELETE",
		"/api/v1/auth/login": "POST", "/api/v1/runs/x/log/stream": "GET"} {
		if a := w.do(w.admin, "OPTIONS", path, ""); a.status != 405 || a.header.Get("Allow") != allow {
			t.Errorf("OPTIONS %s: %d, Allow is %q", path, a.status, a.header.Get("Allow"))
		}
	}
	if a := w.do(w.admin, "HEAD", "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab/log/stream", ""); a.status != 405 {
		t.Errorf("HEAD of a stream: %d", a.status)
	}
}
