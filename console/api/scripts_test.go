package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

const scriptJob = `{"group":"default","name":"script","schedule":{"kind":"none"},"script":{"language":"sh","code":"echo one\n","remark":"the first"}}`

func TestScripts(t *testing.T) {
	const job, scripts = "/api/v1/jobs/1", "/api/v1/jobs/1/scripts"
	w := newWorld(t)
	w.rows([]row{
		{"create", "POST", "/api/v1/jobs", scriptJob, 201, map[string]any{
			"version": 1, "handler": nil, "script.version": 1, "script.sha256": domain.Digest("echo one\n"), "script.remark": "the first"}, nil},
		{"the first version", "GET", scripts, "", 200, map[string]any{"items.0.version": 1, "items.0.author": "admin", "items.0.bytes": 9,
			"items.0.language": "sh", "items.0.remark": "the first", "items.0.job_version": 1, "items.0.code": nil, "items.1": nil}, nil},
		{"save", "POST", scripts, `{"language":"sh","code":"echo one\necho two\n","remark":"more"}`, 201, map[string]any{
			"version": 2, "job_version": 2, "code": "echo one\necho two\n", "remark": "more", "diff": nil}, nil},
		{"save the same code", "POST", scripts, `{"language":"sh","code":"echo one\necho two\n"}`, 201, map[string]any{"version": 2}, nil},
		{"the job has it", "GET", job, "", 200, map[string]any{"version": 2, "script.version": 2, "script.code": "echo one\necho two\n"}, nil},
		{"show with a difference", "GET", scripts + "/2?diff=1", "", 200, map[string]any{"diff_from": 1,
			"diff": "diff version 1 (sh) version 2 (sh)\n--- version 1 (sh)\n+++ version 2 (sh)\n@@ -1,1 +1,2 @@\n echo one\n+echo two\n"}, nil},
		{"show without a difference", "GET", scripts + "/2?diff=2", "", 200, map[string]any{"diff": ""}, nil},
		{"another field", "PATCH", job, `{"description":"x"}`, 200, map[string]any{"version": 3, "script.version": 2, "script.remark": "more"}, nil},
		{"a changed script in a patch", "PATCH", job, `{"script":{"code":"echo three\n"}}`, 200, map[string]any{
			"version": 4, "script.version": 3, "script.language": "sh", "script.remark": ""}, nil},
		{"a PUT with read-only fields", "PUT", job, strings.Replace(scriptJob, `"remark":"the first"`, `"remark":"","version":1,"sha256":"x"`, 1), 200, map[string]any{
			"version": 5, "script.version": 4, "script.sha256": domain.Digest("echo one\n")}, nil},
		{"restore", "POST", scripts + "/2/restore", "", 201, map[string]any{"version": 5, "code": "echo one\necho two\n", "remark": "version 2 restored"}, nil},
		{"restore again", "POST", scripts + "/2/restore", `{"remark":"why not"}`, 201, map[string]any{"version": 5, "remark": "version 2 restored"}, nil},
		{"restore with a remark", "POST", scripts + "/1/restore", `{"remark":"why not"}`, 201, map[string]any{"version": 6, "remark": "why not"}, nil},
		{"a page", "GET", scripts + "?limit=2", "", 200, map[string]any{"items.0.version": 6, "items.1.version": 5, "items.2": nil}, nil},
		{"stale", "POST", scripts, `{"language":"sh","code":"x"}`, 409, nil, []string{"If-Match", `"3"`}},
		{"restore stale", "POST", scripts + "/2/restore", "", 409, nil, []string{"If-Match", `"3"`}},
		{"not stale", "POST", scripts, `{"language":"python","code":"print()"}`, 201, map[string]any{"version": 7, "language": "python"}, []string{"If-Match", `"7"`}},
		{"an unknown version", "GET", scripts + "/99", "", 404, nil, nil},
		{"a version that the database cannot store", "GET", scripts + "/99999999999", "", 404, nil, nil},
		{"restore an unknown version", "POST", scripts + "/99/restore", "", 404, nil, nil},
		{"a handler instead", "PATCH", job, `{"handler":"echo","script":null}`, 200, map[string]any{"handler": "echo", "script": nil}, nil},
		{"save a script for a job with a handler", "POST", scripts, `{"language":"sh","code":"x"}`, 409, nil, nil},
		{"a script again", "PATCH", job, `{"handler":null,"script":{"language":"sh","code":"x"}}`, 200, map[string]any{"script.version": 8}, nil},
		{"an unknown job", "GET", "/api/v1/jobs/99/scripts", "", 404, nil, nil},
	})
	var versions []any
	for cursor := ""; ; {
		page := w.do(w.admin, "GET", scripts+"?limit=3&cursor="+cursor, "")
		for i := range 3 {
			if v := page.field("items." + string(rune('0'+i)) + ".version"); v != nil {
				versions = append(versions, v)
			}
		}
		if cursor, _ = page.field("next_cursor").(string); cursor == "" {
			break
		}
	}
	if !slices.Equal(versions, []any{8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0}) {
		t.Errorf("all pages together have the versions %v", versions)
	}
	// The audit log has the code before and after each change.
	changes := w.do(w.admin, "GET", "/api/v1/audit?limit=500", "").body
	var log struct {
		Items []struct {
			Actor, Action, Object string
			Before, After         *domain.Script
		}
	}
	if err := json.Unmarshal([]byte(changes), &log); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, c := range log.Items {
		if c.Action != "script.save" && c.Action != "script.restore" {
			continue
		}
		found++
		if c.Actor != "admin" || c.Object != "job/1" || c.Before == nil || c.After == nil || c.Before.Code == c.After.Code || c.Before.Version+1 != c.After.Version {
			t.Errorf("%+v from %+v to %+v", c, c.Before, c.After)
		}
	}
	if found != 4 {
		t.Errorf("the audit log has %d changes of scripts, want 4: %s", found, changes)
	}
}

