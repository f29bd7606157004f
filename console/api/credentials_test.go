package api_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// With a leaked API token of an admin, an attacker must not get a user's account, or an account that remains after the token is
// deleted.
func TestTokensDoNotChangeUsers(t *testing.T) {
	w := newWorld(t)
	w.user("ann", "viewer", "")
	w.user("eve", "admin", "")
	ann := w.logIn("ann", adminPassword)
	token := w.must(201, "POST", "/api/v1/tokens", `{"name":"leaked"}`).field("token").(string)
	for _, try := range [][3]string{
		{"PATCH", "/users/admin", `{"password":"a stolen account"}`},
		{"PATCH", "/users/eve", `{"password":"a stolen account"}`},
		{"PATCH", "/users/eve", `{"role":"viewer"}`},
		{"PATCH", "/users/eve", `{"disabled":true}`},
		{"PATCH", "/users/ann", `{"password":"a stolen account"}`},
		{"PATCH", "/users/ann", `{"role":"admin"}`},
		{"PATCH", "/users/ann", `{"must_change_password":true}`},
		{"POST", "/users", `{"username":"mallory","password":"a stolen account","role":"admin"}`},
		{"POST", "/users", `{"username":"mallory","password":"a stolen account","role":"viewer"}`},
		{"POST", "/users/eve/logout", ""},
		{"POST", "/users/ann/logout", ""},
		{"DELETE", "/users/eve", ""},
		{"DELETE", "/users/ann", ""},
		{"DELETE", "/users/nobody", ""},
		{"POST", "/auth/password", `{"current_password":"` + adminPassword + `","new_password":"a stolen account"}`},
		{"POST", "/auth/logout-everywhere", ""},
		{"GET", "/auth/sessions", ""},
		{"DELETE", "/auth/sessions/1", ""},
	} {
		if a := w.do(token, try[0], "/api/v1"+try[1], try[2]); a.status != 403 || !strings.Contains(a.body, "needs a session") {
			t.Errorf("%v: %d %s", try, a.status, a.body)
		}
	}
	for _, session := range []string{w.admin, ann} {
		if a := w.do(session, "GET", "/api/v1/auth/me", ""); a.status != 200 {
			t.Errorf("a log-in has ended: %d %s", a.status, a.body)
		}
	}
	users := w.do(token, "GET", "/api/v1/users", "")
	if items, _ := users.field("items").([]any); users.status != 200 || len(items) != 3 || strings.Contains(users.body, "true") {
		t.Errorf("afterwards the users are %d %s", users.status, users.body)
	}
	w.logIn("eve", adminPassword)
}

// A token that was created with another token is deleted together with it.
func TestTokenEndsWithItsToken(t *testing.T) {
	w := newWorld(t)
	first := w.must(201, "POST", "/api/v1/tokens", `{"name":"first"}`)
	second := w.do(first.field("token").(string), "POST", "/api/v1/tokens", `{"name":"second"}`)
	third := w.do(second.field("token").(string), "POST", "/api/v1/tokens", `{"name":"third","role":"viewer"}`)
	other := w.must(201, "POST", "/api/v1/tokens", `{"name":"other"}`).field("token").(string)
	if a := w.do(third.field("token").(string), "GET", "/api/v1/jobs", ""); a.status != 200 {
		t.Fatalf("the third token: %d %s", a.status, a.body)
	}
	w.must(204, "DELETE", fmt.Sprintf("/api/v1/tokens/%v", first.field("id")), "")
	for name, a := range map[string]answer{"first": first, "second": second, "third": third} {
		if got := w.do(a.field("token").(string), "GET", "/api/v1/jobs", ""); got.status != 401 {
			t.Errorf("the %s token: %d", name, got.status)
		}
	}
	if a := w.do(other, "GET", "/api/v1/jobs", ""); a.status != 200 {
		t.Errorf("a token made with a log-in: %d", a.status)
	}
}

