package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client with a token for a server with handler h.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(server.URL+"/", "sesame")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNew(t *testing.T) {
	for _, server := range []string{"http://127.0.0.1:8080", "https://belfry.example/below/", "127.0.0.1:8080", "localhost"} {
		if _, err := New(server, ""); err != nil {
			t.Errorf("%s: %v", server, err)
		}
	}
	for _, server := range []string{"", "ftp://x", "http://", "http://x?y", "://"} {
		if _, err := New(server, ""); domain.CodeOf(err) != domain.Invalid {
			t.Errorf("%q was taken", server)
		}
	}
}

// TestRequests checks method, path and body of each call against the contract.
func TestRequests(t *testing.T) {
	run := domain.NewRunID(time.Now())
	param, yes := "p", true
	at := domain.At(time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC))
	ids := `{"run_ids":["` + run.String() + `"]}`
	for _, c := range []struct {
		want, answer string
		call         func(context.Context, *Client) error
	}{
		{`POST /auth/login {"password":"p","username":"u"}`, `{"token":"t"}`, func(ctx context.Context, c *Client) error { _, err := c.Login(ctx, "u", "p"); return err }},
		{`GET /jobs?calendar=h&child_id=4&enabled=true&group=g&health=ok&kind=cron&limit=7&q=x&sort=name&tag=t`, `{"items":[]}`, func(ctx context.Context, c *Client) error {
			_, err := c.Jobs(ctx, JobFilter{"g", "x", "t", "cron", "h", &yes, 4, "ok", "name"}, 7)
			return err
		}},
		{`GET /jobs/7`, `{"id":7}`, func(ctx context.Context, c *Client) error { _, err := c.Job(ctx, 7); return err }},
		{`POST /jobs {"name":"n"}`, `{"id":7}`, func(ctx context.Context, c *Client) error {
			_, err := c.CreateJob(ctx, json.RawMessage(`{"name":"n"}`))
			return err
		}},
		{`PUT /jobs/7 {"name":"n"}`, `{"id":7}`, func(ctx context.Context, c *Client) error {
			_, err := c.ReplaceJob(ctx, 7, json.RawMessage(`{"name":"n"}`))
			return err
		}},
		{`DELETE /jobs/7`, ``, func(ctx context.Context, c *Client) error { return c.DeleteJob(ctx, 7) }},
		{`POST /jobs/7/enable {}`, ``, func(ctx context.Context, c *Client) error { return c.SetJobEnabled(ctx, 7, true) }},
		{`POST /jobs/7/disable {}`, ``, func(ctx context.Context, c *Client) error { return c.SetJobEnabled(ctx, 7, false) }},
		{`POST /jobs/7/pause {"reason":"r","until":"2026-03-29T01:30:00.000Z"}`, `{"id":7}`, func(ctx context.Context, c *Client) error {
			_, err := c.PauseJob(ctx, 7, "r", &at)
			return err
		}},
		{`POST /jobs/7/resume {}`, `{"id":7}`, func(ctx context.Context, c *Client) error { _, err := c.ResumeJob(ctx, 7); return err }},
		{`POST /jobs/7/trigger {}`, ids, func(ctx context.Context, c *Client) error { _, err := c.TriggerJob(ctx, 7, Trigger{}); return err }},
		{`POST /jobs/7/trigger {"param":"p","instance":"i","fire_time":"2026-03-29T01:30:00.000Z"}`, ids, func(ctx context.Context, c *Client) error {
			_, err := c.TriggerJob(ctx, 7, Trigger{&param, "i", &at})
			return err
		}},
		{`GET /jobs/7/next?count=3`, `{"fire_times":["2026-03-29T01:30:00Z"]}`, func(ctx context.Context, c *Client) error {
			p, err := c.NextFireTimes(ctx, 7, 3)
			if err == nil && (len(p.FireTimes) != 1 || !p.FireTimes[0].Equal(at.Time)) {
				return fmt.Errorf("got %v", p)
			}
			return err
		}},
		{`GET /runs?cause=api&from=2026-03-29T01%3A30%3A00.000Z&group=g&job_id=7&limit=9&reason=lost&state=failed`, `{"items":[]}`, func(ctx context.Context, c *Client) error {
			_, err := c.Runs(ctx, RunFilter{JobID: 7, Group: "g", State: "failed", Cause: "api", Reason: "lost", From: &at}, 9)
			return err
		}},
		{`GET /runs/` + run.String(), `{}`, func(ctx context.Context, c *Client) error { _, err := c.Run(ctx, run); return err }},
		{`POST /runs/` + run.String() + `/kill {}`, ``, func(ctx context.Context, c *Client) error { return c.KillRun(ctx, run) }},
		{`POST /runs/` + run.String() + `/retry {"param":"","instance":"one"}`, `{"run_ids":["` + run.String() + `"]}`, func(ctx context.Context, c *Client) error {
			_, err := c.RetryRunWith(ctx, run, Retry{Param: new(string), Instance: "one"})
			return err
		}},
		{`POST /runs/` + run.String() + `/retry {}`, `{"id":"` + run.String() + `"}`, func(ctx context.Context, c *Client) error {
			got, err := c.RetryRun(ctx, run)
			if err == nil && got[0] != run {
				return errors.New("wrong id")
			}
			return err
		}},
		{`GET /runs/` + run.String() + `/log?from=1&limit=10`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Log(ctx, run, 1, 10); return err }},
		{`GET /groups?limit=500`, `{"items":[]}`, func(ctx context.Context, c *Client) error { _, err := c.Groups(ctx, 1000); return err }},
		{`GET /groups/a%2Fb`, `{}`, func(ctx context.Context, c *Client) error { _, err := c.Group(ctx, "a/b"); return err }},
		{`POST /groups {"description":"d","name":"g"}`, `{"name":"g","token":"t"}`, func(ctx context.Context, c *Client) error {
			g, err := c.CreateGroup(ctx, "g", "d")
			if err == nil && (g.Name != "g" || g.Token != "t") {
				return fmt.Errorf("got %+v", g)
			}
			return err
		}},
		{`POST /groups/g/token {"overlap":"24h"}`, `{"token":"t","previous_token_until":"2026-03-01T00:00:00Z"}`, func(ctx context.Context, c *Client) error {
			token, err := c.ReplaceGroupToken(ctx, "g", 24*time.Hour)
			if err == nil && (token.Token != "t" || token.PreviousTokenUntil == nil) {
				return fmt.Errorf("got %+v", token)
			}
			return err
		}},
		{`DELETE /groups/g`, ``, func(ctx context.Context, c *Client) error { return c.DeleteGroup(ctx, "g") }},
		{`GET /groups/g/instances`, `{"items":[{"id":"i"}]}`, func(ctx context.Context, c *Client) error { _, err := c.Instances(ctx, "g"); return err }},
		{`GET /tokens?limit=5`, `{"items":[{"id":1}]}`, func(ctx context.Context, c *Client) error { _, err := c.Tokens(ctx, 5); return err }},
		{`POST /tokens {"name":"ci","role":"viewer","groups":["g"]}`, `{"token":"t"}`, func(ctx context.Context, c *Client) error {
			_, err := c.CreateToken(ctx, NewToken{Name: "ci", Role: "viewer", Groups: []string{"g"}})
			return err
		}},
		{`DELETE /tokens/3`, ``, func(ctx context.Context, c *Client) error { return c.DeleteToken(ctx, 3) }},
	} {
		t.Run(c.want, func(t *testing.T) {
			var got string
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + strings.TrimPrefix(r.RequestURI, "/api/v1")
				if len(body) > 0 {
					got += " " + string(body)
				}
				if r.Header.Get("Authorization") != "Bearer sesame" {
					t.Error("the token was not sent")
				}
				io.WriteString(w, c.answer)
			})
			if err := c.call(t.Context(), client); err != nil {
				t.Error(err)
			}
			if got != c.want {
				t.Errorf("sent %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestProblem(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(422)
		io.WriteString(w, `{"title":"Unprocessable Entity","status":422,"detail":"the job is not valid","errors":[
			{"location":"name","message":"is required"},{"location":"schedule.expr","message":"minute: 61 is above 59"}]}`)
	})
	_, err := client.CreateJob(t.Context(), map[string]string{})
	want := "Unprocessable Entity: the job is not valid (name: is required; schedule.expr: minute: 61 is above 59)"
	if err == nil || err.Error() != want || StatusOf(err) != 422 {
		t.Errorf("got %v", err)
	}
	for _, body := range []string{"", "<html>no</html>", `{"title":7}`} {
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			io.WriteString(w, body)
		})
		if _, err := client.Job(t.Context(), 1); err == nil || err.Error() != "Forbidden" {
			t.Errorf("%q: got %v", body, err)
		}
	}
	client = serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>hello</html>") })
	if _, err := client.Job(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "not be a Belfry console") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyReadsAreTriedAgain(t *testing.T) {
	requests := 0
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests < 3 {
			w.WriteHeader(503)
			return
		}
		io.WriteString(w, `{"id":7}`)
	})
	if j, err := client.Job(t.Context(), 7); err != nil || j.ID != 7 || requests != 3 {
		t.Errorf("job %d after %d requests: %v", j.ID, requests, err)
	}
	requests = 0
	if _, err := client.TriggerJob(t.Context(), 7, Trigger{}); StatusOf(err) != 503 || requests != 1 {
		t.Errorf("%d requests: %v", requests, err)
	}
}

