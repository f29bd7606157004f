package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// The codes of the contract are a closed list, the one of package explain.
func TestContractListsAllExplanations(t *testing.T) {
	w := newWorld(t)
	doc := w.must(200, "GET", "/openapi.json", "")
	if got := doc.field("components.schemas.Explanation.properties.code.enum"); fmt.Sprint(got) != fmt.Sprint(explain.Codes()) {
		t.Errorf("the contract lists %v, want %v", got, explain.Codes())
	}
}

// Descriptions of schedules follow Accept-Language, with English as the default.
func TestDescriptionsFollowTheLanguage(t *testing.T) {
	w := newWorld(t)
	job := w.must(201, "POST", "/api/v1/jobs", `{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *"}}`)
	const english, chinese = "At 02:00 every day, UTC", "每天 02:00，UTC"
	for accepted, want := range map[string]string{
		"": english, "en": english, "zh-CN": chinese, "zh": chinese, "zh-CN,zh;q=0.9,en;q=0.8": chinese, "en-GB,zh;q=0.5": english,
		"fr,zh;q=0.4,en;q=0.3": chinese, "de": english, "zh;q=x, en": english, "zh;q=0": english, "*": english,
	} {
		preview := w.do(w.admin, "POST", "/api/v1/schedules/preview", `{"schedule":{"kind":"cron","expr":"0 2 * * *"}}`, "Accept-Language", accepted)
		next := w.do(w.admin, "GET", fmt.Sprintf("/api/v1/jobs/%v/next", job.field("id")), "", "Accept-Language", accepted)
		if preview.field("description") != want || next.field("description") != want {
			t.Errorf("%q: %v and %v, want %s", accepted, preview.field("description"), next.field("description"), want)
		}
	}
}

// Notes follow Accept-Language as well.
func TestNotesFollowTheLanguage(t *testing.T) {
	w := newWorld(t)
	ended := w.must(201, "POST", "/api/v1/jobs",
		`{"group":"default","name":"ended","handler":"echo","schedule":{"kind":"once","at":"2020-01-01T00:00:00Z"}}`).field("id")
	paused := w.must(201, "POST", "/api/v1/jobs", `{"group":"default","name":"paused","handler":"echo","schedule":{"kind":"cron","expr":"0 2 * * *"}}`).field("id")
	w.must(200, "POST", "/api/v1/groups/default/pause", `{"reason":"disks"}`)
	const at = "2026-01-02T03:04:05.000Z"
	run := domain.NewRunID(time.Now())
	w.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, due_at, started_at, kill_requested_at, instance)
		VALUES ($1, $2, 1, 'default', 'manual', 'running', $3, $3, now(), 'i1')`, run, ended, at)
	for _, c := range []struct{ path, english, chinese string }{
		{fmt.Sprintf("/api/v1/jobs/%v", ended), "No next fire time: it fires once, and 2020-01-01T00:00:00.000Z has passed.", "没有下一个触发时间：只触发一次，而 2020-01-01T00:00:00.000Z 已过。"},
		{fmt.Sprintf("/api/v1/jobs/%v", paused), "its group default has been paused since ", "执行器组 default 由 "},
		{"/api/v1/runs/" + run.String(), "kill requested, still running since " + at, "已请求终止，自 " + at + " 起仍在运行"},
	} {
		for accepted, want := range map[string]string{"": c.english, "zh-CN": c.chinese} {
			if got := w.do(w.admin, "GET", c.path, "", "Accept-Language", accepted).field("note"); !strings.HasPrefix(fmt.Sprint(got), want) {
				t.Errorf("%s, %q: %v, want %s", c.path, accepted, got, want)
			}
		}
	}
	for path, want := range map[string]string{
		"/api/v1/jobs?q=ended": "没有下一个触发时间：", "/api/v1/jobs?q=paused": "执行器组 default 由 ", "/api/v1/runs?state=running": "已请求终止，自 ",
	} {
		if got := w.do(w.admin, "GET", path, "", "Accept-Language", "zh-CN").field("items.0.note"); !strings.HasPrefix(fmt.Sprint(got), want) {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
}

// A message that the engine wrote has its parts wherever runs appear, whatever language the caller prefers. The handler's own words
// have none.
func TestMessageParts(t *testing.T) {
	w := newWorld(t)
	w.job(`{"group":"default","name":"tick","handler":"echo","schedule":{"kind":"none"}}`)
	at := time.Now().Add(-time.Minute).UTC()
	died := explain.Of(explain.InstanceDied, "i1")
	words := strings.Repeat("x", 400)
	finish := func(second int, state, reason, message string, notes explain.Notes) string {
		id := domain.NewRunID(at.Add(time.Duration(second) * time.Second))
		w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, message_notes, output, attempt,
			due_at, created_at, finished_at, last_line, route, instance)
			VALUES ($1, 1, 1, 'default', 'manual', $2, $3, $4, NULLIF($5, ''), '', 2, $6, $6, $6, 0, '', 'i1')`, id, state, reason, message, string(notes), at)
		w.exec(`INSERT INTO run_attempts (run_id, attempt, instance, finished_at, outcome, reason, message, message_notes, last_line)
			VALUES ($1, 1, 'i1', $2, 'failed', 'lost', 'instance i1 died', $3, 0)`, id, at, string(died))
		return id.String()
	}
	own := finish(0, "failed", "handler_error", "exit status 3", "")
	lost := finish(1, "failed", "lost", "instance i1 died", explain.Join(died))
	killed := finish(2, "failed", "killed", "killed by ann: "+words, explain.Join(explain.Of(explain.KilledBy, "ann")))
	const diedParts = `[map[args:map[instance:i1] code:instance_died text:instance i1 died]]`
	killedParts := func(words string) string {
		return `[map[args:map[by:ann] code:killed_by text:killed by ann] map[args:map[] code:text text:` + words + `]]`
	}
	for _, accepted := range []string{"", "zh-CN"} {
		get := func(path string) answer {
			return w.do(w.admin, "GET", path, "", "Accept-Language", accepted)
		}
		check := func(a answer, at string, message string, parts any) {
			t.Helper()
			if a.field(at+"message") != message || fmt.Sprint(a.field(at+"message_parts")) != fmt.Sprint(parts) {
				t.Errorf("%smessage: %v with %v", at, a.field(at+"message"), a.field(at+"message_parts"))
			}
		}
		for id, want := range map[string]struct {
			message string
			parts   any
		}{own: {"exit status 3", nil}, lost: {"instance i1 died", diedParts}, killed: {"killed by ann: " + words, killedParts(words)}} {
			a := get("/api/v1/runs/" + id)
			check(a, "", want.message, want.parts)
			check(a, "attempts.0.", "instance i1 died", diedParts)
			check(a, "attempts.1.", want.message, want.parts)
		}
		list := get("/api/v1/runs")
		check(list, "items.0.", "killed by ann: "+words, killedParts(words))
		check(list, "items.1.", "instance i1 died", diedParts)
		check(list, "items.2.", "exit status 3", nil)
		overview := get("/api/v1/overview")
		cut := fmt.Sprint(overview.field("recent_failures.0.message_parts.1.text"))
		if !strings.HasPrefix(cut, "xxx") || !strings.HasSuffix(cut, "…") {
			t.Errorf("the overview says %s", cut)
		}
		check(overview, "recent_failures.1.", "instance i1 died", diedParts)
		check(overview, "recent_failures.2.", "exit status 3", nil)
	}
}
