package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestUpcoming(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	start := time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour).Format(time.RFC3339)
	spec := func(group, name, schedule string) string {
		return fmt.Sprintf(`{"group":%q,"name":%q,"handler":"echo","schedule":%s}`, group, name, schedule)
	}
	w.job(spec("default", "often", `{"kind":"fixed_rate","every":"5m","start_at":"`+start+`"}`))
	w.job(spec("default", "rarely", `{"kind":"fixed_rate","every":"40m","start_at":"`+start+`"}`))
	w.job(spec("other", "elsewhere", `{"kind":"fixed_rate","every":"10m","start_at":"`+start+`"}`))
	w.job(spec("default", "by hand", `{"kind":"none"}`))
	off := w.job(spec("default", "off", `{"kind":"fixed_rate","every":"1m"}`))
	w.must(200, "POST", off+"/disable", "")

	list := func(token, query string) (answer, []string) {
		t.Helper()
		a := w.do(token, "GET", "/api/v1/upcoming"+query, "")
		if a.status != 200 {
			t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		var names []string
		last := ""
		for i := 0; ; i++ {
			at, _ := a.field("items").([]any)
			if i == len(at) {
				break
			}
			f := at[i].(map[string]any)
			names = append(names, f["job_name"].(string))
			if due := f["due_at"].(string); due < last {
				t.Errorf("%s: %s comes after %s", query, due, last)
			} else {
				last = due
			}
		}
		return a, names
	}
	count := func(names []string, name string) (n int) {
		for _, other := range names {
			if other == name {
				n++
			}
		}
		return n
	}
	a, names := list(w.admin, "")
	if count(names, "often") != 12 || count(names, "elsewhere") != 6 || count(names, "rarely") < 1 || len(names) > 20 || !strings.Contains(a.body, `"cut":false`) {
		t.Errorf("%v: %s", names, a.body)
	}
	if _, names := list(w.admin, "?within=2h&group=other"); len(names) != 12 || count(names, "elsewhere") != 12 {
		t.Errorf("%v", names)
	}
	whole := names
	cut, names := list(w.admin, "?limit=4")
	if len(names) != 4 || !strings.Contains(cut.body, `"cut":true`) || strings.Join(names, ",") != strings.Join(whole[:4], ",") {
		t.Errorf("%v of %v: %s", names, whole, cut.body)
	}
	if cut.field("through").(string) > a.field("items.4.due_at").(string) {
		t.Errorf("through is %v, after a fire time that is left out", cut.field("through"))
	}

	// Fire times in a pause are left out, and those after its end are listed.
	until := time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)
	w.must(200, "POST", "/api/v1/groups/default/pause", `{"reason":"x","until":"`+until+`"}`)
	if _, names := list(w.admin, ""); count(names, "often") < 6 || count(names, "often") > 7 || count(names, "elsewhere") != 6 {
		t.Errorf("with a pause: %v", names)
	}
	w.must(200, "POST", "/api/v1/groups/default/pause", `{"reason":"x"}`)
	if _, names := list(w.admin, ""); len(names) != count(names, "elsewhere") {
		t.Errorf("with a pause without an end: %v", names)
	}
	w.must(201, "POST", "/api/v1/users", `{"username":"viewer","password":"`+adminPassword+`","role":"viewer","groups":["default"]}`)
	viewer := w.logIn("viewer", adminPassword)
	if _, names := list(viewer, ""); len(names) != 0 {
		t.Errorf("a viewer gets fire times of another group: %v", names)
	}
	for _, bad := range []string{"within=0s", "within=745h", "within=soon", "limit=0", "limit=501", "group=nowhere"} {
		w.must(422, "GET", "/api/v1/upcoming?"+bad, "")
	}
	if a := w.do(viewer, "GET", "/api/v1/upcoming?group=other", ""); a.status != 422 {
		t.Errorf("a group that the viewer may not see: %d %s", a.status, a.body)
	}
}