// Groups do not restrict an admin, so a token or user with the role admin has no groups.
func TestAdminsHaveNoGroups(t *testing.T) {
	w := newWorld(t)
	refused := func(method, path, body string) {
		t.Helper()
		a := w.do(w.admin, method, "/api/v1"+path, body)
		if a.status != 422 || !slices.Equal(a.locations(), []string{"groups"}) || !strings.Contains(a.body, "operator") {
			t.Errorf("%s %s %s: %d %s", method, path, body, a.status, a.body)
		}
	}
	refused("POST", "/tokens", `{"name":"a","role":"admin","groups":["default"]}`)
	refused("POST", "/tokens", `{"name":"a","role":"admin","groups":["default"],"scope":"events"}`)
	if a := w.must(201, "POST", "/api/v1/tokens", `{"name":"b","groups":["default"]}`); a.field("role") != "operator" {
		t.Errorf("with groups and without a role: %s", a.body)
	}
	if a := w.must(201, "POST", "/api/v1/tokens", `{"name":"c"}`); a.field("role") != "admin" {
		t.Errorf("with neither: %s", a.body)
	}
	refused("POST", "/users", `{"username":"bob","password":"a-good-password","role":"admin","groups":["default"]}`)
	refused("PATCH", "/users/admin", `{"groups":["default"]}`)
	w.user("ann", "operator", "")
	refused("PATCH", "/users/ann", `{"role":"admin","groups":["default"]}`)
	if a := w.must(200, "PATCH", "/api/v1/users/ann", `{"role":"admin"}`); a.field("role") != "admin" || fmt.Sprint(a.field("groups")) != "[]" {
		t.Errorf("an operator becomes admin: %s", a.body)
	}
	// Earlier versions stored groups of admins. Such a user can still make tokens.
	w.exec(`UPDATE users SET groups = '{default}' WHERE name = 'admin'`)
	if a := w.must(201, "POST", "/api/v1/tokens", `{"name":"d"}`); a.field("role") != "admin" || fmt.Sprint(a.field("groups")) != "[]" {
		t.Errorf("a token of an admin with groups: %s", a.body)
	}
	// Such a token acts as an operator of its groups.
	old := w.must(201, "POST", "/api/v1/tokens", `{"name":"old"}`).field("token").(string)
	w.exec(`UPDATE api_tokens SET groups = '{default}' WHERE name = 'old'`)
	if a := w.do(old, "GET", "/api/v1/auth/me", ""); a.field("role") != "operator" || fmt.Sprint(a.field("groups")) != "[default]" {
		t.Errorf("a stored token with role admin and groups: %s", a.body)
	}
	if a := w.do(old, "GET", "/api/v1/users", ""); a.status != 403 {
		t.Errorf("it lists users: %d", a.status)
	}
}

