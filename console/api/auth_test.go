package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLogIn(t *testing.T) {
	w := newWorld(t)
	a := w.do("", "POST", "/api/v1/auth/login", `{"username":"admin","password":"`+adminPassword+`"}`)
	cookie := a.header.Get("Set-Cookie")
	for _, want := range []string{"belfry_session=bfs_", "HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie %q lacks %s", cookie, want)
		}
	}
	token := a.field("token").(string)
	for _, headers := range [][]string{{"Cookie", "belfry_session=" + token}, {"Authorization", "Bearer " + token}, {"Authorization", "bearer " + token}} {
		me := w.do("", "GET", "/api/v1/auth/me", "", headers...)
		if me.field("username") != "admin" || me.field("role") != "admin" || me.field("expires_at") != a.field("expires_at") {
			t.Errorf("with %v the caller is %d %s", headers, me.status, me.body)
		}
	}
	// If the bearer token is bad, a valid cookie does not help.
	if me := w.do("", "GET", "/api/v1/auth/me", "", "Cookie", "belfry_session="+token, "Authorization", "Bearer x"); me.status != 401 {
		t.Errorf("with a bad bearer token and a cookie: %d", me.status)
	}
	out := w.do("", "POST", "/api/v1/auth/logout", "", "Cookie", "belfry_session="+token)
	if out.status != 204 || !strings.Contains(out.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("log out: %d %v", out.status, out.header)
	}
	if me := w.do(token, "GET", "/api/v1/auth/me", ""); me.status != 401 {
		t.Errorf("after the log-out: %d", me.status)
	}
	w.exec(`UPDATE sessions SET expires_at = now() - interval '1 second'`)
	if me := w.do(w.admin, "GET", "/api/v1/auth/me", ""); me.status != 401 {
		t.Errorf("with an expired session: %d", me.status)
	}
}