func TestPages(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		first, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		var page struct {
			Items []domain.Job `json:"items"`
			Next  string       `json:"next_cursor"`
		}
		for id := first; id < min(first+limit, 1200); id++ {
			page.Items = append(page.Items, domain.Job{ID: domain.JobID(id), JobSpec: domain.JobSpec{Group: "g", Name: "job " + strconv.Itoa(id)}})
		}
		if first+limit < 1200 {
			page.Next = strconv.Itoa(first + limit)
		}
		json.NewEncoder(w).Encode(page)
	})
	for most, want := range map[int]int{5: 5, 501: 501, 5000: 1200} {
		jobs, err := client.Jobs(t.Context(), JobFilter{}, most)
		if err != nil || len(jobs) != want || jobs[want-1].ID != domain.JobID(want-1) {
			t.Errorf("most %d: %d jobs, %v", most, len(jobs), err)
		}
	}
	if j, err := client.JobByName(t.Context(), "g", "job 1199"); err != nil || j.ID != 1199 {
		t.Errorf("got %d, %v", j.ID, err)
	}
	if _, err := client.JobByName(t.Context(), "g", "job"); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v", err)
	}
}

// The server leaves out planned runs.
func TestUnplannedRuns(t *testing.T) {
	var asked []string
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("planned"))
		io.WriteString(w, `{"items":[],"next_cursor":""}`)
	})
	for _, f := range []RunFilter{{Unplanned: true}, {}} {
		if _, err := client.Runs(t.Context(), f, 4); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) != 2 || asked[0] != "false" || asked[1] != "" {
		t.Errorf("planned was %q", asked)
	}
}