func TestScriptsBadInput(t *testing.T) {
	w := newWorld(t)
	if a := w.do(w.admin, "POST", "/api/v1/jobs", scriptJob); a.status != 201 {
		t.Fatal(a.body)
	}
	const jobs, scripts = "/api/v1/jobs", "/api/v1/jobs/1/scripts"
	huge := strings.Repeat("x", 256<<10+1)
	with := func(script string) string {
		return `{"group":"default","name":"bad","schedule":{"kind":"none"},"script":` + script + `}`
	}
	for _, test := range []struct {
		name, method, path, body string
		status                   int
		locations                []string
	}{
		{"an unknown language", "POST", scripts, `{"language":"cobol","code":"x"}`, 422, []string{"language"}},
		{"no code, a long remark, an unknown field", "POST", scripts, `{"language":"sh","remark":"` + strings.Repeat("x", 1025) + `","bogus":1}`, 422, []string{"bogus", "code", "remark"}},
		{"wrong types", "POST", scripts, `{"language":1,"code":[]}`, 422, []string{"language", "code"}},
		{"too long", "POST", scripts, `{"language":"sh","code":"` + huge + `"}`, 422, []string{"code"}},
		{"a NUL", "POST", scripts, `{"language":"sh","code":"a\u0000"}`, 422, []string{"code"}},
		{"no body", "POST", scripts, ``, 400, []string{"body"}},
		{"a remark of the wrong type", "POST", scripts + "/1/restore", `{"remark":1,"code":"x"}`, 422, []string{"remark", "code"}},
		{"a long remark", "POST", scripts + "/1/restore", `{"remark":"` + strings.Repeat("x", 1025) + `"}`, 422, []string{"remark"}},
		{"no version", "GET", scripts + "/none", "", 422, []string{"version"}},
		{"version 0", "GET", scripts + "/0", "", 422, []string{"version"}},
		{"a difference from an unknown version", "GET", scripts + "/1?diff=7", "", 422, []string{"diff"}},
		{"a difference from 0", "GET", scripts + "/1?diff=0", "", 422, []string{"diff"}},
		{"a cursor of another list", "GET", scripts + "?cursor=am9iOjE", "", 422, []string{"cursor"}},
		{"in a job, an unknown language and no code", "POST", jobs, with(`{"language":"perl","remark":5}`), 422, []string{"script.language", "script.code", "script.remark"}},
		{"in a job, too long", "POST", jobs, with(`{"language":"sh","code":"` + huge + `"}`), 422, []string{"script.code"}},
		{"in a job, an unknown field", "POST", jobs, with(`{"language":"sh","code":"x","file":"y"}`), 422, []string{"script.file"}},
		{"in a patch", "PATCH", jobs + "/1", `{"script":{"language":"perl"}}`, 422, []string{"script.language"}},
	} {
		a := w.do(w.admin, test.method, test.path, test.body)
		var p struct{ Errors []domain.FieldError }
		if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != test.status {
			t.Errorf("%s: %d, want %d: %.300s", test.name, a.status, test.status, a.body)
			continue
		}
		var got []string
		for _, e := range p.Errors {
			got = append(got, e.Location)
		}
		slices.Sort(got)
		slices.Sort(test.locations)
		if !slices.Equal(got, test.locations) {
			t.Errorf("%s: faults at %v, want %v", test.name, got, test.locations)
		}
	}
	if v := w.do(w.admin, "GET", "/api/v1/jobs/1", "").field("version"); v != 1.0 {
		t.Errorf("bad input has changed the job: version %v", v)
	}
}

func TestScriptsRoles(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{`{"username":"op","password":"long enough","role":"operator","groups":["default"]}`,
		`{"username":"see","password":"long enough","role":"viewer","groups":["default"]}`,
		`{"username":"far","password":"long enough","role":"operator","groups":[]}`} {
		if a := w.do(w.admin, "POST", "/api/v1/users", body); a.status != 201 {
			t.Fatal(a.body)
		}
	}
	if a := w.do(w.admin, "POST", "/api/v1/jobs", scriptJob); a.status != 201 {
		t.Fatal(a.body)
	}
	const scripts = "/api/v1/jobs/1/scripts"
	for user, want := range map[string][4]int{"op": {200, 200, 201, 201}, "see": {200, 200, 403, 403}, "far": {404, 404, 404, 404}} {
		token := w.logIn(user, "long enough")
		got := [4]int{
			w.do(token, "GET", scripts, "").status, w.do(token, "GET", scripts+"/1", "").status,
			w.do(token, "POST", scripts, `{"language":"sh","code":"by `+user+`"}`).status, w.do(token, "POST", scripts+"/1/restore", "").status,
		}
		if got != want {
			t.Errorf("%s: %v, want %v", user, got, want)
		}
	}
	// Two requests under the same key make one version.
	save := func() any {
		return w.do(w.admin, "POST", scripts, `{"language":"sh","code":"once","remark":"r"}`, "Idempotency-Key", "k1").field("version")
	}
	first := save()
	w.do(w.admin, "POST", scripts, `{"language":"sh","code":"between"}`)
	if again := save(); first == nil || again != first {
		t.Errorf("repeated: version %v, then %v", first, again)
	}
}
