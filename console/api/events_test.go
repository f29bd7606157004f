package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	eventTriggers = "/api/v1/event-triggers"
	events        = "/api/v1/events"
)

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// is reports whether a value of the JSON body equals want.
func (a answer) is(path string, want any) bool { return a.field(path) == want }

func TestEventTriggers(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	made := w.must(201, "POST", eventTriggers, `{"name":"orders.*","job_id":1,"filter":"event.data.n > 5","param":"{{.event.data.n}}"}`)
	if made.field("id") != 1.0 || !made.is("enabled", true) || made.field("group") != "default" || made.field("job_name") != "nightly" ||
		made.field("version") != 1.0 || made.header.Get("ETag") != `"1"` {
		t.Errorf("made %s", made.body)
	}
	one := eventTriggers + "/1"
	if got := w.must(200, "GET", one, ""); got.body != made.body {
		t.Errorf("got %s, made %s", got.body, made.body)
	}
	patched := w.must(200, "PATCH", one, `{"enabled":false,"filter":null}`, "If-Match", `"1"`)
	if !patched.is("enabled", false) || patched.field("filter") != "" || patched.field("param") != "{{.event.data.n}}" || patched.field("version") != 2.0 {
		t.Errorf("patched to %s", patched.body)
	}
	// A PUT of the answer to a GET is accepted and makes no version.
	if put := w.must(200, "PUT", one, patched.body); put.body != patched.body {
		t.Errorf("put %s", put.body)
	}
	w.must(409, "PUT", one, made.body)
	w.must(409, "PATCH", one, `{"enabled":true}`, "If-Match", `"1"`)
	w.must(409, "DELETE", one, "", "If-Match", `"1"`)
	if put := w.must(200, "PUT", one, `{"name":"orders.created","job_id":1}`); !put.is("enabled", true) || put.field("param") != "" {
		t.Errorf("put %s", put.body)
	}
	for query, n := range map[string]int{"": 1, "?group=default": 1, "?job_id=1": 1, "?job_id=2": 0, "?name=orders.created": 1, "?name=orders.*": 0} {
		if got := w.must(200, "GET", eventTriggers+query, ""); len(got.field("items").([]any)) != n {
			t.Errorf("%q lists %s", query, got.body)
		}
	}
	key := []string{"Idempotency-Key", "one"}
	first, again := w.must(201, "POST", eventTriggers, `{"name":"a","job_id":1}`, key...), w.must(201, "POST", eventTriggers, `{"name":"a","job_id":1}`, key...)
	if first.body != again.body {
		t.Errorf("the repetition got %s, the first request %s", again.body, first.body)
	}
	w.must(204, "DELETE", one, "")
	w.must(404, "GET", one, "")
	var actions []string
	for _, item := range w.must(200, "GET", "/api/v1/audit?object=event-trigger/1", "").field("items").([]any) {
		actions = append(actions, item.(map[string]any)["action"].(string))
	}
	if want := []string{"event-trigger.delete", "event-trigger.update", "event-trigger.update", "event-trigger.create"}; !slices.Equal(actions, want) {
		t.Errorf("the audit log has %v, want %v", actions, want)
	}
}