func TestLogInIsLimited(t *testing.T) {
	w := newWorld(t)
	try := func(user, password string) answer {
		return w.do("", "POST", "/api/v1/auth/login", fmt.Sprintf(`{"username":%q,"password":%q}`, user, password))
	}
	wrong, unknown := try("admin", "not the password"), try("nobody", "not the password")
	if a := w.do("", "POST", "/api/v1/auth/login", `{"username":"u\u0000","password":"not the password"}`); a.status != 401 || a.body != unknown.body {
		t.Errorf("a name with NUL: %d %s", a.status, a.body)
	}
	if wrong.status != 401 || wrong.body != unknown.body {
		t.Errorf("a wrong password: %d %s; an unknown user: %d %s; both answers must be the same", wrong.status, wrong.body, unknown.status, unknown.body)
	}
	var last answer
	for range 12 {
		if last = try("admin", "not the password"); last.status == http.StatusTooManyRequests {
			break
		}
	}
	if last.status != http.StatusTooManyRequests || last.header.Get("Retry-After") == "" {
		t.Fatalf("after many attempts: %d %v", last.status, last.header)
	}
	if a := try("admin", adminPassword); a.status != http.StatusTooManyRequests {
		t.Errorf("the right password gets past the limit: %d", a.status)
	}
	if after := last.header.Get("Retry-After"); !strings.Contains(last.body, "try again in "+after+" s") {
		t.Errorf("Retry-After is %s, and the answer says %s", after, last.body)
	}
	// The guesses of one client do not lock the user out.
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/auth/login", strings.NewReader(`{"username":"admin","password":"`+adminPassword+`"}`))
	r.RemoteAddr = "198.51.100.7:1"
	rec := httptest.NewRecorder()
	if w.api.ServeHTTP(rec, r); rec.Code != 200 {
		t.Errorf("the log-in from another address: %d %s", rec.Code, rec.Body)
	}
	for _, bad := range []string{`{"username":"admin"}`, `{"username":"","password":""}`, `{"username":5,"password":"x"}`, `{"username":"a","password":"b","c":1}`} {
		if a := w.do("", "POST", "/api/v1/auth/login", bad); a.status != 422 {
			t.Errorf("%s: %d", bad, a.status)
		}
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t)
	made := w.must(201, "POST", "/api/v1/tokens", `{"name":"ci","role":"viewer","groups":["default"],"expires_at":"2199-01-01T00:00:00Z"}`)
	secret := made.field("token").(string)
	if !strings.HasPrefix(secret, "bft_") {
		t.Errorf("the token is %q", secret)
	}
	me := w.do(secret, "GET", "/api/v1/auth/me", "")
	if me.field("role") != "viewer" || me.field("token_name") != "ci" || fmt.Sprint(me.field("groups")) != "[default]" {
		t.Errorf("with the token the caller is %s", me.body)
	}
	list := w.must(200, "GET", "/api/v1/tokens", "")
	if list.field("items.0.name") != "ci" || list.field("items.0.user") != "admin" || list.field("items.0.last_used_at") == nil {
		t.Errorf("the tokens are %s", list.body)
	}
	if strings.Contains(list.body, secret) || strings.Contains(w.must(200, "GET", "/api/v1/audit", "").body, secret) {
		t.Error("the secret is shown a second time")
	}
	w.must(409, "POST", "/api/v1/tokens", `{"name":"ci"}`)
	if a := w.do(w.admin, "POST", "/api/v1/tokens", `{"name":"a\u0000"}`); a.status != 422 || !slices.Contains(a.locations(), "name") {
		t.Errorf("a name with NUL: %d %s", a.status, a.body)
	}
	// A token cannot make a token with more rights or a later expiry than its own.
	a := w.do(secret, "POST", "/api/v1/tokens", `{"name":"more","role":"admin","groups":["other"]}`)
	for _, l := range []string{"role", "groups[0]", "expires_at"} {
		if !slices.Contains(a.locations(), l) {
			t.Errorf("%s is not refused: %d %s", l, a.status, a.body)
		}
	}
	w.exec(`UPDATE api_tokens SET expires_at = now()`)
	if me := w.do(secret, "GET", "/api/v1/auth/me", ""); me.status != 401 {
		t.Errorf("with an expired token: %d", me.status)
	}
	w.exec(`UPDATE api_tokens SET expires_at = NULL`)
	// A token cannot delete a token with more rights.
	greater := w.must(201, "POST", "/api/v1/tokens", `{"name":"greater"}`)
	if a := w.do(secret, "DELETE", fmt.Sprintf("/api/v1/tokens/%v", greater.field("id")), ""); a.status != 403 {
		t.Errorf("a token deletes one with more rights: %d", a.status)
	}
	if a := w.do(greater.field("token").(string), "GET", "/api/v1/auth/me", ""); a.status != 200 {
		t.Errorf("after that the token gets %d", a.status)
	}
	w.must(204, "DELETE", "/api/v1/tokens/1", "")
	if me := w.do(secret, "GET", "/api/v1/auth/me", ""); me.status != 401 {
		t.Errorf("with a deleted token: %d", me.status)
	}
}

