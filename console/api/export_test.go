package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imported posts a file and returns the answer.
func (w *world) imported(token, query, file string) answer {
	w.t.Helper()
	return w.do(token, "POST", "/api/v1/import"+query, file, "Content-Type", "application/yaml")
}

// In richJobs every field differs from its default, and some names are texts that YAML could read as other types.
const richJobs = `
belfry: 1
groups:
  - {name: billing, description: "Bills: and # more"}
jobs:
  - group: default
    name: parent
    schedule: {kind: cron, expr: "0 0 2 ? * MON-FRI", dialect: quartz, time_zone: Asia/Shanghai, start_at: 2026-01-01T00:00:00.000Z, jitter: 5m}
    handler: echo
    children: [{job: billing/null, on: always}, {job: "default/yes", on: failure}]
  - group: billing
    name: "null"
    description: "two\nlines: [not, a, list]\n"
    author: "007"
    tags: ["1.0", "on", "~"]
    enabled: false
    schedule: {kind: fixed_rate, every: 90s}
    misfire: fire_once
    handler: echo
    param: "  {\"a\": 1}\n\ttab \u2028 end \n\n"
    route: consistent_hash
    route_key: k
    block: parallel
    block_scope: instance
    timeout: 1h30m
    start_deadline: 3m
    retries: 3
    retry_backoff: {initial: 2s, factor: 1.5, max: 1m}
    retention: 48h
  - {group: default, name: "yes", schedule: {kind: once, at: 2030-01-01T00:00:00.000Z}, handler: echo}
event_triggers:
  - {name: orders.*, job: "default/yes", filter: 'event.data.total > 100', param: '{{.data.id}}', enabled: false}
  - {name: orders.*, job: "default/yes"}
`

