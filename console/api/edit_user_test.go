package api_test

import (
	"slices"
	"strings"
	"testing"
)

func TestChangeAUser(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	w.must(201, "POST", "/api/v1/users", `{"username":"ann","password":"`+adminPassword+`","role":"operator","groups":["default"]}`)
	ann := w.logIn("ann", adminPassword)
	made := w.do(ann, "POST", "/api/v1/tokens", `{"name":"ci"}`)
	token, _ := made.field("token").(string)
	const path = "/api/v1/users/ann"
	seen := func(token string, status int) {
		t.Helper()
		if a := w.do(token, "GET", "/api/v1/jobs", ""); a.status != status {
			t.Errorf("the token gets %d, want %d", a.status, status)
		}
	}
	seen(ann, 200)
	seen(token, 200)

	u := w.must(200, "PATCH", path, `{"role":"viewer","groups":["other"]}`)
	if u.field("role") != "viewer" || u.field("groups.0") != "other" || strings.Contains(u.body, `"disabled":true`) {
		t.Errorf("%s", u.body)
	}
	seen(ann, 401) // a new role needs a new log-in
	ann = w.logIn("ann", adminPassword)
	if a := w.do(ann, "POST", "/api/v1/jobs", simpleJob); a.status != 403 {
		t.Errorf("a viewer creates a job: %d", a.status)
	}
	w.must(200, "PATCH", path, `{"disabled":true}`)
	seen(ann, 401)
	seen(token, 401)
	if a := w.do("", "POST", "/api/v1/auth/login", `{"username":"ann","password":"`+adminPassword+`"}`); a.status != 401 {
		t.Errorf("a disabled user logs in: %d", a.status)
	}
	w.must(200, "PATCH", path, `{"disabled":false}`)
	seen(token, 200)
	seen(ann, 401) // the disabled user must log in again
	ann = w.logIn("ann", adminPassword)
	w.must(200, "PATCH", path, `{"password":"another-good-one"}`)
	seen(ann, 401)
	w.logIn("ann", "another-good-one")

	changes := w.must(200, "GET", "/api/v1/audit?object=user/ann", "")
	if changes.field("items.1.action") != "user.update" || !strings.Contains(changes.body, `"password_changed":true`) || strings.Contains(changes.body, "another-good-one") {
		t.Errorf("%s", changes.body)
	}
	if got := w.must(200, "GET", path, "").field("username"); got != "ann" {
		t.Errorf("%v", got)
	}
	w.must(204, "DELETE", path, "")
	seen(token, 401)
	w.must(404, "GET", path, "")
	w.must(404, "DELETE", path, "")
	w.must(404, "PATCH", path, `{"disabled":true}`)
}

func TestTheLastAdminStays(t *testing.T) {
	w := newWorld(t)
	const admin = "/api/v1/users/admin"
	for _, body := range []string{`{"role":"viewer"}`, `{"disabled":true}`} {
		if a := w.must(409, "PATCH", admin, body); !strings.Contains(a.body, "last admin") {
			t.Errorf("%s", a.body)
		}
	}
	w.must(409, "DELETE", admin, "")
	w.must(200, "GET", "/api/v1/users", "") // the log-in is still valid
	w.must(201, "POST", "/api/v1/users", `{"username":"second","password":"`+adminPassword+`","role":"admin"}`)
	w.must(200, "PATCH", admin, `{"role":"viewer"}`)
}

func TestBadChangesOfUsers(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"`+adminPassword+`","role":"operator","groups":["default"]}`)
	for body, want := range map[string][]string{
		`{"role":"king","groups":["No Group"],"password":"short"}`: {"groups[0]", "password", "role"},
		`{"role":5,"disabled":"yes","name":"x"}`:                   {"disabled", "name", "role"},
		`{"groups":["nowhere"]}`:                                   {"groups[0]"},
	} {
		got := w.must(422, "PATCH", "/api/v1/users/op", body).locations()
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s names %v, want %v", body, got, want)
		}
	}
	op := w.logIn("op", adminPassword)
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		if a := w.do(op, method, "/api/v1/users/admin", `{}`); a.status != 403 {
			t.Errorf("%s by an operator: %d", method, a.status)
		}
	}
}
