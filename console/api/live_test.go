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

// confined makes a user of one group and logs it in.
func (w *world) confined(name, role, group string) (token string) {
	w.t.Helper()
	w.must(201, "POST", "/api/v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"role":%q,"groups":[%q]}`, name, adminPassword, role, group))
	return w.logIn(name, adminPassword)
}

// served serves the API, and ends its streams before the server waits for them.
func (w *world) served() string {
	w.t.Helper()
	server := httptest.NewServer(w.api)
	w.t.Cleanup(server.Close)
	w.t.Cleanup(w.api.CloseStreams)
	return server.URL + "/api/v1"
}

// runEvent returns the next event, which must be about a run, as its name and the run.
func runEvent(t *testing.T, events <-chan event) (name string, r domain.Run) {
	t.Helper()
	e := next(t, events)
	if err := json.Unmarshal([]byte(e.data), &r); err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	return e.name, r
}

// next skips comments.
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
			t.Fatal("no event came")
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
	w.changes.tell(id, "default", domain.Running)
	for name, events := range map[string]<-chan event{"all": all, "running": running} {
		if got, r := runEvent(t, events); got != "run" || r.ID != id || r.State != domain.Running || r.Group != "default" || r.Instance != "one" {
			t.Errorf("%s: %s %+v", name, got, r)
		}
	}
	w.end(id, 0)
	w.changes.tell(id, "default", domain.Failed)
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

// A final state is never left, so that a list of final runs loses none, and is not told of others.
func TestRunStreamOfEndedRuns(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	_, failed := w.follow(t.Context(), base+"/runs/stream?state=failed")
	_, succeeded := w.follow(t.Context(), base+"/runs/stream?state=succeeded")
	id := w.running()
	w.changes.tell(id, "default", domain.Running)
	w.end(id, 0)
	w.changes.tell(id, "default", domain.Failed)
	if got, r := runEvent(t, failed); got != "run" || r.State != domain.Failed {
		t.Errorf("%s %+v", got, r)
	}
	w.changes.missed()
	if e := next(t, succeeded); e.name != "gap" {
		t.Errorf("%+v", e)
	}
}

// Who sees one group hears nothing of another, whatever is said on the way, and neither does a narrower token.
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
			t.Errorf("the stream of a group that one may not see: %d", a.status)
		}
		if a := w.do(caller, "GET", "/api/v1/overview/stream?group=default", ""); a.status != 422 {
			t.Errorf("the overview of a group that one may not see: %d", a.status)
		}
	}
	_, overview := w.followAs(t.Context(), viewer, base+"/overview/stream")
	if e := next(t, overview); e.name != "overview" || !strings.Contains(e.data, `"running":0`) {
		t.Errorf("%+v", e)
	}
	hidden, own := w.running(), w.runningIn("other")
	w.changes.tell(hidden, "default", domain.Running)
	w.changes.tell(hidden, "other", domain.Running) // a lie: its row says another group
	w.changes.tell(own, "other", domain.Running)
	for _, events := range streams {
		if _, r := runEvent(t, events); r.ID != own {
			t.Errorf("it heard of %s, not of %s", r.ID, own)
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
	w.changes.tell(id, "default", domain.Running)
	if o := read(); o.Now.Running != 1 {
		t.Errorf("%+v", o)
	}
	w.end(id, 0)
	w.changes.tell(id, "default", domain.Failed)
	if o := read(); o.Now.Running != 0 || o.Counts.Failed != 1 || len(o.RecentFailures) != 1 || o.RecentFailures[0].RunID != id {
		t.Errorf("%+v", o)
	}
}

// What a stream shows ends with the right to see it: after a log-out, a deleted token, a change of rights.
func TestStreamsEndWithRights(t *testing.T) {
	w := newWorld(t)
	base := w.served()
	id := w.running()
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	viewer, leaver := w.confined("vera", "viewer", "default"), w.confined("leo", "viewer", "default")
	made := w.must(201, "POST", "/api/v1/tokens", `{"name":"ci"}`)
	token, _ := made.field("token").(string)
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
	cases := map[string]struct {
		streams []<-chan event
		end     func()
	}{
		"log-out": {open(leaver), func() {
			if a := w.do(leaver, "POST", "/api/v1/auth/logout", ""); a.status >= 300 {
				t.Errorf("log-out: %d", a.status)
			}
		}},
		"token deleted": {open(token), func() { w.must(204, "DELETE", fmt.Sprintf("/api/v1/tokens/%v", made.field("id")), "") }},
		"moved to another group": {open(viewer), func() {
			w.must(200, "PATCH", "/api/v1/users/vera", `{"groups":["other"]}`)
		}},
	}
	stays := open(w.admin)
	for name, c := range cases {
		c.end()
		for i, events := range c.streams {
			limit := time.After(patience)
			for open := true; open; {
				select {
				case _, open = <-events:
				case <-limit:
					t.Fatalf("%s: stream %d goes on", name, i)
				}
			}
		}
	}
	for len(stays[0]) > 0 {
		<-stays[0]
	}
	w.changes.tell(id, "default", domain.Running)
	if _, r := runEvent(t, stays[0]); r.ID != id {
		t.Errorf("who may still see got %+v", r)
	}
}

// One user cannot take all streams.
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
	eventually(t, "room after they left", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, _ := w.follow(ctx, base+"/runs/stream")
		return resp.StatusCode == http.StatusOK
	})
}
