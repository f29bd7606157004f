package api_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

const channelsPath = "/api/v1/alert-channels"

func TestAlertChannels(t *testing.T) {
	w := newWorld(t)
	taken := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		taken++
		if r.Header.Get("Belfry-Signature") == "" || r.URL.Path != "/hook/t0ken" {
			t.Errorf("a request to %s without signature", r.URL.Path)
		}
		if taken > 1 {
			rw.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(receiver.Close)
	url := receiver.URL + "/hook/t0ken"

	a := w.must(201, "POST", channelsPath, `{"name":"ops","kind":"webhook","url":"`+url+`","secret":"0123456789abcdef"}`)
	if a.field("language") != "en" || a.field("secret") != "********" || a.field("url") != receiver.URL+"/********" {
		t.Errorf("created: %s", a.body)
	}
	w.must(409, "POST", channelsPath, `{"name":"ops","kind":"webhook","url":"`+url+`"}`)
	shown := w.must(200, "GET", channelsPath+"/ops", "").body
	if !strings.Contains(w.must(200, "GET", channelsPath, "").body, strings.TrimSpace(shown)[1:40]) {
		t.Errorf("the list lacks the channel")
	}

	// The answer of a test has the result, both for a success and for a failure.
	if a = w.must(200, "POST", channelsPath+"/ops/test", ""); a.field("delivered") != any(true) {
		t.Errorf("the test: %s", a.body)
	}
	if a = w.must(200, "POST", channelsPath+"/ops/test", ""); a.field("delivered") != any(false) || !strings.Contains(a.body, "502") {
		t.Errorf("the second test: %s", a.body)
	}

	// A change keeps secrets that it leaves out or repeats in masked form.
	w.must(200, "PATCH", channelsPath+"/ops", `{"description":"on call","language":"zh"}`)
	w.must(200, "PUT", channelsPath+"/ops", `{"kind":"webhook","url":"`+receiver.URL+`/********","text":"{{.Job}}"}`)
	w.must(200, "POST", channelsPath+"/ops/test", "")
	if taken != 3 {
		t.Errorf("%d requests came", taken)
	}
	if a = w.must(200, "GET", channelsPath+"/ops", ""); a.field("description") != "" || a.field("text") != "{{.Job}}" || a.field("language") != "en" {
		t.Errorf("replaced: %s", a.body)
	}

	// A channel cannot be deleted while a job uses it.
	job := w.job(`{"group":"default","name":"nightly","handler":"echo","schedule":{"kind":"none"},"alert":{"channels":["ops"],"on":["failed"]}}`)
	if a = w.must(409, "DELETE", channelsPath+"/ops", ""); !strings.Contains(a.body, "default/nightly") {
		t.Errorf("deleting: %s", a.body)
	}
	w.must(200, "PATCH", job, `{"alert":null}`)
	w.must(204, "DELETE", channelsPath+"/ops", "")
	w.must(404, "GET", channelsPath+"/ops", "")
	w.must(404, "DELETE", channelsPath+"/ops", "")
	w.must(404, "POST", channelsPath+"/ops/test", "")

	// The audit log, the log and the answers contain no secrets.
	audit := w.must(200, "GET", "/api/v1/audit", "").body
	for _, action := range []string{"create", "update", "delete", "test"} {
		if !strings.Contains(audit, "alert_channel."+action) {
			t.Errorf("the audit log lacks %s", action)
		}
	}
	for where, text := range map[string]string{"the audit log": audit, "the log": w.log.String(), "an answer": shown} {
		if strings.Contains(text, "t0ken") || strings.Contains(text, "0123456789abcdef") {
			t.Errorf("%s has a secret", where)
		}
	}
}

// The secrets of channels are encrypted in the database.
func TestAlertSecretsAreEncrypted(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", channelsPath, `{"name":"ops","kind":"webhook","url":"https://example.org/t0ken","secret":"0123456789abcdef"}`)
	var row string
	if err := w.pool.QueryRow(t.Context(), `SELECT settings::text || encode(secrets, 'escape') FROM alert_channels`).Scan(&row); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(row, "t0ken") || strings.Contains(row, "0123456789abcdef") {
		t.Errorf("the row is %s", row)
	}
}

func TestAlertChannelsAreForAdmins(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"a-good-password","role":"operator","groups":["default"]}`)
	operator := w.logIn("op", "a-good-password")
	for _, r := range [][2]string{
		{"GET", channelsPath}, {"POST", channelsPath}, {"GET", channelsPath + "/x"}, {"PUT", channelsPath + "/x"}, {"PATCH", channelsPath + "/x"},
		{"DELETE", channelsPath + "/x"}, {"POST", channelsPath + "/x/test"},
	} {
		if a := w.do(operator, r[0], r[1], ""); a.status != 403 {
			t.Errorf("%s %s: %d", r[0], r[1], a.status)
		}
	}
	// An operator does not see alerts of other groups, or why a delivery failed.
	w.must(201, "POST", "/api/v1/groups", `{"name":"secret"}`)
	for _, group := range []string{"default", "secret"} {
		w.exec(`WITH a AS (INSERT INTO alerts (kind, job_id, job_name, group_name, content) VALUES ('failed', 1, 'j', $1,
			jsonb_build_object('kind', 'failed', 'job', 'j', 'group', $1::text)) RETURNING id)
			INSERT INTO alert_deliveries (alert_id, channel, state, error) SELECT id, 'ops', 'failed', 'host 10.0.0.1' FROM a`, group)
	}
	a := w.do(operator, "GET", "/api/v1/alerts", "")
	if a.status != 200 || strings.Contains(a.body, "secret") || strings.Contains(a.body, "10.0.0.1") || a.field("items.0.deliveries.0.state") != "failed" {
		t.Errorf("alerts: %d %s", a.status, a.body)
	}
	if a := w.do(operator, "GET", "/api/v1/alerts?group=secret", ""); a.status != 422 {
		t.Errorf("alerts of another group: %d %s", a.status, a.body)
	}
	if a := w.must(200, "GET", "/api/v1/alerts?limit=1", ""); !strings.Contains(a.body, "10.0.0.1") || a.field("items.0.group") != "secret" || a.field("next_cursor") == "" {
		t.Errorf("alerts: %s", a.body)
	} else if a = w.must(200, "GET", "/api/v1/alerts?limit=1&cursor="+a.field("next_cursor").(string), ""); a.field("items.0.group") != "default" || a.field("next_cursor") != "" {
		t.Errorf("the next page: %s", a.body)
	}
	for query, n := range map[string]int{"state=failed": 2, "state=delivered": 0, "kind=late": 0, "job_id=1&group=default": 1} {
		if a := w.must(200, "GET", "/api/v1/alerts?"+query, ""); strings.Count(a.body, `"channel"`) != n {
			t.Errorf("%s: %s", query, a.body)
		}
	}
}

func TestBadAlertInput(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", channelsPath, `{"name":"mail","kind":"email","email":{"host":"mail.example.org","username":"u","password":"p","from":"a@b.org","to":["c@d.org"]}}`)
	for _, r := range []struct {
		method, path, body string
		status             int
		locations          []string
	}{
		{"POST", channelsPath, `{"name":"No","kind":"pigeon","language":"xx","bogus":1,"text":5,"subject":"{{.Nix}}"}`, 422, []string{"name", "kind", "language", "bogus", "text", "subject"}},
		{"POST", channelsPath, `{"name":"a","kind":"slack"}`, 422, []string{"url"}},
		{"POST", channelsPath, `{"name":"a","kind":"slack","url":"file:///etc/passwd","secret":"x","email":{}}`, 422, []string{"url", "secret", "email"}},
		{"POST", channelsPath, `{"name":"a","kind":"webhook","url":"https://u:p@example.org/","secret":"short"}`, 422, []string{"url", "secret"}},
		{"POST", channelsPath, `{"name":"a","kind":"email"}`, 422, []string{"email"}},
		{"POST", channelsPath, `{"name":"a","kind":"email","email":{"host":"","port":70000,"tls":"x","password":"p","from":"x","to":["y"],"cc":1}}`, 422,
			[]string{"email.host", "email.port", "email.tls", "email.username", "email.from", "email.to[0]", "email.cc"}},
		{"PUT", channelsPath + "/mail", `{"name":"other","kind":"email","email":{"host":"evil.example.org","username":"u","from":"a@b.org","to":["c@d.org"]}}`, 422, []string{"name", "email.password"}},
		{"PATCH", channelsPath + "/mail", `{"email":{"host":"evil.example.org"},"text":5}`, 422, []string{"text", "email.password"}},
		{"PATCH", channelsPath + "/mail", `{"kind":5}`, 422, []string{"kind"}},
		{"PATCH", channelsPath + "/mail", `[`, 400, []string{"body"}},
		{"PUT", channelsPath + "/nix", `{"kind":"slack","url":"https://example.org/"}`, 404, nil},
		{"GET", channelsPath + "?cursor=abc", "", 422, []string{"cursor"}},
		{"GET", "/api/v1/alerts?kind=x&state=y&job_id=0&limit=501", "", 422, []string{"kind", "state", "job_id", "limit"}},
		{"GET", "/api/v1/alerts?cursor=abc", "", 422, []string{"cursor"}},
		{"GET", "/api/v1/alerts?group=nix", "", 422, []string{"group"}},
		{"POST", "/api/v1/jobs", `{"group":"default","name":"bad","handler":"echo","schedule":{"kind":"none"},"alert":{"channels":["mail","nix","mail"],"on":["odd","late","late"]}}`, 422,
			[]string{"alert.channels[1]", "alert.channels[2]", "alert.on[0]", "alert.on[2]"}},
	} {
		a := w.do(w.admin, r.method, r.path, r.body)
		got := a.locations()
		slices.Sort(got)
		slices.Sort(r.locations)
		if a.status != r.status || !slices.Equal(got, r.locations) {
			t.Errorf("%s %s %s: %d %v, want %d %v\n%s", r.method, r.path, r.body, a.status, got, r.status, r.locations, a.body)
		}
	}
}
