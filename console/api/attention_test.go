package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// attention lists the items that a caller sees, each as its id, count and acknowledgement.
func (w *world) attention(token string) (items []string) {
	w.t.Helper()
	a := w.do(token, "GET", "/api/v1/attention", "")
	if a.status != 200 {
		w.t.Fatalf("%d %s", a.status, a.body)
	}
	for _, v := range a.field("items").([]any) {
		item := v.(map[string]any)
		text := fmt.Sprintf("%s %v", item["id"], item["count"])
		if ack, ok := item["acknowledged"].(map[string]any); ok {
			text += fmt.Sprintf(" (%s: %s)", ack["by"], ack["note"])
		}
		items = append(items, text)
	}
	slices.Sort(items)
	return items
}

func (w *world) checkAttention(when, token string, want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if got := w.attention(token); !slices.Equal(got, want) {
		w.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

func TestAttention(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	viewer, operator := w.confined("vera", "viewer", "other"), w.confined("olga", "operator", "default")
	w.checkAttention("at first", w.admin)
	for i, group := range []string{"default", "default", "other", "other", "default"} {
		w.job(fmt.Sprintf(`{"group":%q,"name":"job %d","handler":"echo","runbook_url":"https://wiki.test/%d","schedule":{"kind":"none"}}`, group, i, i))
	}
	w.must(200, "POST", "/api/v1/jobs/5/disable", "")
	since := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	w.fares(1, true, "handler_error", "exit status 1: password=hunter2", since, 90)
	w.fares(2, true, "lost", "", since, 80) // the group has an executor
	w.fares(3, true, "no_executor", "", since, 80)
	w.fares(4, true, "timeout", "exit status 1: password=hunter2", since, 80)
	w.fares(5, true, "timeout", "", since, 80)
	other := "group_without_executors:other 2"
	w.checkAttention("failing jobs", w.admin, "job_failing:1 3", "job_failing:2 3", "job_failing:4 3", other)
	w.checkAttention("of a group", viewer, "job_failing:4 3", other)

	ack := func(token, id, body string, status int) answer {
		t.Helper()
		a := w.do(token, "POST", "/api/v1/attention/"+id+"/acknowledge", body)
		if a.status != status {
			t.Fatalf("%s: %d, want %d: %s", id, a.status, status, a.body)
		}
		return a
	}
	if a := ack(operator, "job_failing:1", `{"note":"on it"}`, 200); a.field("acknowledged.note") != "on it" || a.field("runbook_url") != "https://wiki.test/0" ||
		a.field("text") != "handler_error: exit status 1: password=hunter2" || a.field("since") != "2026-03-01T02:00:00.000Z" {
		t.Errorf("the acknowledged item is %s", a.body)
	}
	ack(w.admin, "group_without_executors:other", `{"note":"moved","until":"2999-01-01T00:00:00Z"}`, 200)
	for _, id := range []string{"job_failing:3", "job_failing:4", "job_failing:5", "job_failing:01", "job_failing:x", "group_without_executors:default", "group_without_executors:other", "dead_letters:all", "nothing:1", "x"} {
		ack(operator, id, `{}`, 404)
	}
	ack(viewer, "job_failing:4", `{}`, 403)
	for body, location := range map[string]string{`{"until":"2001-01-01T00:00:00Z"}`: "until", `{"note":"` + strings.Repeat("x", 1025) + `"}`: "note", `{"why":"x"}`: "why"} {
		if a := ack(operator, "job_failing:1", body, 422); a.field("errors.0.location") != location {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	w.checkAttention("acknowledged", w.admin, "job_failing:1 3 (olga: on it)", "job_failing:2 3", "job_failing:4 3", other+" (admin: moved)")
	if a := w.must(200, "GET", "/api/v1/audit?limit=2", ""); !strings.Contains(a.body, `"attention/job_failing:1"`) {
		t.Errorf("the audit log has %s", a.body)
	}
	if a := w.do(viewer, "GET", "/api/v1/attention", ""); strings.Contains(a.body, "hunter2") {
		t.Errorf("a viewer sees a secret: %s", a.body)
	}
	w.exec(`UPDATE job_failures SET failing_since = now() WHERE job_id = 1`)
	w.exec(`UPDATE attention_acks SET until = now() WHERE until IS NOT NULL`)
	w.checkAttention("it fails again, and the other acknowledgement is over", w.admin, "job_failing:1 3", "job_failing:2 3", "job_failing:4 3", other)
}

func TestAttentionOfBacklogsAndOthers(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	viewer := w.confined("vera", "viewer", "default")
	wait := func(group string, n int, held bool) {
		w.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, held, due_at)
			SELECT overlay(gen_random_uuid()::text placing substr(first_run_id(now())::text, 1, 14) from 1)::uuid, 1, 1, $1, 'manual',
			       CASE WHEN $3 THEN 'pending' ELSE 'queued' END, $3, now() - interval '2 min' FROM generate_series(1, $2)`, group, n, held)
		if !held {
			w.exec(`INSERT INTO runs_waiting (run_id, job_id, group_name, handler, due_at, deadline_at)
				SELECT id, 1, group_name, 'echo', due_at, now() FROM runs_live WHERE state = 'queued' AND group_name = $1`, group)
		}
	}
	wait("default", 60, true)
	w.checkAttention("a small backlog", w.admin)
	wait("default", 60, false)
	wait("other", 1, false)
	w.checkAttention("backlogs", w.admin, "backlog:default 120", "group_without_executors:other 0")
	w.must(200, "POST", "/api/v1/attention/backlog:default/acknowledge", `{"note":"known"}`)
	wait("default", 50, true)
	w.checkAttention("a little more", viewer, "backlog:default 170 (admin: known)")
	wait("default", 100, true)
	w.checkAttention("much more", viewer, "backlog:default 270")
	w.exec(`DELETE FROM runs_waiting`)
	w.exec(`DELETE FROM runs_live`)

	miss := func() {
		w.exec(`INSERT INTO missed (job_id, group_name, first_fire_time, last_fire_time, count, policy, why) VALUES (1, 'default', now(), now(), 7, 'skip', 'nobody was there')`)
		w.exec(`INSERT INTO missed_stats (span, at, group_name, fires) VALUES (3600, date_trunc('hour', now()), 'default', 7)
			ON CONFLICT (span, at, group_name) DO UPDATE SET fires = missed_stats.fires + 7`)
	}
	miss()
	w.must(200, "POST", "/api/v1/attention/missed:default/acknowledge", `{}`)
	w.checkAttention("missed", viewer, "missed:default 7 (admin: )")
	miss()
	w.checkAttention("missed again", viewer, "missed:default 14")
	w.exec(`DELETE FROM missed_stats`)

	w.exec(`INSERT INTO alerts (kind, job_id, job_name, group_name, content) VALUES ('failed', 1, 'x', 'default', '{}')`)
	w.exec(`INSERT INTO alert_deliveries (alert_id, channel, state, error) SELECT id, 'mail', 'failed', 'no route' FROM alerts`)
	w.checkAttention("undelivered", viewer, "alert_undelivered:default:mail 1")
	for token, shows := range map[string]bool{w.admin: true, viewer: false} {
		if a := w.do(token, "GET", "/api/v1/attention", ""); strings.Contains(a.body, "no route") != shows {
			t.Errorf("the error is shown to the wrong caller: %s", a.body)
		}
	}
	w.must(200, "POST", "/api/v1/attention/alert_undelivered:default:mail/acknowledge", `{"note":"n"}`)
	w.checkAttention("acknowledged", viewer, "alert_undelivered:default:mail 1 (admin: n)")
	w.exec(`DELETE FROM alerts`)

	w.letters.kept = []domain.DeadLetter{{Seq: 3, Kind: "result"}, {Seq: 4, Kind: "event"}}
	w.checkAttention("dead letters of a viewer", viewer)
	w.must(200, "POST", "/api/v1/attention/dead_letters:all/acknowledge", `{"note":"later"}`)
	w.checkAttention("dead letters", w.admin, "dead_letters:all 2 (admin: later)")
	w.letters.kept = append(w.letters.kept, domain.DeadLetter{Seq: 5, Kind: "log"})
	w.checkAttention("more letters", w.admin, "dead_letters:all 3")
	w.letters.away = true
	if a := w.must(200, "GET", "/api/v1/attention", ""); a.field("unavailable.0") != "dead_letters" {
		t.Errorf("while NATS is away: %s", a.body)
	}
}
