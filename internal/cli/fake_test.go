package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// console is a REST API with jobs and runs in memory. It refuses requests that the contract does not allow.
type console struct {
	t  *testing.T
	mu sync.Mutex
	*httptest.Server
	jobs     []domain.Job
	requests []string // method and path of each request that changed something
	ends     domain.State
	polls    int
	waiting  string
	runs     []domain.Run
	bulkEnd  string // the state in which a bulk action ends
}

func newConsole(t *testing.T) *console {
	isolate(t)
	c := &console{t: t, ends: domain.Succeeded, bulkEnd: "done"}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/auth/login", c.login)
	mux.HandleFunc("GET /api/v1/jobs", c.listJobs)
	mux.HandleFunc("POST /api/v1/jobs", c.createJob)
	mux.HandleFunc("GET /api/v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) { c.withJob(w, r, func(j *domain.Job) any { return j }) })
	mux.HandleFunc("PUT /api/v1/jobs/{id}", c.replaceJob)
	for _, action := range []string{"enable", "disable"} {
		mux.HandleFunc("POST /api/v1/jobs/{id}/"+action, func(w http.ResponseWriter, r *http.Request) {
			c.withJob(w, r, func(j *domain.Job) any { j.Enabled = action == "enable"; return j })
		})
	}
	mux.HandleFunc("DELETE /api/v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		c.withJob(w, r, func(*domain.Job) any { return nil })
	})
	mux.HandleFunc("GET /api/v1/jobs/{id}/next", func(w http.ResponseWriter, r *http.Request) {
		c.withJob(w, r, func(*domain.Job) any {
			return json.RawMessage(`{"fire_times":["2026-03-29T01:30:00.000Z"],"description":"At 01:30 every day, UTC"}`)
		})
	})
	mux.HandleFunc("POST /api/v1/jobs/{id}/trigger", func(w http.ResponseWriter, r *http.Request) {
		c.withJob(w, r, func(*domain.Job) any { return json.RawMessage(`{"run_ids":["` + someRun + `"]}`) })
	})
	mux.HandleFunc("GET /api/v1/runs", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("q") {
			c.searchRuns(w, r)
			return
		}
		runs := slices.DeleteFunc(slices.Clone(c.runs), func(run domain.Run) bool {
			return r.URL.Query().Get("planned") == "false" && run.State == domain.Pending && run.HeldBy == nil
		})
		json.NewEncoder(w).Encode(map[string]any{"items": runs, "next_cursor": ""})
	})
	mux.HandleFunc("POST /api/v1/runs/bulk", c.startBulk)
	mux.HandleFunc("GET /api/v1/bulk", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"items":[%s],"next_cursor":""}`, bulkAction("done", 2))
	})
	mux.HandleFunc("GET /api/v1/bulk/7", func(w http.ResponseWriter, _ *http.Request) {
		if c.polls++; c.polls < 3 {
			io.WriteString(w, bulkAction("running", 1))
			return
		}
		io.WriteString(w, bulkAction(c.bulkEnd, 2))
	})
	mux.HandleFunc("DELETE /api/v1/bulk/7", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, bulkAction("stopped", 1)) })
	mux.HandleFunc("GET /api/v1/runs/{id}", c.run)
	mux.HandleFunc("GET /api/v1/runs/{id}/log", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("from") == "1" {
			io.WriteString(w, `{"lines":[{"n":1,"at":"2026-03-29T01:30:00.000Z","level":"info","attempt":1,"text":"one"}],"next":2,"end":false}`)
			return
		}
		io.WriteString(w, `{"lines":[{"n":2,"at":"2026-03-29T01:30:01.000Z","level":"info","attempt":1,"text":"two"}],"next":3,"end":true}`)
	})
	mux.HandleFunc("GET /api/v1/runs/{id}/log/stream", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "event: line\ndata: {\"n\":1,\"text\":\"one\"}\n\nevent: end\ndata: {}\n\n")
	})
	mux.HandleFunc("POST /api/v1/groups", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"name":"tools","token":"bfg_g"}`) })
	mux.HandleFunc("POST /api/v1/tokens", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id":3,"token":"bft_t"}`) })
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.Method != http.MethodGet && r.URL.Path != "/api/v1/auth/login" {
			c.requests = append(c.requests, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1"))
		}
		if r.Header.Get("Authorization") != "Bearer sesame" && r.URL.Path != "/api/v1/auth/login" {
			problem(w, 401, "the token is not valid")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	t.Setenv("BELFRY_SERVER", c.URL)
	t.Setenv("BELFRY_TOKEN", "sesame")
	return c
}

// startBulk makes the bulk action 7, counts its runs, or performs a step of two runs.
func (c *console) startBulk(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Action string         `json:"action"`
		Filter map[string]any `json:"filter"`
		Max    int            `json:"max"`
		Cursor string         `json:"cursor"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil || len(in.Filter) == 0 {
		problem(w, 422, "the body is not valid")
		return
	}
	switch {
	case in.Max > 0 && in.Cursor == "":
		io.WriteString(w, `{"matched":2,"done":2,"failures":[],"run_ids":[],"next_cursor":"c"}`)
		return
	case in.Max > 0:
		io.WriteString(w, `{"matched":2,"done":1,"skipped":1,"failures":[],"run_ids":[],"next_cursor":""}`)
		return
	case r.URL.Query().Get("dry_run") == "true":
		matched := 3
		if in.Filter["group"] == "idle" {
			matched = 0
		}
		fmt.Fprintf(w, `{"matched":%d,"at_least":false,"jobs":[{"job_id":1,"job_name":"report","group":"default","runs":%d}]}`, matched, matched)
		return
	}
	c.polls = 0
	fmt.Fprintf(w, `{"id":7,"matched":3,"bulk":%s}`, bulkAction("waiting", 0))
}

// bulkAction is a retry of three runs, of which some are done.
func bulkAction(state string, done int) string {
	end := ""
	if state == "done" || state == "stopped" || state == "failed" {
		end = `"finished_at":"2026-03-29T01:30:01.000Z","note":"because",`
	}
	return fmt.Sprintf(`{"id":7,"action":"retry","filter":{"group":"default","job_id":12345678},"state":%q,"created_by":"ann","created_at":"2026-03-29T01:30:00.000Z",%s
		"matched":3,"at_least":false,"jobs":[],"counts":{"done":%d,"skipped":1,"failed":0},"errors":[]}`, state, end, done)
}

// searchRuns finds one run on each of its first pages, and none on the last one.
func (c *console) searchRuns(w http.ResponseWriter, r *http.Request) {
	at, items, next := 0, []domain.Run{}, ""
	fmt.Sscanf(r.URL.Query().Get("cursor"), "page%d", &at)
	if at < len(c.runs) {
		items, next = c.runs[at:at+1], fmt.Sprintf("page%d", at+1)
	}
	json.NewEncoder(w).Encode(map[string]any{"items": items, "next_cursor": next, "searched_back_to": fmt.Sprintf("2026-03-2%dT00:00:00.000Z", 9-at)})
}

const someRun = "019a9d2c-7b40-8000-8000-0123456789ab"

func problem(w http.ResponseWriter, status int, detail string, fields ...domain.FieldError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "detail": detail, "errors": fields})
}

func (c *console) login(w http.ResponseWriter, r *http.Request) {
	var in struct{ Username, Password string }
	json.NewDecoder(r.Body).Decode(&in)
	if in.Username != "ann" || in.Password != "hunter2 " {
		problem(w, 401, "user or password is wrong")
		return
	}
	fmt.Fprintf(w, `{"token":"sesame","expires_at":"%s"}`, domain.At(time.Now().Add(time.Hour)))
}

func (c *console) listJobs(w http.ResponseWriter, r *http.Request) {
	items := []domain.Job{}
	q := r.URL.Query()
	for _, j := range c.jobs {
		if (q.Get("group") == "" || q.Get("group") == j.Group) && strings.Contains(j.Name, q.Get("q")) {
			items = append(items, j)
		}
	}
	json.NewEncoder(w).Encode(map[string]any{"items": items, "next_cursor": ""})
}

// decodeJob reads a job as strictly as the contract requires.
func decodeJob(w http.ResponseWriter, r *http.Request) (domain.JobSpec, int, bool) {
	in := struct {
		domain.JobSpec
		Version int `json:"version"`
	}{JobSpec: domain.DefaultJobSpec()}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		problem(w, 422, "the body is not valid", domain.FieldError{Location: "body", Message: err.Error()})
		return in.JobSpec, 0, false
	}
	in.Normalize()
	if err := in.Validate(); err != nil {
		problem(w, 422, "the job is not valid", err.(*domain.Error).Fields...)
		return in.JobSpec, 0, false
	}
	return in.JobSpec, in.Version, true
}

func (c *console) createJob(w http.ResponseWriter, r *http.Request) {
	if spec, _, ok := decodeJob(w, r); ok {
		j := domain.Job{ID: domain.JobID(len(c.jobs) + 1), JobSpec: spec, Version: 1}
		c.jobs = append(c.jobs, j)
		w.WriteHeader(201)
		json.NewEncoder(w).Encode(j)
	}
}

func (c *console) replaceJob(w http.ResponseWriter, r *http.Request) {
	c.withJob(w, r, func(j *domain.Job) any {
		spec, version, ok := decodeJob(w, r)
		if !ok {
			return w
		}
		if version != j.Version {
			c.t.Errorf("version %d was sent, the job has %d", version, j.Version)
		}
		j.JobSpec = spec
		j.Version++
		return j
	})
}

func (c *console) withJob(w http.ResponseWriter, r *http.Request, do func(*domain.Job) any) {
	for i := range c.jobs {
		if fmt.Sprint(c.jobs[i].ID) == r.PathValue("id") {
			if out := do(&c.jobs[i]); out != any(w) && out != nil {
				json.NewEncoder(w).Encode(out)
			}
			return
		}
	}
	problem(w, 404, "there is no such job")
}

func (c *console) run(w http.ResponseWriter, r *http.Request) {
	id, _ := domain.ParseRunID(r.PathValue("id"))
	run := domain.Run{ID: id, JobID: 1, Group: "default", JobName: "report", State: domain.Running, Attempt: 1, MaxAttempts: 1}
	if c.polls++; c.polls > 1 {
		run.State = c.ends
		if c.waiting != "" {
			run.Waiting = explain.Sentence(c.waiting)
		}
		if c.ends == domain.Failed {
			run.Reason, run.Message = domain.ReasonHandlerError, "exit status 3\x1b[2J"
		}
	}
	json.NewEncoder(w).Encode(run)
}