// A resource that the caller may not see gets the same answer as one that does not exist.
func TestRoles(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"secret"}`)
	mine := w.job(simpleJob)
	hidden := w.job(`{"group":"secret","name":"hidden","handler":"echo","schedule":{"kind":"none"}}`)
	hiddenRun := "/api/v1/runs/" + w.must(202, "POST", hidden+"/trigger", "").field("run_ids.0").(string)
	myRun := "/api/v1/runs/" + w.must(202, "POST", mine+"/trigger", "").field("run_ids.0").(string)
	const noJob, noRun = "/api/v1/jobs/999", "/api/v1/runs/019a9d2c-7b40-8000-8000-0123456789ab"
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"long enough","role":"operator","groups":["default"]}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"vi","password":"long enough","role":"viewer","groups":["default"]}`)
	op, vi := w.logIn("op", "long enough"), w.logIn("vi", "long enough")

	for _, r := range []struct{ method, hidden, missing, body string }{
		{"GET", hidden, noJob, ""}, {"PUT", hidden, noJob, simpleJob}, {"PATCH", hidden, noJob, `{"retries":1}`}, {"DELETE", hidden, noJob, ""},
		{"PATCH", hidden, noJob, `{"nosuch":1}`},
		{"POST", hidden + "/trigger", noJob + "/trigger", ""}, {"POST", hidden + "/enable", noJob + "/enable", ""},
		{"POST", hidden + "/disable", noJob + "/disable", ""},
		{"GET", hidden + "/next", noJob + "/next", ""}, {"GET", hidden + "/missed", noJob + "/missed", ""},
		{"GET", hidden + "/why?at=2026-03-29T01:30:00Z", noJob + "/why?at=2026-03-29T01:30:00Z", ""}, {"GET", hidden + "/why?at=x", noJob + "/why?at=x", ""},
		{"GET", hiddenRun, noRun, ""}, {"GET", hiddenRun + "/log", noRun + "/log", ""}, {"GET", hiddenRun + "/log.txt", noRun + "/log.txt", ""},
		{"GET", hiddenRun + "/log/stream", noRun + "/log/stream", ""}, {"POST", hiddenRun + "/kill", noRun + "/kill", ""},
		{"POST", hiddenRun + "/retry", noRun + "/retry", ""},
		{"GET", "/api/v1/groups/secret", "/api/v1/groups/nowhere", ""}, {"GET", "/api/v1/groups/secret/instances", "/api/v1/groups/nowhere/instances", ""},
		{"POST", "/api/v1/groups/secret/instances/one/drain", "/api/v1/groups/nowhere/instances/one/drain", ""},
	} {
		a, b := w.do(op, r.method, r.hidden, r.body), w.do(op, r.method, r.missing, r.body)
		if a.status != 404 || a.body != b.body {
			t.Errorf("%s %s: hidden %d %s, missing %d %s; both answers must be the same", r.method, r.hidden, a.status, a.body, b.status, b.body)
		}
	}
	for _, list := range []string{"/api/v1/jobs", "/api/v1/runs", "/api/v1/runs?job_id=2",
		"/api/v1/runs?state=pending", "/api/v1/runs?job_id=2&state=pending", "/api/v1/groups", "/api/v1/audit/fires"} {
		for _, who := range []string{op, vi} {
			if a := w.do(who, "GET", list, ""); a.status != 200 || strings.Contains(a.body, "secret") {
				t.Errorf("%s shows %d %s", list, a.status, a.body)
			}
		}
	}
	if a, b := w.do(op, "GET", "/api/v1/audit/fires?job_id=2", ""), w.do(op, "GET", "/api/v1/audit/fires?job_id=999", ""); a.status != 422 || a.body != b.body {
		t.Errorf("the audit of a hidden job: %d %s; of none: %s", a.status, a.body, b.body)
	}
	// New jobs, edits and children cannot use a group that the caller may not see.
	alike := func(what, a, b string) {
		t.Helper()
		// Each answer repeats the name in the request.
		if strings.ReplaceAll(a, "secret", "nowhere") != b || !strings.Contains(a, `"status":422`) {
			t.Errorf("%s: %s and %s must be the same", what, a, b)
		}
	}
	alike("create", w.do(op, "POST", "/api/v1/jobs", strings.Replace(simpleJob, "default", "secret", 1)).body,
		w.do(op, "POST", "/api/v1/jobs", strings.Replace(simpleJob, "default", "nowhere", 1)).body)
	for _, list := range []string{"/api/v1/jobs?group=", "/api/v1/runs?group=", "/api/v1/runs?state=pending&group="} {
		alike(list, w.do(op, "GET", list+"secret", "").body, w.do(op, "GET", list+"nowhere", "").body)
	}
	alike("token", w.do(op, "POST", "/api/v1/tokens", `{"name":"x","groups":["secret"]}`).body,
		w.do(op, "POST", "/api/v1/tokens", `{"name":"x","groups":["nowhere"]}`).body)
	alike("move", w.do(op, "PATCH", mine, `{"group":"secret"}`).body, w.do(op, "PATCH", mine, `{"group":"nowhere"}`).body)
	alike("child", w.do(op, "PATCH", mine, `{"children":[{"job_id":2}]}`).body, w.do(op, "PATCH", mine, `{"children":[{"job_id":999}]}`).body)
	// If an admin has added a child that the operator may not see, the operator can still make other edits.
	w.must(200, "PATCH", mine, `{"children":[{"job_id":2}]}`)
	if a := w.do(op, "PATCH", mine, `{"retries":2}`); a.status != 200 {
		t.Errorf("an operator's edit of a job with a hidden child: %d %s", a.status, a.body)
	}

	for _, r := range []struct {
		method, path, body string
		op, vi             int
	}{
		{"GET", mine, "", 200, 200}, {"GET", myRun, "", 200, 200}, {"GET", "/api/v1/groups/default", "", 200, 200},
		{"POST", mine + "/trigger", "", 202, 403}, {"PATCH", mine, `{"retries":1}`, 200, 403}, {"POST", myRun + "/kill", "", 202, 403},
		{"POST", "/api/v1/groups/default/instances/one/drain", "", 202, 403},
		{"POST", "/api/v1/groups", `{"name":"x"}`, 403, 403}, {"DELETE", "/api/v1/groups/default", "", 403, 403},
		{"POST", "/api/v1/groups/default/token", "", 403, 403}, {"PATCH", "/api/v1/groups/default", `{"description":"x"}`, 403, 403},
		{"GET", "/api/v1/users", "", 403, 403}, {"POST", "/api/v1/users", "{}", 403, 403}, {"GET", "/api/v1/audit", "", 403, 403},
		{"POST", "/api/v1/tokens", `{"name":"mine"}`, 201, 201}, {"DELETE", "/api/v1/tokens/1", "", 204, 404},
	} {
		for _, who := range []struct {
			token  string
			status int
		}{{op, r.op}, {vi, r.vi}} {
			if a := w.do(who.token, r.method, r.path, r.body); a.status != who.status {
				t.Errorf("%s %s: %d, want %d: %s", r.method, r.path, a.status, who.status, a.body)
			}
		}
	}
}