// Rights are checked before keys: a refused request stores nothing, and a caller gets no stored answer after losing the rights.
func TestKeysNeedRights(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	key := []string{"Idempotency-Key", "k"}
	stored := func() (n int) {
		t.Helper()
		if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.user("vi", "viewer", "")
	viewer := w.session("vi", adminPassword)
	for _, try := range []struct {
		token, path, body string
		status            int
	}{
		{viewer, job + "/trigger", "", 403}, {viewer, "/api/v1/groups", `{"name":"g"}`, 403}, {"", job + "/trigger", "", 401},
		{"bft_" + strings.Repeat("A", 43), job + "/trigger", "", 401}, {viewer, "/api/v1/nothing", "", 404},
		{w.admin, "/api/v1/auth/password", `{"current_password":"x","new_password":"y"}`, 422},
	} {
		if a := w.do(try.token, "POST", try.path, try.body, key...); a.status != try.status || stored() != 0 {
			t.Errorf("%s: %d, and %d keys are stored: %s", try.path, a.status, stored(), a.body)
		}
	}
	// An invalid key does not change the answer to a refused request.
	if a := w.do(viewer, "POST", job+"/trigger", "", "Idempotency-Key", strings.Repeat("k", 300)); a.status != 403 {
		t.Errorf("a bad key and no rights: %d", a.status)
	}

	w.user("op", "operator", "")
	operator := w.session("op", adminPassword)
	token := w.do(operator, "POST", "/api/v1/tokens", `{"name":"t"}`)
	first := w.do(token.field("token").(string), "POST", job+"/trigger", `{"param":"a"}`, key...)
	again := func() answer {
		return w.do(token.field("token").(string), "POST", job+"/trigger", `{"param":"a"}`, key...)
	}
	if a := again(); first.status != 202 || a.body != first.body || a.header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("repeated: %d %s, at first %d %s", a.status, a.body, first.status, first.body)
	}
	run := first.field("run_ids.0").(string)
	refused := func(what string, status int) {
		t.Helper()
		if a := again(); a.status != status || strings.Contains(a.body, run) || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	w.must(201, "POST", "/api/v1/groups", `{"name":"more"}`)
	w.must(200, "PATCH", "/api/v1/users/op", `{"groups":[]}`)
	refused("without the group", 403)
	w.must(200, "PATCH", "/api/v1/users/op", `{"groups":["default"],"role":"viewer"}`)
	refused("as a viewer", 403)
	w.must(200, "PATCH", "/api/v1/users/op", `{"role":"operator"}`)
	if a := again(); a.body != first.body {
		t.Errorf("with the first rights again: %d %s", a.status, a.body)
	}
	w.must(200, "PATCH", "/api/v1/users/op", `{"disabled":true}`)
	refused("disabled", 401)
	w.must(200, "PATCH", "/api/v1/users/op", `{"disabled":false}`)
	w.exec(`UPDATE api_tokens SET expires_at = now()`)
	refused("expired", 401)
}

// An idempotency key belongs to one API token, or to the user of a session.
func TestOwnersOfKeys(t *testing.T) {
	w := newWorld(t)
	job := w.job(simpleJob)
	trigger := func(token, query string) answer {
		t.Helper()
		return w.do(token, "POST", job+"/trigger"+query, `{"param":"a"}`, "Idempotency-Key", "k")
	}
	one := w.must(201, "POST", "/api/v1/tokens", `{"name":"one"}`).field("token").(string)
	two := w.must(201, "POST", "/api/v1/tokens", `{"name":"two"}`).field("token").(string)
	runs := map[any]bool{}
	for _, token := range []string{w.admin, one, two} {
		runs[trigger(token, "").field("run_ids.0")] = true
	}
	if len(runs) != 3 || runs[nil] {
		t.Errorf("a log-in and two tokens made the runs %v", runs)
	}
	if a := trigger(w.session("admin", adminPassword), ""); a.header.Get("Idempotency-Replayed") != "true" || a.body != trigger(w.admin, "").body {
		t.Errorf("another log-in of the same user: %d %s", a.status, a.body)
	}
	if a := trigger(w.admin, "?dry_run=true"); a.status != 422 || !slices.Contains(a.locations(), "Idempotency-Key") {
		t.Errorf("with another parameter: %d %s", a.status, a.body)
	}
	// A new user with the name of a deleted one does not get its answers.
	for i := range 2 {
		w.user("ann", "operator", "")
		a := trigger(w.session("ann", adminPassword), "")
		if a.status != 202 || a.header.Get("Idempotency-Replayed") != "" || runs[a.field("run_ids.0")] {
			t.Errorf("user %d: %d %s", i, a.status, a.body)
		}
		runs[a.field("run_ids.0")] = true
		w.must(204, "DELETE", "/api/v1/users/ann", "")
	}
	// The database does not keep the plain digest of a body.
	body := `{"username":"bob","password":"correct-horse-1","role":"viewer"}`
	w.must(201, "POST", "/api/v1/users", body, "Idempotency-Key", "k")
	var plain int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE body_sha256 = $1 OR body_sha256 = $2`,
		digest(body), digest("\n"+body)).Scan(&plain); err != nil || plain != 0 {
		t.Errorf("%d plain digests are stored, %v", plain, err)
	}
}

func digest(s string) []byte {
	d := sha256.Sum256([]byte(s))
	return d[:]
}