// An empty server can import an export, and then exports the same text.
func TestExportImport(t *testing.T) {
	w := newWorld(t)
	dry := w.imported(w.admin, "?dry_run=true", richJobs)
	if dry.status != 200 || fmt.Sprint(dry.field("dry_run"), dry.field("created"), dry.field("unchanged")) != "true 6 0" {
		t.Fatalf("a dry run: %d %s", dry.status, dry.body)
	}
	if list := w.must(200, "GET", "/api/v1/jobs", ""); list.field("items.0") != nil {
		t.Fatalf("a dry run made %s", list.body)
	}
	first := w.imported(w.admin, "", richJobs)
	if first.status != 200 || fmt.Sprint(first.field("created"), first.field("failed")) != "6 0" {
		t.Fatalf("imported: %d %s", first.status, first.body)
	}
	if again := w.imported(w.admin, "", richJobs); fmt.Sprint(again.field("unchanged"), again.field("updated")) != "6 0" {
		t.Errorf("imported again: %s", again.body)
	}
	changed := strings.Replace(richJobs, "total > 100", "total > 200", 1)
	if a := w.imported(w.admin, "?dry_run=true", changed); fmt.Sprintf("%v %v %v", a.field("updated"), a.field("items.4.changes.0.field"), a.field("items.4.kind")) != "1 filter event_trigger" {
		t.Errorf("another filter: %s", a.body)
	}
	w.must(201, "POST", "/api/v1/alert-channels", `{"name":"ops","kind":"webhook","url":"https://example.org/hook/path","secret":"s3cr3t-s3cr3t-s3cr3t"}`)
	w.must(201, "POST", "/api/v1/calendars", `{"name":"closed","description":"the office","weekdays":["sunday"],"dates":["2027-01-01"]}`)
	w.must(201, "POST", "/api/v1/calendars", `{"name":"unused"}`)
	w.must(200, "PATCH", fmt.Sprintf("/api/v1/jobs/%v", w.must(200, "GET", "/api/v1/jobs?q=parent", "").field("items.0.id")), `{"schedule":{"calendar":"closed"}}`)
	text := w.must(200, "GET", "/api/v1/export", "")
	if strings.Contains(text.body, "s3cr3t") || strings.Contains(text.body, "example.org") {
		t.Errorf("the export has secrets: %s", text.body)
	}
	if !strings.HasPrefix(text.header.Get("Content-Type"), "application/yaml") || strings.Contains(text.body, "bfg_") {
		t.Errorf("exported %v %s", text.header, text.body)
	}
	golden := filepath.Join("testdata", "export.yaml")
	if *update {
		if err := os.WriteFile(golden, []byte(text.body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != text.body {
		t.Errorf("the export differs from %s (%v):\n%s", golden, err, text.body)
	}

	other := newWorld(t)
	if a := other.imported(other.admin, "", text.body); a.status != 422 || fmt.Sprint(a.locations()) != "[alert_channels[0].name]" {
		t.Errorf("without its channel: %d %s", a.status, a.body)
	}
	other.must(201, "POST", "/api/v1/alert-channels", `{"name":"ops","kind":"webhook","url":"https://example.org/other"}`)
	if a := other.imported(other.admin, "", text.body); a.status != 200 || fmt.Sprint(a.field("failed")) != "0" {
		t.Fatalf("on an empty server: %d %s", a.status, a.body)
	}
	if back := other.must(200, "GET", "/api/v1/export", "").body; back != text.body {
		t.Errorf("the second export is\n%s", back)
	}
	if one := w.must(200, "GET", "/api/v1/export?group=billing", "").body; strings.Contains(one, "parent") || !strings.Contains(one, "route_key: k") || strings.Contains(one, "calendar") {
		t.Errorf("the export of a group:\n%s", one)
	}
	if one := w.must(200, "GET", "/api/v1/export?group=default", "").body; !strings.Contains(one, "- name: closed") || strings.Contains(one, "unused") {
		t.Errorf("the export of a group whose jobs use a calendar:\n%s", one)
	}
}

func TestImportChanges(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	edited := `{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"cron","expr":"0 3 * * *"},"retries":2}`
	a := w.do(w.admin, "POST", "/api/v1/import", edited)
	if a.status != 200 || fmt.Sprint(a.field("updated"), a.field("items.0.changes")) !=
		"1 [map[field:retries from:0 to:2] map[field:schedule.expr from:0 2 * * * to:0 3 * * *]]" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := w.must(200, "GET", "/api/v1/jobs/1", ""); got.field("retries") != 2.0 || got.field("version") != 2.0 {
		t.Errorf("the job is %s", got.body)
	}
	if log := w.must(200, "GET", "/api/v1/audit", ""); log.field("items.0.action") != "job.update" {
		t.Errorf("the audit log has %s", log.body)
	}

	// The import creates calendars before the jobs that use them.
	const calendars = "calendars: [{name: old, weekdays: [sunday], dates: [2026-12-25]}, {name: new}]\njobs:\n" +
		"- {group: default, name: nightly, handler: echo, schedule: {kind: cron, expr: 0 3 * * *, calendar: new}, retries: 2}\n"
	w.must(201, "POST", "/api/v1/calendars", `{"name":"old","weekdays":["sunday","saturday"]}`)
	dry := w.imported(w.admin, "?dry_run=true", calendars)
	for n, want := range []string{"calendar old updated [map[field:weekdays from:saturday sunday to:sunday] map[field:dates from: to:2026-12-25]]", "calendar new created []",
		"job nightly updated [map[field:schedule.calendar from: to:new]]"} {
		at := fmt.Sprintf("items.%d.", n)
		if got := fmt.Sprint(dry.field(at+"kind"), " ", dry.field(at+"name"), " ", dry.field(at+"action"), " ", dry.field(at+"changes")); got != want {
			t.Errorf("item %d is %s", n, got)
		}
	}
	if list := w.must(200, "GET", "/api/v1/calendars", ""); list.field("items.1") != nil || list.field("items.0.version") != 1.0 {
		t.Errorf("a dry run made %s", list.body)
	}
	if a := w.imported(w.admin, "", calendars); a.status != 200 || a.field("failed") != 0.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.imported(w.admin, "", calendars); a.field("unchanged") != 3.0 {
		t.Errorf("again: %s", a.body)
	}
	if list := w.must(200, "GET", "/api/v1/calendars", ""); list.field("items.0.jobs") != 1.0 || list.field("items.1.version") != 2.0 {
		t.Errorf("the calendars are %s", list.body)
	}
}

func TestImportFaults(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"hidden"}`)
	w.must(201, "POST", "/api/v1/jobs", strings.Replace(simpleJob, "default", "hidden", 1))
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"long enough","role":"operator","groups":["default"]}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"vi","password":"long enough","role":"viewer","groups":["default"]}`)
	w.must(201, "POST", "/api/v1/calendars", `{"name":"there","weekdays":["sunday"]}`)
	w.must(201, "POST", "/api/v1/calendars", `{"name":"other","weekdays":["sunday"]}`)
	op, viewer := w.logIn("op", "long enough"), w.logIn("vi", "long enough")
	job := func(name, more string) string {
		return "- {group: default, name: " + name + ", handler: echo, schedule: {kind: none}" + more + "}\n"
	}
	for _, c := range []struct {
		name, token, file string
		status            int
		locations         []string
	}{
		{"malformed YAML", w.admin, "a: [", 400, []string{"body"}},
		{"nothing", w.admin, "", 400, []string{"body"}},
		{"no jobs", w.admin, "# none\n", 422, []string{"body"}},
		{"a number", w.admin, "7", 400, []string{"body"}},
		{"an alias", w.admin, "a: &x [1]\nb: *x", 400, []string{"body"}},
		{"very deep", w.admin, strings.Repeat("[", 100_000), 400, []string{"body"}},
		{"very deep, by dashes", w.admin, strings.Repeat("- ", 100_000), 400, []string{"body"}},
		{"a job twice", w.admin, job("a", "") + job("a", ""), 400, []string{"body"}},
		{"another version", w.admin, "belfry: 2\njobs: []", 400, []string{"body"}},
		{"all faults of all jobs", w.admin, job("a", ", retries: -1, nonsense: 1") + job("b", ", children: [{job: default/none}], misfire: x"), 422,
			[]string{"jobs[0].nonsense", "jobs[0].retries", "jobs[1].children[0].job", "jobs[1].misfire"}},
		{"no such group", w.admin, strings.Replace(job("a", ""), "default", "none", 1), 422, []string{"jobs[0].group"}},
		{"a cycle", w.admin, job("a", ", children: [{job: default/b}]") + job("b", ", children: [{job: default/a}]"), 422, []string{"jobs[0].children"}},
		{"a group by an operator", op, "groups: [{name: new}]", 422, []string{"groups[0].name"}},
		{"a hidden group", op, strings.Replace(job("a", ""), "default", "hidden", 1), 422, []string{"jobs[0].group"}},
		{"a hidden child", op, job("a", ", children: [{job: hidden/nightly}]"), 422, []string{"jobs[0].children[0].job"}},
		{"faulty triggers", w.admin, "event_triggers: [{name: a b, job: default/none, filter: '1 +'}]", 422,
			[]string{"event_triggers[0].filter", "event_triggers[0].job", "event_triggers[0].name"}},
		{"faulty calendars", w.admin, "calendars: [{name: C, dates: [2026-12-25, soon], weekdays: [7]}, {name: d, jobs: 1}]", 422,
			[]string{"calendars[0].dates[1]", "calendars[0].name", "calendars[0].weekdays[0]", "calendars[1].jobs"}},
		{"a calendar twice", w.admin, "calendars: [{name: a}, {name: a}]", 400, []string{"body"}},
		{"a calendar without a name", w.admin, "calendars: [{dates: []}]", 400, []string{"body"}},
		{"calendars by an operator", op, "calendars: [{name: new}, {name: there, weekdays: [sunday]}, {name: other}]", 422, []string{"calendars[0].name", "calendars[2].name"}},
		{"no such calendar", op, strings.Replace(job("a", ""), "none}", "cron, expr: 0 2 * * *, calendar: none}", 1) + strings.Replace(job("b", ""), "none}", "fixed_rate, every: 1m, calendar: there}", 1), 422,
			[]string{"jobs[0].schedule.calendar"}},
		{"a trigger without a job", w.admin, "event_triggers: [{name: a}]", 400, []string{"body"}},
		{"a viewer", viewer, job("a", ""), 403, nil},
	} {
		a := w.imported(c.token, "", c.file)
		got := a.locations()
		slices.Sort(got)
		if a.status != c.status || !slices.Equal(got, c.locations) && len(got)+len(c.locations) > 0 {
			t.Errorf("%s: %d %v, want %d %v: %s", c.name, a.status, got, c.status, c.locations, a.body)
		}
	}
	if a := w.do(w.admin, "POST", "/api/v1/import", job("a", ""), "Content-Type", "text/plain"); a.status != 415 {
		t.Errorf("as text/plain: %d", a.status)
	}
	if list := w.must(200, "GET", "/api/v1/jobs?group=default", ""); list.field("items.0") != nil {
		t.Errorf("a refused file made %s", list.body)
	}
	if a := w.do(viewer, "GET", "/api/v1/export", ""); a.status != 200 || strings.Contains(a.body, "hidden") {
		t.Errorf("a viewer exports %d %s", a.status, a.body)
	}
	if a := w.do(op, "GET", "/api/v1/export?group=hidden", ""); a.status != 422 {
		t.Errorf("an operator exports a hidden group: %d", a.status)
	}
}
