package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/logchunk"
)

// running inserts a running run of a job in the group default, and returns its id.
func (w *world) running() domain.RunID {
	w.t.Helper()
	return w.runningIn("default")
}

func (w *world) runningIn(group string) domain.RunID {
	w.t.Helper()
	id := domain.NewRunID(time.Now())
	w.exec(`INSERT INTO runs_live (id, job_id, job_version, group_name, cause, state, due_at, started_at, instance)
	        VALUES ($1, 1, 1, $2, 'manual', 'running', now(), now(), 'one')`, id, group)
	return id
}

func (w *world) logLines(id domain.RunID, attempt int, first int64, texts ...string) {
	w.t.Helper()
	lines := make([]domain.LogLine, len(texts))
	for i, text := range texts {
		lines[i] = domain.LogLine{N: first + int64(i), At: domain.At(time.Unix(0, 0)), Level: "info", Text: text}
	}
	w.exec(`INSERT INTO run_logs (run_id, attempt, first_line, last_line, lines) VALUES ($1, $2, $3, $4, $5)`,
		id, attempt, first, first+int64(len(texts))-1, logchunk.Encode(lines))
}

// end makes the run final, with lastLine lines in its last attempt.
func (w *world) end(id domain.RunID, lastLine int64) {
	w.t.Helper()
	w.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt,
	        due_at, created_at, started_at, finished_at, last_line, instance, route)
	        SELECT id, 1, 1, 'default', 'manual', 'failed', 'handler_error', 'no', '', attempt, due_at, created_at, started_at, now(), $2, 'one', ''
	          FROM runs_live WHERE id = $1`, id, lastLine)
	w.exec(`DELETE FROM runs_live WHERE id = $1`, id)
}

func TestLog(t *testing.T) {
	w := newWorld(t)
	id := w.running()
	path := "/api/v1/runs/" + id.String()
	w.rows([]row{{"before the first line", "GET", path + "/log", "", 200, map[string]any{"lines": "[]", "next": 1, "end": false}, nil}})
	w.logLines(id, 1, 1, "one", "two\nlines", "three")
	w.rows([]row{
		{"a first page", "GET", path + "/log?limit=2", "", 200, map[string]any{"lines.0.n": 1, "lines.0.text": "one", "lines.0.attempt": 1,
			"lines.0.level": "info", "lines.0.at": "1970-01-01T00:00:00.000Z", "lines.2": nil, "next": 3, "end": false}, nil},
		{"the next", "GET", path + "/log?from=3&limit=2", "", 200, map[string]any{"lines.0.n": 3, "next": 4, "end": false}, nil},
	})
	w.end(id, 3)
	w.rows([]row{
		{"the end", "GET", path + "/log?from=4", "", 200, map[string]any{"lines": "[]", "next": 4, "end": true}, nil},
		{"the run", "GET", path, "", 200, map[string]any{"state": "failed", "attempts.0.attempt": 1, "attempts.0.outcome": "failed", "attempts.0.instance": "one"}, nil},
		{"retry", "POST", path + "/retry", "", 409, nil, nil}, // its job is gone
	})
	w.rows([]row{
		{"from the end", "GET", path + "/log?from=-2", "", 200, map[string]any{"lines.0.n": 2, "lines.1.n": 3, "next": 4, "end": true}, nil},
		{"from before the beginning", "GET", path + "/log?from=-10000&limit=1", "", 200, map[string]any{"lines.0.n": 1, "next": 2}, nil},
		{"searched", "GET", path + "/log?q=THREE", "", 200, map[string]any{"lines.0.n": 3, "lines.1": nil, "next": 4, "end": true}, nil},
		{"by level", "GET", path + "/log?level=warn,error", "", 200, map[string]any{"lines": "[]", "next": 4, "end": true}, nil},
		{"too far from the end", "GET", path + "/log?from=-10001", "", 422, map[string]any{"errors.0.location": "from"}, nil},
		{"no such level", "GET", path + "/log?level=loud", "", 422, map[string]any{"errors.0.location": "level[0]"}, nil},
		{"too long a text", "GET", path + "/log?q=" + strings.Repeat("x", 257), "", 422, map[string]any{"errors.0.location": "q"}, nil},
		{"a stream too far from the end", "GET", path + "/log/stream?from=-10001", "", 422, map[string]any{"errors.0.location": "from"}, nil},
	})
	text := w.must(200, "GET", path+"/log.txt", "")
	if want := "1970-01-01T00:00:00.000Z 1 info   one\n"; !strings.HasPrefix(text.body, want) || !strings.HasSuffix(text.body, "three\n") ||
		!strings.HasPrefix(text.header.Get("Content-Type"), "text/plain") {
		t.Errorf("the text is %q", text.body)
	}
}

// event is one server-sent event.
type event struct{ id, name, data string }

// follow opens a stream on a real server. The channel receives its events, and is closed when the stream ends.
func (w *world) follow(ctx context.Context, url string, headers ...string) (*http.Response, <-chan event) {
	w.t.Helper()
	return w.followAs(ctx, w.admin, url, headers...)
}

func (w *world) followAs(ctx context.Context, token, url string, headers ...string) (*http.Response, <-chan event) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	events := make(chan event, 100)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		var e event
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			name, value, _ := strings.Cut(s.Text(), ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				events <- e
				e = event{}
			}
		}
	}()
	return resp, events
}

func take(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(patience):
		t.Fatal("no event arrived")
		return event{}
	}
}

func TestLogStream(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.api)
	defer server.Close()
	id := w.running()
	url := server.URL + "/api/v1/runs/" + id.String() + "/log/stream"
	w.logLines(id, 1, 1, "one", "two")
	resp, events := w.follow(t.Context(), url)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream is %d %v", resp.StatusCode, resp.Header)
	}
	line := func(e event, n int64, text string) {
		t.Helper()
		var l domain.LogLine
		if err := json.Unmarshal([]byte(e.data), &l); err != nil || e.name != "line" || e.id != fmt.Sprint(n) || l.N != n || l.Text != text {
			t.Errorf("the event is %+v, want line %d %q", e, n, text)
		}
	}
	line(take(t, events), 1, "one")
	line(take(t, events), 2, "two")
	if e := take(t, events); e.name != "state" || !strings.Contains(e.data, `"state":"running"`) {
		t.Errorf("then came %+v", e)
	}
	w.logLines(id, 1, 3, "three")
	line(take(t, events), 3, "three")
	w.exec(`UPDATE runs_live SET attempt = 2`)
	if e := take(t, events); e.name != "state" || !strings.Contains(e.data, `"attempt":2`) {
		t.Errorf("then came %+v", e)
	}
	w.logLines(id, 2, 1, "again")
	line(take(t, events), 1_000_000_001, "again")
	w.end(id, 1)
	if e := take(t, events); e.name != "state" || !strings.Contains(e.data, `"failed","reason":"handler_error"`) {
		t.Errorf("then came %+v", e)
	}
	if e := take(t, events); e.name != "end" {
		t.Errorf("then came %+v", e)
	}
	if e, more := <-events; more {
		t.Errorf("after the end came %+v", e)
	}
	// A client that lost its connection continues after the last line that it received.
	_, events = w.follow(t.Context(), url, "Last-Event-ID", "3")
	line(take(t, events), 1_000_000_001, "again")
}

func TestLogStreamsEnd(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.api)
	defer server.Close()
	id := w.running()
	url := server.URL + "/api/v1/runs/" + id.String() + "/log/stream"
	streams := func() string {
		for line := range strings.Lines(w.must(200, "GET", "/metrics", "").body) {
			if n, ok := strings.CutPrefix(line, "belfry_http_streams "); ok {
				return strings.TrimSpace(n)
			}
		}
		return ""
	}
	ctx, leave := context.WithCancel(t.Context())
	_, gone := w.follow(ctx, url)
	_, stays := w.follow(t.Context(), url)
	take(t, gone)
	take(t, stays)
	if n := streams(); n != "2" {
		t.Errorf("%s streams are open", n)
	}
	leave()
	eventually(t, "the end of the stream whose client has disconnected", func() bool { return streams() == "1" })
	w.api.CloseStreams()
	for range stays {
		t.Error("an event arrived after the close")
	}
	eventually(t, "the end of all streams", func() bool { return streams() == "0" })
}

// endless adds a line to the log at each write, so that the answer ends only when the reader loses its rights.
type endless struct {
	http.ResponseWriter
	more func()
}

func (e endless) Write(p []byte) (int, error) {
	e.more()
	return e.ResponseWriter.Write(p)
}

// The text of a long log ends when its reader loses the rights, with a broken connection that shows that lines are missing.
func TestLogTextEndsWithRights(t *testing.T) {
	w := newWorld(t)
	id := w.running()
	w.logLines(id, 1, 1, "line")
	made := w.must(201, "POST", "/api/v1/tokens", `{"name":"ci"}`)
	deadline, lines := time.Now().Add(patience), int64(1)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/runs/"+id.String()+"/log.txt", nil)
	r.Header.Set("Authorization", "Bearer "+made.field("token").(string))
	defer func() {
		if v := recover(); v != http.ErrAbortHandler { //nolint:errorlint // the value that net/http compares
			t.Errorf("after %d lines the answer ended with %v", lines, v)
		}
	}()
	w.api.ServeHTTP(endless{httptest.NewRecorder(), func() {
		if lines == 1 {
			w.must(204, "DELETE", fmt.Sprintf("/api/v1/tokens/%v", made.field("id")), "")
		}
		if time.Now().Before(deadline) {
			lines++
			w.logLines(id, 1, lines, "line")
		}
	}}, r)
}
