package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// ended makes a failed run of job 1 that has a param, or that uses the param of its job.
func (w *world) ended(param *string) domain.RunID {
	w.t.Helper()
	id := domain.NewRunID(w.store.Now())
	w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, param, attempt, fire_time, due_at, created_at, finished_at, last_line, instance, route)
	        VALUES ($1, 1, 1, 'default', 'manual', 'failed', 'handler_error', 'm', '', $2, 1, now(), now(), now(), now(), 0, 'one', '')`, id, param)
	return id
}

// A retry may have another param and another instance. Absent fields leave them as they were.
func TestRetryWithChanges(t *testing.T) {
	w := newWorld(t)
	w.job(`{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"none"},"param":"own"}`)
	param := `{"password":"hunter2","month":"2026-11"}`
	old := w.ended(&param)
	path := "/api/v1/runs/" + old.String() + "/retry"
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for _, c := range []struct{ body, param, pin string }{
		{``, param, ""},
		{`{}`, param, ""},
		{`{"param":"other"}`, "other", ""},
		{`{"param":""}`, "", ""},
		{`{"instance":"one"}`, param, "one"},
		{`{"param":"x","instance":"one"}`, "x", "one"},
		{`{"param":` + quoted(domain.Mask(param)) + `}`, param, ""}, // as a viewer reads it
	} {
		run := w.must(202, "POST", path, c.body).field("run_ids.0").(string)
		a := w.must(200, "GET", "/api/v1/runs/"+run, "")
		var pin string
		if err := w.pool.QueryRow(t.Context(), `SELECT coalesce(pin, '') FROM runs_live WHERE id = $1::text::uuid`, run).Scan(&pin); err != nil {
			t.Fatal(err)
		}
		if a.field("param") != c.param || pin != c.pin {
			t.Errorf("%s: param %v on %q", c.body, a.field("param"), pin)
		}
	}
	without := w.ended(nil)
	run := w.must(202, "POST", "/api/v1/runs/"+without.String()+"/retry", `{"instance":"one"}`).field("run_ids.0").(string)
	if a := w.must(200, "GET", "/api/v1/runs/"+run, ""); a.field("param") != "own" {
		t.Errorf("without a param: %s", a.body)
	}
	before := w.count(`SELECT count(*) FROM runs_live`)
	for _, c := range []struct {
		body  string
		where []string
		text  string
	}{
		{`{"param":5}`, []string{"param"}, ""},
		{`{"parm":"x"}`, []string{"parm"}, ""},
		{`{"param":"a\u0000"}`, []string{"param"}, "NUL"},
		{`{"param":"` + strings.Repeat("x", 64<<10+1) + `"}`, []string{"param"}, "at most 65536"},
		{`{"instance":"two","param":5}`, []string{"instance", "param"}, "live: one"},
		{`{"instance":"a.b"}`, []string{"instance"}, ""},
		{`{"param":"{\"password\":\"•••\",\"month\":\"2026-12\"}"}`, []string{"param"}, "masked"},
	} {
		a := w.must(422, "POST", path, c.body)
		for _, at := range c.where {
			if !slices.Contains(a.locations(), at) || !strings.Contains(a.body, c.text) {
				t.Errorf("%.60s: %s", c.body, a.body)
			}
		}
	}
	if n := w.count(`SELECT count(*) FROM runs_live`); n != before {
		t.Errorf("refused retries made %d runs", n-before)
	}
}

// A retry with changes needs the rights of a retry, takes effect once for a key, and the audit log shows what changed, with secrets masked.
func TestRetryRightsKeysAndAudit(t *testing.T) {
	w := newWorld(t)
	w.job(simpleJob)
	param := "month=2026-11 password=hunter2"
	old := w.ended(&param)
	path, body := "/api/v1/runs/"+old.String()+"/retry", `{"param":"month=2026-12 password=hunter3","instance":"one"}`
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	for role, want := range map[string]int{"viewer of default": 403, "operator of other": 404} {
		name, groups, _ := strings.Cut(role, " of ")
		token := w.must(201, "POST", "/api/v1/tokens", fmt.Sprintf(`{"name":%q,"role":%q,"groups":[%q]}`, role, name, groups)).field("token").(string)
		if a := w.do(token, "POST", path, body); a.status != want || strings.Contains(a.body, "hunter") {
			t.Errorf("%s: %d %s", role, a.status, a.body)
		}
	}
	running := w.running()
	w.must(409, "POST", "/api/v1/runs/"+running.String()+"/retry", body)
	key := []string{"Idempotency-Key", "k"}
	first := w.must(202, "POST", path, body, key...).field("run_ids.0")
	if again := w.must(202, "POST", path, body, key...).field("run_ids.0"); again != first {
		t.Errorf("the second request made %v, the first %v", again, first)
	}
	w.must(422, "POST", path, `{"param":"x"}`, key...)
	if n := w.count(`SELECT count(*) FROM runs_live`); n != 2 {
		t.Errorf("there are %d live runs, want the running one and the new one", n)
	}
	audit := w.must(200, "GET", "/api/v1/audit?limit=5", "").body
	for _, want := range []string{`"run.retry"`, "month=2026-11", "month=2026-12", `"instance":"one"`, first.(string)} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit log lacks %s: %s", want, audit)
		}
	}
	if strings.Contains(audit, "hunter") {
		t.Errorf("the audit log has a secret: %s", audit)
	}
}
