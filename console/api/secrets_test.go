package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// Viewers and the audit log get params with their secrets masked. Callers who may change a job get the complete params.
func TestSecretsInParams(t *testing.T) {
	w := newWorld(t)
	viewer := w.must(201, "POST", "/api/v1/tokens", `{"name":"vi","role":"viewer","groups":["default"]}`).field("token").(string)
	operator := w.must(201, "POST", "/api/v1/tokens", `{"name":"op","role":"operator","groups":["default"]}`).field("token").(string)
	made := w.must(201, "POST", "/api/v1/jobs", `{"name":"bill","group":"default","handler":"h","schedule":{"kind":"none"},"param":"{\"db_password\":\"hunter2\",\"month\":\"2026-11\"}"}`)
	job := fmt.Sprintf("/api/v1/jobs/%v", made.field("id"))
	run := w.must(202, "POST", job+"/trigger", `{"param":"month=2026-12 password=hunter2"}`).field("run_ids.0").(string)
	w.must(200, "PATCH", job, `{"description":"changed"}`)
	for _, path := range []string{job, "/api/v1/jobs", "/api/v1/runs/" + run, "/api/v1/runs", "/api/v1/export"} {
		seen, whole := w.do(viewer, "GET", path, ""), w.do(operator, "GET", path, "")
		if seen.status != 200 || strings.Contains(seen.body, "hunter2") || !strings.Contains(seen.body, "•••") || !strings.Contains(seen.body, "2026-1") {
			t.Errorf("a viewer's %s: %d %s", path, seen.status, seen.body)
		}
		if whole.status != 200 || !strings.Contains(whole.body, "hunter2") || strings.Contains(whole.body, "•••") {
			t.Errorf("an operator's %s: %d %s", path, whole.status, whole.body)
		}
	}
	audit := w.must(200, "GET", "/api/v1/audit", "").body
	for _, want := range []string{"•••", "job.update", "trigger", "2026-11"} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit log lacks %q: %s", want, audit)
		}
	}
	if strings.Contains(audit, "hunter2") {
		t.Errorf("the audit log has a secret: %s", audit)
	}
}