func TestGroups(t *testing.T) {
	w := newWorld(t)
	made := w.must(201, "POST", "/api/v1/groups", `{"name":"batch","description":"nightly work"}`)
	token := made.field("token").(string)
	if name, _, err := w.groups.GroupOfToken(t.Context(), token); err != nil || name != "batch" {
		t.Errorf("the token is of %q, %v", name, err)
	}
	next := w.must(200, "POST", "/api/v1/groups/batch/token", "").field("token").(string)
	if _, _, err := w.groups.GroupOfToken(t.Context(), token); err == nil {
		t.Error("the old token still works")
	}
	if name, _, err := w.groups.GroupOfToken(t.Context(), next); err != nil || name != "batch" {
		t.Errorf("the new token is of %q, %v", name, err)
	}
	third := w.must(200, "POST", "/api/v1/groups/batch/token", `{"overlap":"24h"}`)
	until, err := time.Parse(time.RFC3339, third.field("previous_token_until").(string))
	if err != nil || time.Until(until) > 24*time.Hour+time.Minute || time.Until(until) < 23*time.Hour {
		t.Errorf("the old token is valid until %v, %v", until, err)
	}
	for _, token := range []string{next, third.field("token").(string)} {
		if name, _, err := w.groups.GroupOfToken(t.Context(), token); err != nil || name != "batch" {
			t.Errorf("during the overlap, a token is of %q, %v", name, err)
		}
	}
	if a := w.must(200, "GET", "/api/v1/groups/batch", ""); a.field("previous_token_until") != third.field("previous_token_until") {
		t.Errorf("the group shows %v", a.field("previous_token_until"))
	}
	for _, overlap := range []string{"168h0m1s", "-1s", "1 day"} {
		if a := w.do(w.admin, "POST", "/api/v1/groups/batch/token", `{"overlap":"`+overlap+`"}`); a.status != 422 {
			t.Errorf("overlap %s: %d", overlap, a.status)
		}
	}
	if _, _, err := w.groups.GroupOfToken(t.Context(), next); err != nil {
		t.Errorf("after refused replacements: %v", err)
	}
	if a := w.must(200, "POST", "/api/v1/groups/batch/token", "{}"); a.field("previous_token_until") != nil {
		t.Errorf("without an overlap: %s", a.body)
	}
	if _, _, err := w.groups.GroupOfToken(t.Context(), next); err == nil {
		t.Error("the old token of an overlap outlives a replacement without one")
	}
	w.job(simpleJob)
	w.rows([]row{
		{"list", "GET", "/api/v1/groups", "", 200, map[string]any{"items.0.name": "batch", "items.1.name": "default", "items.1.jobs": 1, "items.1.instances": 1}, nil},
		{"page", "GET", "/api/v1/groups?limit=1", "", 200, map[string]any{"items.0.name": "batch", "items.1": nil}, nil},
		{"describe", "PATCH", "/api/v1/groups/batch", `{"description":"other"}`, 200, map[string]any{"description": "other"}, nil},
		{"limit", "PATCH", "/api/v1/groups/batch", `{"limits":{"max_jobs":7}}`, 200,
			map[string]any{"description": "other", "limits.max_jobs": 7, "limits.max_instances": 1000}, nil},
		{"keep limits", "PATCH", "/api/v1/groups/batch", `{"description":"third"}`, 200, map[string]any{"limits.max_jobs": 7}, nil},
		{"instances", "GET", "/api/v1/groups/default/instances", "", 200, map[string]any{"items.0.id": "one", "items.0.handlers": "[echo]"}, nil},
		{"no instances", "GET", "/api/v1/groups/batch/instances", "", 200, map[string]any{"items": "[]"}, nil},
		{"drain", "POST", "/api/v1/groups/default/instances/one/drain", "", 202, nil, nil},
		{"delete", "DELETE", "/api/v1/groups/batch", "", 204, nil, nil},
		{"deleted", "GET", "/api/v1/groups/batch", "", 404, nil, nil},
		{"users", "GET", "/api/v1/users", "", 200, map[string]any{"items.0.username": "admin", "items.0.groups": "[]"}, nil},
	})
}

