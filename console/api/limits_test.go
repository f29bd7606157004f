package api_test

import (
	"fmt"
	"strings"
	"testing"
)

const limited = "/api/v1/groups/default"

// limit sets limits of group default, as JSON.
func (w *world) limit(limits string) { w.must(200, "PATCH", limited, `{"limits":`+limits+`}`) }

// explains checks that a problem's detail contains all words.
func (a answer) explains(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if detail := fmt.Sprint(a.field("detail")); !strings.Contains(detail, word) {
			t.Errorf("the detail lacks %q: %s", word, detail)
		}
	}
}

func TestJobsBeyondALimit(t *testing.T) {
	w := newWorld(t)
	w.limit(`{"max_jobs":2,"max_fires_per_minute":60,"max_script_versions":1}`)
	job := func(name, more string) string {
		return fmt.Sprintf(`{"group":"default","name":%q,"enabled":true,%s}`, name, more)
	}
	const eachSecond = `"handler":"echo","schedule":{"kind":"fixed_rate","every":"1s"}`
	const byHand = `"schedule":{"kind":"none"},"script":{"language":"bash","code":"true"}`
	first := w.job(job("first", eachSecond))
	w.must(409, "POST", "/api/v1/jobs", job("second", eachSecond)).explains(t, `group "default"`, "max_fires_per_minute is 60", "120 fires")
	second := w.job(job("second", byHand))
	w.must(409, "POST", "/api/v1/jobs", job("third", `"handler":"echo","schedule":{"kind":"none"}`)).explains(t, "max_jobs is 2", "3 jobs")
	w.must(409, "POST", second+"/scripts", `{"language":"bash","code":"false"}`).explains(t, "max_script_versions is 1")
	w.must(409, "PATCH", second, `{"script":{"language":"bash","code":"false"}}`).explains(t, "max_script_versions is 1")
	w.must(409, "PATCH", second, `{"schedule":{"kind":"fixed_rate","every":"1s"}}`).explains(t, "max_fires_per_minute is 60")
	w.must(200, "POST", first+"/disable", "")
	w.must(200, "PATCH", second, `{"schedule":{"kind":"fixed_rate","every":"1s"}}`)
	w.must(409, "POST", first+"/enable", "").explains(t, "max_fires_per_minute is 60")

	got := w.imported(w.admin, "", `
belfry: 1
jobs:
  - {group: default, name: first, handler: echo, schedule: {kind: none}}
  - {group: default, name: imported, handler: echo, schedule: {kind: none}}
`)
	if got.status != 200 || !strings.Contains(got.body, "max_jobs is 2") || !strings.Contains(got.body, `"updated":1`) {
		t.Errorf("an import: %d %s", got.status, got.body)
	}
}

// A run beyond the limit is refused with 429. Below the limit, the same Idempotency-Key works again.
func TestRunsBeyondALimit(t *testing.T) {
	w := newWorld(t)
	w.limit(`{"max_live_runs":1}`)
	job := w.job(simpleJob)
	w.must(202, "POST", job+"/trigger", "{}")
	full := w.must(429, "POST", job+"/trigger", "{}", "Idempotency-Key", "k")
	full.explains(t, `group "default"`, "max_live_runs is 1", "belfry group set default --max-live-runs N")
	if full.header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
	w.must(429, "POST", job+"/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-04T00:00:00Z"}`).explains(t, "max_live_runs is 1")
	w.must(202, "POST", job+"/backfill?dry_run=true", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-04T00:00:00Z"}`)
	w.limit(`{"max_live_runs":2}`)
	w.must(202, "POST", job+"/trigger", "{}", "Idempotency-Key", "k")
}

func TestGroupUsage(t *testing.T) {
	w := newWorld(t)
	w.limit(`{"max_jobs":7,"max_live_runs":8}`)
	job := w.job(`{"group":"default","name":"j","schedule":{"kind":"fixed_rate","every":"1s"},"script":{"language":"bash","code":"true"}}`)
	w.must(202, "POST", job+"/trigger", "{}")
	w.exec(`INSERT INTO group_live_runs VALUES ('default', 5)`)
	w.exec(`INSERT INTO group_log_bytes VALUES ((now() AT TIME ZONE 'UTC')::date, 'default', 1234)`)
	usage := func() answer { return w.must(200, "GET", limited+"/usage", "") }
	for path, want := range map[string]any{
		"jobs.used": 1, "jobs.limit": 7, "live_runs.used": 5, "live_runs.limit": 8, "fires_per_minute.used": 60, "fires_per_minute.limit": 600_000,
		"log_bytes_today.used": 1234, "log_bytes_today.limit": 53_687_091_200, "script_versions.used": 1, "script_versions.limit": 10_000,
		"instances.used": len(w.fleet.Instances("default")), "instances.limit": 1000,
	} {
		if got, ok := usage().field(path).(float64); !ok || fmt.Sprint(int64(got)) != fmt.Sprint(want) {
			t.Errorf("%s is %v, not %v", path, got, want)
		}
	}
	// If a limit is lowered below the usage, nothing stops, and the usage is shown as it is.
	w.limit(`{"max_fires_per_minute":30}`)
	if a := usage(); fmt.Sprint(a.field("fires_per_minute")) != "map[limit:30 used:60]" {
		t.Errorf("beyond the limit: %s", a.body)
	}
	w.must(404, "GET", "/api/v1/groups/unknown/usage", "")
}