// Scripts, messages, outputs and the data of events get the same mask.
func TestSecretsInTexts(t *testing.T) {
	w := newWorld(t)
	viewer := w.must(201, "POST", "/api/v1/tokens", `{"name":"vi","role":"viewer","groups":["default"]}`).field("token").(string)
	operator := w.must(201, "POST", "/api/v1/tokens", `{"name":"op","role":"operator","groups":["default"]}`).field("token").(string)
	code := "mysql -uroot -phunter2 db <x.sql\ncurl 'https://x.test/?sig=hunter2&a=1'\n# code"
	encoded, _ := json.Marshal(code)
	job := w.job(`{"group":"default","name":"s","script":{"language":"sh","code":` + string(encoded) + `},"schedule":{"kind":"none"}}`)
	w.must(201, "POST", job+"/scripts", `{"language":"sh","code":"run --password hunter2 # code 2"}`)
	run := domain.NewRunID(w.store.Now())
	w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
	        VALUES ($1, 1, 1, 'default', 'manual', 'failed', 'handler_error', 'message: Cookie: s=hunter2', 'output: PGPASSWORD=hunter2', 1, now(), now(), now(), 0, '')`, run)
	trigger := w.must(201, "POST", "/api/v1/event-triggers", `{"name":"e","job_id":1,"param":"{\"x_api_key\":\"hunter2\"}"}`)
	w.must(202, "POST", "/api/v1/events/e", `{"data":{"passwd":"hunter2","n":1}}`)
	for _, path := range []string{job, "/api/v1/jobs", job + "/scripts/1", job + "/scripts/2?diff=1", "/api/v1/runs/" + run.String(), "/api/v1/runs?state=failed",
		"/api/v1/event-triggers", fmt.Sprintf("/api/v1/event-triggers/%v", trigger.field("id")), "/api/v1/events", "/api/v1/export"} {
		seen, whole := w.do(viewer, "GET", path, ""), w.do(operator, "GET", path, "")
		if seen.status != 200 || strings.Contains(seen.body, "hunter2") || !strings.Contains(seen.body, "•••") {
			t.Errorf("a viewer's %s: %d %s", path, seen.status, seen.body)
		}
		if whole.status != 200 || !strings.Contains(whole.body, "hunter2") || strings.Contains(whole.body, "•••") {
			t.Errorf("an operator's %s: %d %s", path, whole.status, whole.body)
		}
	}
	script := job + "/scripts/1"
	if a, whole := w.do(viewer, "GET", script, ""), w.must(200, "GET", script, ""); a.field("sha256") != "" || whole.field("sha256") == "" {
		t.Errorf("a viewer could guess the secret from the digest in %s", a.body)
	}
	if audit := w.must(200, "GET", "/api/v1/audit", "").body; strings.Contains(audit, "hunter2") || !strings.Contains(audit, "# code") {
		t.Errorf("the audit log: %s", audit)
	}
}

// Someone who has read a masked text, such as an operator who reads the audit log or a viewer's export, and sends it back does
// not replace the secret by its mask.
func TestMaskedValuesSentBack(t *testing.T) {
	w := newWorld(t)
	const param, masked = `{"password":"hunter2","n":1}`, `{"n":1,"password":"•••"}`
	q := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	job := w.job(`{"group":"default","name":"j","script":{"language":"sh","code":"run --password hunter2"},"schedule":{"kind":"none"},"param":` + q(param) + `}`)
	whole := func(code, param string) string {
		return fmt.Sprintf(`{"group":"default","name":"j","script":{"language":"sh","code":%s},"schedule":{"kind":"none"},"param":%s,"description":"d"}`, q(code), q(param))
	}
	trigger := fmt.Sprintf("/api/v1/event-triggers/%v", w.must(201, "POST", "/api/v1/event-triggers", `{"name":"e","job_id":1,"param":`+q(param)+`}`).field("id"))
	kept := func(what string) {
		t.Helper()
		a := w.must(200, "GET", job, "")
		if a.field("param") != param || a.field("script.code") != "run --password hunter2" || w.must(200, "GET", trigger, "").field("param") != param {
			t.Errorf("%s changes the secret: %s", what, a.body)
		}
	}
	for _, r := range []struct {
		method, path, body string
		status             int
		at                 string
	}{
		{"PUT", job, whole("run --password •••", masked), 200, ""}, {"PATCH", job, `{"param":` + q(masked) + `}`, 200, ""},
		{"PATCH", job, `{"script":{"language":"sh","code":"run --password •••"}}`, 200, ""}, {"POST", job + "/scripts", `{"language":"sh","code":"run --password •••"}`, 201, ""},
		{"PATCH", trigger, `{"param":` + q(masked) + `}`, 200, ""}, {"PUT", trigger, `{"name":"e","job_id":1,"param":` + q(masked) + `}`, 200, ""},
		{"PATCH", job, `{"param":"{\"password\":\"•••\",\"n\":2}"}`, 422, "param"}, {"PATCH", job, `{"script":{"language":"sh","code":"run -v --password •••"}}`, 422, "script.code"},
		{"PUT", job, whole("run • --password •••", "•••"), 422, "script.code"}, {"POST", job + "/scripts", `{"language":"sh","code":"# new\nrun --password •••"}`, 422, "code"},
		{"PATCH", trigger, `{"param":"•••"}`, 422, "param"}, {"POST", "/api/v1/event-triggers", `{"name":"f","job_id":1,"param":"•••"}`, 422, "param"},
		{"POST", "/api/v1/jobs", strings.Replace(whole("x", "token=•••"), `"j"`, `"new"`, 1), 422, "param"}, {"POST", job + "/trigger", `{"param":"token=•••"}`, 422, "param"},
	} {
		a := w.must(r.status, r.method, r.path, r.body)
		if r.at != "" && (!slices.Contains(a.locations(), r.at) || !strings.Contains(a.body, "masked")) {
			t.Errorf("%s %s: %s", r.method, r.body, a.body)
		}
		kept(r.method + " " + r.path + " " + r.body)
	}
	run := w.must(202, "POST", job+"/trigger", `{"param":`+q(masked)+`}`).field("run_ids.0").(string)
	if a := w.must(200, "GET", "/api/v1/runs/"+run, ""); a.field("param") != param {
		t.Errorf("a trigger with the masked param: %s", a.body)
	}
	// The export of a viewer changes nothing, and is refused where nothing is stored.
	viewer := w.must(201, "POST", "/api/v1/tokens", `{"name":"vi","role":"viewer","groups":["default"]}`).field("token").(string)
	export := w.do(viewer, "GET", "/api/v1/export", "").body
	w.must(200, "POST", "/api/v1/import", export, "Content-Type", "application/yaml")
	kept("the import")
	a := w.must(422, "POST", "/api/v1/import", strings.Replace(export, "name: j", "name: other", 1), "Content-Type", "application/yaml")
	if !slices.Contains(a.locations(), "jobs[0].param") || !slices.Contains(a.locations(), "jobs[0].script.code") {
		t.Errorf("an import as a new job: %s", a.body)
	}
}