func TestAudit(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	w.must(200, "PATCH", job, `{"retries":3}`)
	w.must(200, "PATCH", job, `{"retries":3}`)
	w.must(200, "POST", job+"/disable", "")
	w.must(202, "POST", job+"/trigger", "")
	w.must(204, "DELETE", job, "")
	w.must(422, "POST", "/api/v1/jobs", "{}")
	a := w.must(200, "GET", "/api/v1/audit?object=job/1", "")
	var doc struct {
		Items []struct {
			Actor, Remote, Action string
			Before, After         map[string]any
		}
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, c := range doc.Items {
		actions = append(actions, c.Action)
		if c.Actor != "admin" || c.Remote == "" {
			t.Errorf("%s is by %q from %q", c.Action, c.Actor, c.Remote)
		}
	}
	if got := strings.Join(actions, " "); got != "job.delete job.trigger job.disable job.update job.create" {
		t.Fatalf("the changes are %s", got)
	}
	if u := doc.Items[3]; u.Before["retries"] != 0.0 || u.After["retries"] != 3.0 {
		t.Errorf("the update is from %v to %v", u.Before["retries"], u.After["retries"])
	}
	if strings.Contains(w.must(200, "GET", "/api/v1/audit", "").body, adminPassword) {
		t.Error("a password is in the audit log")
	}
	if n := len(w.must(200, "GET", "/api/v1/audit?action=job.create&limit=5", "").field("items").([]any)); n != 1 {
		t.Errorf("%d creations", n)
	}
}