func TestEventBadInput(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	w.must(201, "POST", eventTriggers, `{"name":"orders.*","job_id":1}`)
	const structured, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		locations                []string
		says                     string
		headers                  []string
	}{
		{"all values", "POST", eventTriggers, `{"name":"a..b","filter":"event.data.x >","param":"a\n{{printf 1}}"}`, 422, []string{"name", "job_id", "filter", "param"}, "line 2, column 3: there is no function printf", nil},
		{"the filter's place", "POST", eventTriggers, `{"name":"a","job_id":1,"filter":"event.nme"}`, 422, []string{"filter"}, "line 1, column 6: undeclared reference to 'event.nme'", nil},
		{"shapes and values", "POST", eventTriggers, `{"name":5,"job_id":"1","filter":"(","x":1}`, 422, []string{"name", "job_id", "x", "filter"}, "", nil},
		{"read-only", "POST", eventTriggers, `{"name":"a","job_id":1,"id":1}`, 422, []string{"id"}, "is read only", nil},
		{"another id", "PATCH", eventTriggers + "/1", `{"id":2}`, 422, []string{"id"}, "is read only", nil},
		{"unknown job", "POST", eventTriggers, `{"name":"a","job_id":9,"param":"{{"}`, 422, []string{"param", "job_id"}, "there is no such job", nil},
		{"malformed", "POST", eventTriggers, `{`, 400, []string{"body"}, "", nil},
		{"a form", "POST", eventTriggers, `a=b`, 415, []string{"Content-Type"}, "", []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"patch", "PATCH", eventTriggers + "/1", `{"name":"x..","job_id":9,"filter":3,"y":null}`, 422, []string{"filter", "y", "name", "job_id"}, "", nil},
		{"put", "PUT", eventTriggers + "/1", `{"filter":"1"}`, 422, []string{"name", "job_id", "filter"}, "", nil},
		{"bad version", "PUT", eventTriggers + "/1", `{"name":"a","job_id":1,"version":-1}`, 422, []string{"version"}, "", nil},
		{"no trigger", "GET", eventTriggers + "/9", "", 404, nil, "", nil},
		{"bad id", "GET", eventTriggers + "/x", "", 422, []string{"id"}, "", nil},
		{"unknown group", "GET", eventTriggers + "?group=nowhere", "", 422, []string{"group"}, "", nil},
		{"bad cursor", "GET", eventTriggers + "?cursor=x", "", 422, []string{"cursor"}, "", nil},
		{"a bad name", "POST", events + "/a..b", `1`, 422, []string{"name"}, "", nil},
		{"a pattern", "POST", events + "/a.*", `1`, 422, []string{"name"}, "", nil},
		{"a bad name and body", "POST", events + "/a..b", `{`, 400, []string{"body"}, "", nil},
		{"malformed event", "POST", events + "/a", `{"a":}`, 400, []string{"body"}, "line 1, column 6", nil},
		{"no body", "POST", events + "/a", "", 400, []string{"body"}, "", nil},
		{"a form", "POST", events + "/a", "a=b", 415, []string{"Content-Type"}, "", []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"an image", "POST", events + "/a", "x", 415, []string{"Content-Type"}, "", []string{"Content-Type", "image/png", "ce-id", "1"}},
		{"too large", "POST", events + "/a", `"` + strings.Repeat("x", 1<<20) + `"`, 413, []string{"body"}, "", nil},
		{"a bad key", "POST", events + "/a", "1", 422, []string{"Idempotency-Key"}, "", []string{"Idempotency-Key", strings.Repeat("k", 256)}},
		{"a key for a batch", "POST", events + "/a", "[]", 422, []string{"Idempotency-Key"}, "", []string{"Idempotency-Key", "k", "Content-Type", batch}},
		{"a faulty CloudEvent", "POST", events + "/a", `{"time":"x"}`, 422, []string{"specversion", "source", "type", "id", "time"}, "", []string{"Content-Type", structured}},
		{"a faulty batch", "POST", events + "/a", `[3]`, 422, []string{"[0].body"}, "", []string{"Content-Type", batch}},
		{"faulty headers", "POST", events + "/a", `{}`, 422, []string{"ce-specversion", "ce-source", "ce-type"}, "", []string{"ce-id", "1"}},
		{"no event", "GET", events + "/019a9d2c-7b40-8000-8000-0123456789ab", "", 404, nil, "", nil},
		{"a bad pattern", "GET", events + "/a..b", "", 422, []string{"name"}, "", nil},
		{"a bad filter", "GET", events + "?name=a..b", "", 422, []string{"name"}, "", nil},
		{"bad instants", "GET", events + "?from=x&to=y", "", 422, []string{"from", "to"}, "", nil},
		{"a bad cursor", "GET", events + "?cursor=x", "", 422, []string{"cursor"}, "", nil},
	} {
		a := w.do(w.admin, tt.method, tt.path, tt.body, tt.headers...)
		got, want := slices.Sorted(slices.Values(a.locations())), slices.Sorted(slices.Values(tt.locations))
		if a.status != tt.status || !slices.Equal(got, want) || !strings.Contains(a.body, tt.says) {
			t.Errorf("%s: %d %s, want %d and faults at %v", tt.name, a.status, a.body, tt.status, want)
		}
	}
	if n := w.count(`SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM event_keys) + (SELECT count(*) FROM event_triggers)`); n != 1 {
		t.Errorf("after bad input there are %d rows", n)
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	w.must(201, "POST", eventTriggers, `{"name":"orders.*","job_id":1,"filter":"event.data.n > 5"}`)
	w.ready["nats"] = fmt.Errorf("away") // events over REST do not need NATS
	sent := w.must(202, "POST", events+"/orders.created", `{"n":7}`)
	id, run := sent.field("event_id").(string), sent.field("run_ids.0")
	if run == nil || sent.field("deliveries.0.outcome") != "fired" || !sent.is("repeated", false) {
		t.Fatalf("sent %s", sent.body)
	}
	if got := w.must(200, "GET", fmt.Sprint("/api/v1/runs/", run), ""); got.field("event_id") != id || got.field("cause") != "event" || got.field("param") != `{"n":7}` {
		t.Errorf("the run is %s", got.body)
	}
	if got := w.must(200, "GET", events+"/"+id, ""); got.field("data.n") != 7.0 || got.field("name") != "orders.created" || got.field("via") != "rest" ||
		got.field("sent_by") != "admin" || got.field("deliveries.0.run_id") != run || got.field("data_bytes") != 7.0 {
		t.Errorf("the event is %s", got.body)
	}
	filtered := w.must(202, "POST", events+"/orders.created", `{"n":1}`)
	if filtered.field("deliveries.0.outcome") != "filtered" || fmt.Sprint(filtered.field("run_ids")) != "[]" {
		t.Errorf("got %s", filtered.body)
	}
	if got := w.must(202, "POST", events+"/stock", `null`); fmt.Sprint(got.field("deliveries")) != "[]" {
		t.Errorf("got %s", got.body)
	}
	// A key identifies one event of a name and a user. The same key with another body is refused.
	first := w.must(202, "POST", events+"/orders.created", `{"n":7}`, "Idempotency-Key", "k")
	again := w.must(202, "POST", events+"/orders.created", ` {"n": 7}`, "Idempotency-Key", "k")
	if again.field("event_id") != first.field("event_id") || !again.is("repeated", true) || again.header.Get("Idempotency-Replayed") != "true" ||
		again.field("run_ids.0") != first.field("run_ids.0") || first.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	if got := w.must(422, "POST", events+"/orders.created", `{"n":8}`, "Idempotency-Key", "k"); !slices.Equal(got.locations(), []string{"Idempotency-Key"}) {
		t.Errorf("got %s", got.body)
	}
	if got := w.must(202, "POST", events+"/orders.deleted", `{"n":7}`, "Idempotency-Key", "k"); !got.is("repeated", false) {
		t.Errorf("got %s", got.body)
	}
	// A CloudEvent is identified by source and id, in each of its forms.
	binary := []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t"}
	structured := `{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"x","time":"2026-03-29T01:30:00Z","data":{"n":9}}`
	one := w.must(202, "POST", events+"/orders.created", `{"n":9}`, binary...)
	two := w.must(202, "POST", events+"/orders.created", structured, "Content-Type", "application/cloudevents+json")
	if one.field("event_id") != two.field("event_id") || !two.is("repeated", true) || one.field("run_ids.0") == nil {
		t.Errorf("got %s and %s", one.body, two.body)
	}
	batch := w.must(202, "POST", events+"/orders.created", `[`+structured+`,`+strings.Replace(structured, `"1"`, `"2"`, 1)+`]`, "Content-Type", "application/cloudevents-batch+json")
	if !batch.is("events.0.repeated", true) || !batch.is("events.1.repeated", false) || len(batch.field("run_ids").([]any)) != 2 || batch.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("got %s", batch.body)
	}
	if got := w.must(200, "GET", events+"/"+batch.field("events.1.event_id").(string), ""); got.field("source") != "/s" || got.field("type") != "t" ||
		got.field("subject") != "x" || got.field("time") != "2026-03-29T01:30:00.000Z" || got.field("key") != "2" {
		t.Errorf("got %s", got.body)
	}
	w.must(202, "POST", events+"/orders.created", `[]`, "Content-Type", "application/cloudevents-batch+json")
	for path, n := range map[string]int{events: 7, events + "?name=orders.created": 5, events + "/orders.*": 6, events + "?name=stock": 1, events + "/nothing": 0,
		events + "?to=2020-01-01T00:00:00Z": 0, events + "?from=2020-01-01T00:00:00Z": 7, events + "?limit=3": 3} {
		if got := w.must(200, "GET", path, ""); len(got.field("items").([]any)) != n {
			t.Errorf("%s lists %d, want %d: %s", path, len(got.field("items").([]any)), n, got.body)
		}
	}
	seen := map[any]bool{}
	for cursor := ""; ; {
		got := w.must(200, "GET", events+"?limit=2&cursor="+cursor, "")
		for _, item := range got.field("items").([]any) {
			seen[item.(map[string]any)["id"]] = true
		}
		if cursor = got.field("next_cursor").(string); cursor == "" {
			break
		}
	}
	if len(seen) != 7 {
		t.Errorf("all pages together have %d events, want 7", len(seen))
	}
	if n := w.count(`SELECT count(*) FROM runs_live`); n != 5 {
		t.Errorf("%d runs, want 5", n)
	}
}

