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

// A run beyond the limit is refused with 429, and the same Idempotency-Key works when there is room.
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
