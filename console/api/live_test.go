package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/runstats"
)

// confined makes a user of one group and logs the user in.
func (w *world) confined(name, role, group string) (token string) {
	w.t.Helper()
	w.must(201, "POST", "/api/v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"role":%q,"groups":[%q]}`, name, adminPassword, role, group))
	return w.logIn(name, adminPassword)
}

// served serves the API. At the end of the test it ends the streams first, because the server waits for them.
func (w *world) served() string {
	w.t.Helper()
	server := httptest.NewServer(w.api)
	w.t.Cleanup(server.Close)
	w.t.Cleanup(w.api.CloseStreams)
	return server.URL + "/api/v1"
}

// runEvent returns the name and the run of the next event. The event must contain a run.
func runEvent(t *testing.T, events <-chan event) (name string, r domain.Run) {
	t.Helper()
	e := next(t, events)
	if err := json.Unmarshal([]byte(e.data), &r); err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	return e.name, r
}

// next returns the next event, and skips comments.
func next(t *testing.T, events <-chan event) event {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case e, open := <-events:
			if open && e.name == "" {
				continue
			}
			return e
		case <-limit:
			t.Fatal("no event arrived")
		}
	}
}

func TestRunStream(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	_, all := w.follow(t.Context(), base+"/runs/stream")
	_, running := w.follow(t.Context(), base+"/runs/stream?state=running&job_id=1")
	_, other := w.follow(t.Context(), base+"/runs/stream?job_id=2")
	id := w.running()
	w.changes.report(id, "default", domain.Running)
	for name, events := range map[string]<-chan event{"all": all, "running": running} {
		if got, r := runEvent(t, events); got != "run" || r.ID != id || r.State != domain.Running || r.Group != "default" || r.Instance != "one" {
			t.Errorf("%s: %s %+v", name, got, r)
		}
	}
	w.end(id, 0)
	w.changes.report(id, "default", domain.Failed)
	if got, r := runEvent(t, all); got != "run" || r.ID != id || r.State != domain.Failed || r.Reason != domain.ReasonHandlerError {
		t.Errorf("%s %+v", got, r)
	}
	if e := next(t, running); e.name != "gone" || e.data != `{"id":"`+id.String()+`"}` {
		t.Errorf("%+v", e)
	}
	w.changes.missed()
	for name, events := range map[string]<-chan event{"all": all, "running": running, "of another job": other} {
		if e := next(t, events); e.name != "gap" || e.data != "{}" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for path, at := range map[string]string{
		"/runs/stream?state=odd": "state[0]", "/runs/stream?group=none": "group", "/runs/stream?limit=5": "limit", "/runs/stream?from=now": "from",
		"/overview/stream?span=1s": "span", "/overview/stream?span=99999h": "span", "/overview/stream?group=none": "group",
	} {
		if a := w.must(422, "GET", "/api/v1"+path, ""); a.locations()[0] != at {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// Final runs do not change. So a stream of final states sends no gone events, and no runs in other states.
func TestRunStreamOfEndedRuns(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	_, failed := w.follow(t.Context(), base+"/runs/stream?state=failed")
	_, succeeded := w.follow(t.Context(), base+"/runs/stream?state=succeeded")
	id := w.running()
	w.changes.report(id, "default", domain.Running)
	w.end(id, 0)
	w.changes.report(id, "default", domain.Failed)
	if got, r := runEvent(t, failed); got != "run" || r.State != domain.Failed {
		t.Errorf("%s %+v", got, r)
	}
	w.changes.missed()
	if e := next(t, succeeded); e.name != "gap" {
		t.Errorf("%+v", e)
	}
}

// Streams of a viewer of one group, and of a token with one group, contain nothing of another group, even if a change names
// the wrong group.
func TestStreamsKeepGroupsApart(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	viewer := w.confined("vera", "viewer", "other")
	token, _ := w.must(201, "POST", "/api/v1/tokens", `{"name":"narrow","role":"viewer","groups":["other"]}`).field("token").(string)
	base := w.served()
	var streams []<-chan event
	for _, caller := range []string{viewer, token} {
		_, events := w.followAs(t.Context(), caller, base+"/runs/stream")
		streams = append(streams, events)
		if a := w.do(caller, "GET", "/api/v1/runs/stream?group=default", ""); a.status != 422 {
			t.Errorf("the stream of a hidden group: %d", a.status)
		}
		if a := w.do(caller, "GET", "/api/v1/overview/stream?group=default", ""); a.status != 422 {
			t.Errorf("the overview of a hidden group: %d", a.status)
		}
	}
	_, overview := w.followAs(t.Context(), viewer, base+"/overview/stream")
	if e := next(t, overview); e.name != "overview" || !strings.Contains(e.data, `"running":0`) {
		t.Errorf("%+v", e)
	}
	hidden, own := w.running(), w.runningIn("other")
	w.changes.report(hidden, "default", domain.Running)
	w.changes.report(hidden, "other", domain.Running) // the row has another group
	w.changes.report(own, "other", domain.Running)
	for _, events := range streams {
		if _, r := runEvent(t, events); r.ID != own {
			t.Errorf("the stream sent run %s, want %s", r.ID, own)
		}
	}
	if e := next(t, overview); e.name != "overview" || !strings.Contains(e.data, `"running":1`) {
		t.Errorf("%+v", e)
	}
}

func TestOverviewStream(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	_, events := w.follow(t.Context(), base+"/overview/stream?span=1h")
	read := func() (o runstats.Overview) {
		t.Helper()
		e := next(t, events)
		if err := json.Unmarshal([]byte(e.data), &o); err != nil || e.name != "overview" {
			t.Fatalf("%+v, %v", e, err)
		}
		return o
	}
	if o := read(); o.Now.Running != 0 || o.Now.Instances != 1 || o.To.Sub(o.From.Time) < time.Hour {
		t.Errorf("%+v", o)
	}
	id := w.running()
	w.changes.report(id, "default", domain.Running)
	if o := read(); o.Now.Running != 1 {
		t.Errorf("%+v", o)
	}
	w.end(id, 0)
	w.changes.report(id, "default", domain.Failed)
	if o := read(); o.Now.Running != 0 || o.Counts.Failed != 1 || len(o.RecentFailures) != 1 || o.RecentFailures[0].RunID != id {
		t.Errorf("%+v", o)
	}
}

// A stream ends when its caller loses its rights. The test covers each way to lose them, for sessions and for API tokens.
func TestStreamsEndWithRights(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	id := w.running()
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	type ending struct {
		streams []<-chan event
		end     func()
	}
	cases := map[string]ending{}
	open := func(caller string) (all []<-chan event) {
		for _, path := range []string{"/runs/stream", "/overview/stream", "/runs/" + id.String() + "/log/stream"} {
			resp, events := w.followAs(t.Context(), caller, base+path)
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %d", path, resp.StatusCode)
			}
			all = append(all, events)
		}
		return all
	}
	n := 0
	// add opens streams with a session of a new user. If tokens is true, end also affects API tokens, and add opens streams
	// with a token of another new user.
	add := func(name, role string, tokens bool, end func(user string)) {
		for _, kind := range []string{"log-in", "token"} {
			if kind == "token" && !tokens {
				continue
			}
			n++
			user := fmt.Sprintf("user%d", n)
			w.must(201, "POST", "/api/v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"role":%q,"groups":%s}`, user, adminPassword, role,
				map[bool]string{true: "[]", false: `["default"]`}[role == "admin"]))
			caller := w.session(user, adminPassword)
			if kind == "token" {
				caller, _ = w.do(caller, "POST", "/api/v1/tokens", `{"name":"ci"}`).field("token").(string)
			}
			cases[name+", "+kind] = ending{open(caller), func() { end(user) }}
		}
	}
	patch := func(body string) func(string) {
		return func(user string) { w.must(200, "PATCH", "/api/v1/users/"+user, body) }
	}
	ofUser := func(sql string) func(string) {
		return func(user string) { w.exec(sql+` WHERE user_id = (SELECT id FROM users WHERE name = $1)`, user) }
	}
	add("user disabled", "viewer", true, patch(`{"disabled":true}`))
	add("user demoted", "admin", true, patch(`{"role":"operator","groups":["default"]}`))
	add("user moved to another group", "viewer", true, patch(`{"groups":["other"]}`))
	add("user deleted", "operator", true, func(user string) { w.must(204, "DELETE", "/api/v1/users/"+user, "") })
	add("password reset", "operator", false, patch(`{"password":"another good one"}`))
	add("password to be changed", "operator", false, patch(`{"must_change_password":true}`))
	add("logged out by an admin", "operator", false, func(user string) { w.must(204, "POST", "/api/v1/users/"+user+"/logout", "") })
	add("expired", "viewer", false, ofUser(`UPDATE sessions SET expires_at = now()`))
	// These cases end a single token, or a single session of its own user.
	for name, end := range map[string]func(id any){
		"token deleted":  func(id any) { w.must(204, "DELETE", fmt.Sprintf("/api/v1/tokens/%v", id), "") },
		"token expired":  func(id any) { w.exec(`UPDATE api_tokens SET expires_at = now() WHERE id::text = $1`, fmt.Sprint(id)) },
		"token confined": func(id any) { w.exec(`UPDATE api_tokens SET groups = '{other}' WHERE id::text = $1`, fmt.Sprint(id)) },
	} {
		made := w.must(201, "POST", "/api/v1/tokens", `{"name":"`+name+`"}`)
		token, _ := made.field("token").(string)
		cases[name] = ending{open(token), func() { end(made.field("id")) }}
	}
	leaver := w.confined("leo", "viewer", "default")
	cases["log-out"] = ending{open(leaver), func() {
		if a := w.do(leaver, "POST", "/api/v1/auth/logout", ""); a.status >= 300 {
			t.Errorf("log-out: %d", a.status)
		}
	}}
	stays := open(w.admin)
	for name, c := range cases {
		c.end()
		for i, events := range c.streams {
			limit := time.After(patience)
			for open := true; open; {
				select {
				case _, open = <-events:
				case <-limit:
					t.Fatalf("%s: stream %d does not end", name, i)
				}
			}
		}
	}
	for len(stays[0]) > 0 {
		<-stays[0]
	}
	w.changes.report(id, "default", domain.Running)
	if _, r := runEvent(t, stays[0]); r.ID != id {
		t.Errorf("the stream of the admin sent %+v", r)
	}
}

// One user cannot use all streams.
func TestStreamsAreBounded(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range 100 {
		if resp, _ := w.follow(ctx, base+"/runs/stream"); resp.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %d", i, resp.StatusCode)
		}
	}
	for _, path := range []string{"/runs/stream", "/overview/stream", "/runs/" + w.running().String() + "/log/stream"} {
		if resp, _ := w.follow(ctx, base+path); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("one more of %s: %d", path, resp.StatusCode)
		}
	}
	if resp, _ := w.followAs(ctx, w.confined("vera", "viewer", "default"), base+"/runs/stream"); resp.StatusCode != http.StatusOK {
		t.Errorf("another user's: %d", resp.StatusCode)
	}
	leave()
	eventually(t, "a free stream after the others have ended", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, _ := w.follow(ctx, base+"/runs/stream")
		return resp.StatusCode == http.StatusOK
	})
}
