package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// A group is opened for executors of XXL-JOB. Its token is given or generated, is shown at most once, and stays when other settings change.
func TestXXLJob(t *testing.T) {
	w := newWorld(t)
	const path = "/api/v1/groups/default/xxl-job"
	w.must(404, "GET", path, "")
	a := w.must(200, "PUT", path, `{"token":"default_token"}`)
	if a.field("app_name") != "default" || a.field("capacity") != 256. || !a.field("has_token").(bool) || !strings.Contains(a.body, "published default") || !strings.Contains(a.body, "No network") {
		t.Errorf("with the published token: %s", a.body)
	}
	a = w.must(200, "PUT", path, `{"generate":true,"networks":["10.1.0.0/16","127.0.0.1"],"app_name":"Billing.Executor","capacity":5}`)
	token, _ := a.field("token").(string)
	if len(token) < 20 || !a.field("encrypted").(bool) || len(a.field("warnings").([]any)) != 0 {
		t.Errorf("with a generated token: %s", a.body)
	}
	a = w.must(200, "PUT", path, `{"capacity":6}`)
	if a.field("app_name") != "Billing.Executor" || a.field("networks.1") != "127.0.0.1/32" || a.field("capacity") != 6. || !a.field("has_token").(bool) {
		t.Errorf("after a change of the capacity: %s", a.body)
	}
	for _, list := range []string{path, "/api/v1/audit?object=group/default"} {
		if a := w.must(200, "GET", list, ""); strings.Contains(a.body, token) || strings.Contains(a.body, `default_token"`) {
			t.Errorf("%s shows a token: %s", list, a.body)
		}
	}
	if a = w.must(200, "PUT", path, `{"without_token":true,"networks":["0.0.0.0/0"]}`); a.field("has_token").(bool) || !strings.Contains(a.body, "every address") || !strings.Contains(a.body, "no access token") {
		t.Errorf("without a token: %s", a.body)
	}
	for body, want := range map[string]string{
		`{"token":"a","generate":true}`:                "token",
		`{"token":"with a space"}`:                     "token",
		`{"token":"` + strings.Repeat("x", 257) + `"}`: "token",
		`{"networks":["10.0.0.0/33","fe80::1%eth0"]}`:  "networks[0] networks[1]",
		`{"capacity":65537}`:                           "capacity",
		`{"app_name":" x"}`:                            "app_name",
		`{"colour":"red"}`:                             "colour",
	} {
		a := w.must(422, "PUT", path, body)
		got := a.locations()
		slices.Sort(got)
		if strings.Join(slices.Compact(got), " ") != want {
			t.Errorf("%s: %v, want %s: %s", body, got, want, a.body)
		}
	}
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	if a := w.must(422, "PUT", "/api/v1/groups/other/xxl-job", `{}`); !slices.Contains(a.locations(), "token") {
		t.Errorf("a new group without a token: %s", a.body)
	}
	w.must(409, "PUT", "/api/v1/groups/other/xxl-job", `{"generate":true,"app_name":"Billing.Executor"}`)
	w.must(404, "PUT", "/api/v1/groups/nowhere/xxl-job", `{"generate":true}`)
}

// Lists and answers about groups say which of them are open for executors of XXL-JOB. Warnings are in the reader's language.
func TestOpenGroupsAreMarked(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"open"}`)
	w.must(200, "PUT", "/api/v1/groups/open/xxl-job", `{"without_token":true}`)
	list := w.must(200, "GET", "/api/v1/groups", "")
	if got := fmt.Sprintf("%v %v %v %v", list.field("items.0.name"), list.field("items.0.xxl_job"), list.field("items.1.name"), list.field("items.1.xxl_job")); got != "default false open true" {
		t.Errorf("the list: %s", list.body)
	}
	for name, want := range map[string]bool{"default": false, "open": true} {
		if a := w.must(200, "GET", "/api/v1/groups/"+name, ""); a.field("xxl_job") != want {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if a := w.must(200, "GET", "/api/v1/groups/open/xxl-job", "", "Accept-Language", "zh-CN"); !strings.Contains(a.body, "没有允许任何网络") {
		t.Errorf("the warnings in Chinese: %s", a.body)
	}
}

// A run in a group that is open for executors of XXL-JOB says whether the executor has answered, and whether its address is shared.
func TestRunAtXXLJob(t *testing.T) {
	w := newWorld(t)
	id := w.running()
	path := "/api/v1/runs/" + id.String()
	if a := w.must(200, "GET", path, ""); a.field("xxl_job") != nil {
		t.Errorf("in a group that is not open: %s", a.body)
	}
	w.must(200, "PUT", "/api/v1/groups/default/xxl-job", `{"generate":true}`)
	if a := w.must(200, "GET", path, ""); fmt.Sprint(a.field("xxl_job.unanswered"), a.field("xxl_job.shared")) != "false false" {
		t.Errorf("before it was sent: %s", a.body)
	}
	w.exec(`INSERT INTO gateway_sends (group_name, instance, boot_id, run_id, attempt, bind, wire_id, handler, state) VALUES ('default', 'one', 'b', $1, 1, 1, 1, 'echo', 'unknown')`, id)
	w.exec(`UPDATE runs_live SET instance = 'at-vip' WHERE id = $1`, id)
	w.fleet.live = []string{"one"}
	w.fleet.others = []domain.Instance{{ID: "at-vip", Group: "default", Labels: map[string]string{"shared": "true"}}}
	if a := w.must(200, "GET", path, ""); fmt.Sprint(a.field("xxl_job.unanswered"), a.field("xxl_job.shared")) != "true true" {
		t.Errorf("without an answer: %s", a.body)
	}
	w.end(id, 0)
	if a := w.must(200, "GET", path, ""); fmt.Sprint(a.field("xxl_job.unanswered")) != "false" {
		t.Errorf("at its end: %s", a.body)
	}
}