func TestUnknownGroup(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(422)
		io.WriteString(w, `{"errors":[{"location":"group","message":"there is no group \"nix\""}]}`)
	})
	if _, err := client.JobByName(t.Context(), "nix", "a"); !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), `no group "nix"`) {
		t.Errorf("got %v", err)
	}
}

func TestFollowLog(t *testing.T) {
	line := func(n int) string { return fmt.Sprintf("event: line\ndata: {\"n\":%d,\"text\":\"line %d\"}\n\n", n, n) }
	requests := 0
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		io.WriteString(w, ": hello\n\nevent: state\ndata: {\"state\":\"running\"}\n\n")
		switch requests {
		case 1: // breaks after two lines
			io.WriteString(w, line(1)+line(2))
		case 2: // sends one line again
			if r.URL.Query().Get("from") != "3" {
				t.Errorf("asked from %s", r.URL.Query().Get("from"))
			}
			io.WriteString(w, line(2)+strings.ReplaceAll(line(3), "\n", "\r\n")+"event: end\ndata: {}\n\n")
		}
	})
	var got []string
	err := client.FollowLog(t.Context(), domain.NewRunID(time.Now()), 1, func(l domain.LogLine) error {
		got = append(got, l.Text)
		return nil
	})
	if err != nil || strings.Join(got, ",") != "line 1,line 2,line 3" || requests != 2 {
		t.Errorf("got %v after %d requests: %v", got, requests, err)
	}
}

func TestFollowLogEnds(t *testing.T) {
	requests := 0
	gone := serve(t, func(w http.ResponseWriter, _ *http.Request) { requests++; w.WriteHeader(404) })
	if err := gone.FollowLog(t.Context(), domain.RunID{}, 1, nil); StatusOf(err) != 404 || requests != 1 {
		t.Errorf("%d requests: %v", requests, err)
	}
	stop := errors.New("stop")
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "event: line\ndata: {\"n\":1}\n\n") })
	if err := c.FollowLog(t.Context(), domain.RunID{}, 1, func(domain.LogLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
	})
	if err := silent.FollowLog(ctx, domain.RunID{}, 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