func TestEventRoles(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"secret"}`)
	w.job(simpleJob)
	w.job(`{"group":"secret","name":"hidden","handler":"echo","schedule":{"kind":"none"}}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"long enough","role":"operator","groups":["default"]}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"vi","password":"long enough","role":"viewer","groups":["default"]}`)
	op, vi := w.logIn("op", "long enough"), w.logIn("vi", "long enough")
	mine := w.must(201, "POST", eventTriggers, `{"name":"orders","job_id":1}`)
	w.must(201, "POST", eventTriggers, `{"name":"*","job_id":2}`)
	both := w.must(202, "POST", events+"/orders", `1`)
	theirs := w.must(202, "POST", events+"/stock", `1`)
	hidden, missing := events+"/"+theirs.field("event_id").(string), events+"/019a9d2c-7b40-8000-8000-0123456789ab"
	for _, r := range []struct{ method, hidden, missing, body string }{
		{"GET", hidden, missing, ""}, {"GET", eventTriggers + "/2", eventTriggers + "/9", ""}, {"DELETE", eventTriggers + "/2", eventTriggers + "/9", ""},
		{"PUT", eventTriggers + "/2", eventTriggers + "/9", mine.body}, {"PATCH", eventTriggers + "/2", eventTriggers + "/9", `{"enabled":false}`},
	} {
		a, b := w.do(op, r.method, r.hidden, r.body), w.do(op, r.method, r.missing, r.body)
		if a.status != 404 || a.body != b.body {
			t.Errorf("%s %s: hidden %d %s, missing %d %s; both answers must be the same", r.method, r.hidden, a.status, a.body, b.status, b.body)
		}
	}
	for _, body := range []string{`{"name":"a","job_id":%d}`} {
		a, b := w.do(op, "POST", eventTriggers, fmt.Sprintf(body, 2)), w.do(op, "POST", eventTriggers, fmt.Sprintf(body, 9))
		c, d := w.do(op, "PATCH", eventTriggers+"/1", `{"job_id":2}`), w.do(op, "PATCH", eventTriggers+"/1", `{"job_id":9}`)
		if a.status != 422 || a.body != b.body || c.status != 422 || c.body != d.body {
			t.Errorf("a trigger of a hidden job: %s, of none: %s; a move there: %s and %s", a.body, b.body, c.body, d.body)
		}
	}
	for _, who := range []string{op, vi} {
		for _, list := range []string{events, eventTriggers, events + "/" + both.field("event_id").(string)} {
			if a := w.do(who, "GET", list, ""); a.status != 200 || strings.Contains(a.body, "secret") || strings.Contains(a.body, "stock") || !strings.Contains(a.body, "default") {
				t.Errorf("%s shows %d %s", list, a.status, a.body)
			}
		}
	}
	// An event fires only jobs that its sender could trigger.
	if a := w.do(op, "POST", events+"/orders", `1`); a.status != 202 || len(a.field("deliveries").([]any)) != 1 || a.field("deliveries.0.job_id") != 1.0 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := w.do(op, "POST", events+"/nobody", `1`); a.status != 202 || w.do(op, "GET", events+"/"+a.field("event_id").(string), "").status != 200 {
		t.Errorf("the sender does not see the event: %s", a.body)
	}
	for _, r := range []struct{ method, path, body string }{
		{"POST", events + "/orders", `1`}, {"POST", eventTriggers, `{"name":"a","job_id":1}`}, {"PUT", eventTriggers + "/1", mine.body},
		{"PATCH", eventTriggers + "/1", `{}`}, {"DELETE", eventTriggers + "/1", ""},
	} {
		if a := w.do(vi, r.method, r.path, r.body); a.status != 403 {
			t.Errorf("a viewer's %s %s: %d", r.method, r.path, a.status)
		}
	}
}

// A token with the scope events can only send events. With the role admin it can also log in to NATS.
func TestEventTokens(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	w.must(201, "POST", eventTriggers, `{"name":"a","job_id":1}`)
	all := w.must(201, "POST", "/api/v1/tokens", `{"name":"shop","scope":"events"}`)
	some := w.must(201, "POST", "/api/v1/tokens", `{"name":"till","scope":"events","role":"operator","groups":["default"]}`)
	other := w.must(201, "POST", "/api/v1/tokens", `{"name":"other"}`)
	if all.field("scope") != "events" || other.field("scope") != "" {
		t.Errorf("made %s and %s", all.body, other.body)
	}
	for _, made := range []answer{all, some} {
		secret := made.field("token").(string)
		if a := w.do(secret, "POST", events+"/a", `1`); a.status != 202 || a.field("run_ids.0") == nil {
			t.Errorf("the token cannot send: %d %s", a.status, a.body)
		}
		for _, r := range [][2]string{{"GET", events}, {"GET", "/api/v1/jobs"}, {"POST", "/api/v1/jobs/1/trigger"}, {"POST", "/api/v1/tokens"},
			{"POST", eventTriggers}, {"GET", "/openapi.json"}, {"GET", "/metrics"}, {"POST", "/api/v1/events"}, {"POST", "/api/v1/auth/logout"}} {
			if a := w.do(secret, r[0], r[1], ""); a.status != 403 {
				t.Errorf("%s %s: %d", r[0], r[1], a.status)
			}
		}
	}
	for name, want := range map[string]bool{"shop": true, "till": false, "other": false} {
		made := map[string]answer{"shop": all, "till": some, "other": other}[name]
		id, _, err := w.accounts.Tokens.SenderOfToken(t.Context(), made.field("token").(string))
		if (err == nil) != want || want && float64(id) != made.field("id") {
			t.Errorf("%s may log in to NATS: %t, %v", name, err == nil, err)
		}
	}
	if a := w.must(422, "POST", "/api/v1/tokens", `{"name":"x","scope":"all","role":"viewer"}`); !slices.Equal(a.locations(), []string{"scope"}) {
		t.Errorf("got %s", a.body)
	}
	if a := w.must(422, "POST", "/api/v1/tokens", `{"name":"x","scope":"events","role":"viewer"}`); !slices.Equal(a.locations(), []string{"role"}) {
		t.Errorf("got %s", a.body)
	}
}
