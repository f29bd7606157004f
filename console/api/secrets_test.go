package api_test

import (
	"fmt"
	"strings"
	"testing"
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
