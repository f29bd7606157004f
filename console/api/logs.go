package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

const (
	maxStreams     = 400                    // log streams of this process
	maxUserStreams = 100                    // and of one user
	streamPoll     = 250 * time.Millisecond // how often a stream looks for new lines
	streamBeat     = 15 * time.Second       // a comment after so long a silence, so that proxies keep the connection
	streamLifetime = time.Hour              // then the client connects again, and its rights are looked at again
	streamLines    = 1000                   // lines read at once
	writePatience  = 30 * time.Second       // for a client that does not read
)

type logPage struct {
	Lines []domain.LogLine `json:"lines" nullable:"false"`
	Next  int64            `json:"next" doc:"Give it as from to go on"`
	End   bool             `json:"end" doc:"No line will follow"`
}

type logState struct {
	State   domain.State  `json:"state"`
	Reason  domain.Reason `json:"reason"`
	Attempt int           `json:"attempt"`
}

const lineNumbers = "Lines are numbered upward over the whole run: line n of attempt a is number (a-1)*1,000,000,000 + n."

func (a *API) registerLogs() {
	const tag = "Runs"
	register(a, operation{method: "GET", path: "/runs/{id}/log", tag: tag, summary: "Read a run's log", needs: account.Viewer,
		description: lineNumbers + " It can be read while the run goes on. With q or level it is searched: a page then has the lines that fit among " +
			"the next 200,000 at most, may be empty, and says in next where to go on. Colours (ANSI) are kept, and not looked at by q."}, a.log)
	register(a, operation{method: "GET", path: "/runs/{id}/log/stream", tag: tag, summary: "Follow a run's log", needs: account.Viewer,
		description: lineNumbers + " Server-sent events: line (a log line, with its number as id), state (where the run stands: at first and " +
			"whenever it changes), end (no line will follow). With Last-Event-ID it goes on after that line.",
		responses: textResponse("text/event-stream", "The events")}, a.logStream)
	register(a, operation{method: "GET", path: "/runs/{id}/log.txt", tag: tag, summary: "Read a run's whole log as text", needs: account.Viewer,
		responses: textResponse("text/plain", "The log")}, a.logText)
}

func textResponse(contentType, description string) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: description,
		Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: huma.TypeString}}}}}
}

func (a *API) log(ctx context.Context, id auth.Identity, in *struct {
	RunPath
	From  int64    `query:"from" minimum:"-10000" default:"1" doc:"The number of the first line; below zero so many lines from the end"`
	Limit int      `query:"limit" minimum:"1" maximum:"10000" default:"1000"`
	Q     string   `query:"q" maxLength:"256" doc:"Only lines in which this occurs, whatever the case"`
	Level []string `query:"level" enum:"debug,info,warn,error,stdout,stderr" doc:"Only lines of this level, or of several, separated by commas"`
}) (*output[logPage], error) {
	p, err := a.readLog(ctx, id, in.ID, in.From, in.Limit, view.LogFilter{Text: in.Q, Levels: in.Level})
	return &output[logPage]{logPage{p.Lines, p.Next, p.End}}, err
}

// readLog returns a page of the log of a run that the caller may see, NotFound for any other.
func (a *API) readLog(ctx context.Context, id auth.Identity, run domain.RunID, from int64, limit int, filter view.LogFilter) (view.LogPage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	p, err := a.Views.Log(ctx, run, from, limit, filter)
	if err == nil {
		err = may(id, p.State.Group, noRun)
	}
	return p, err
}

// streamed is an answer that is written bit by bit.
type streamed struct{ Body func(huma.Context) }

func (a *API) logText(ctx context.Context, id auth.Identity, in *RunPath) (*streamed, error) {
	first, err := a.readLog(ctx, id, in.ID, 1, streamLines, view.LogFilter{})
	if err != nil {
		return nil, err
	}
	return &streamed{func(hc huma.Context) {
		r, w := humachi.Unwrap(hc)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out := http.NewResponseController(w)
		for p := first; ; {
			var text bytes.Buffer
			for _, l := range p.Lines {
				fmt.Fprintf(&text, "%s %d %-6s %s\n", l.At, l.Attempt, l.Level, l.Text)
			}
			_ = out.SetWriteDeadline(time.Now().Add(writePatience))
			if _, err := w.Write(text.Bytes()); err != nil || len(p.Lines) == 0 {
				return
			}
			if p, err = a.readLog(r.Context(), id, in.ID, p.Next, streamLines, view.LogFilter{}); err != nil {
				// The status has been sent: only a broken connection still tells that something is missing.
				a.Log.WarnContext(r.Context(), "a log could not be read to its end", "error", err, "run_id", in.ID)
				panic(http.ErrAbortHandler)
			}
		}
	}}, nil
}

func (a *API) logStream(ctx context.Context, id auth.Identity, in *struct {
	RunPath
	From        int64  `query:"from" minimum:"-10000" default:"1" doc:"The number of the first line; below zero so many lines from the end"`
	LastEventID string `header:"Last-Event-ID" doc:"The number of the last line that was seen"`
}) (*streamed, error) {
	from := in.From
	if in.LastEventID != "" {
		n, err := strconv.ParseInt(in.LastEventID, 10, 64)
		if err != nil || n < 0 {
			return nil, invalidField("Last-Event-ID", "must be the number of a line")
		}
		from = n + 1
	}
	first, err := a.readLog(ctx, id, in.ID, from, streamLines, view.LogFilter{})
	if err != nil {
		return nil, err
	}
	if !a.streams.take(id.User) {
		p := newProblem(http.StatusServiceUnavailable, "too many log streams are open")
		p.retryAfter = 5 * time.Second
		return nil, p
	}
	return &streamed{func(hc huma.Context) {
		a.metrics.streams.Inc()
		defer func() { a.metrics.streams.Dec(); a.streams.free(id.User) }()
		r, w := humachi.Unwrap(hc)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		s := stream{w: w, out: http.NewResponseController(w)}
		a.follow(r.Context(), &s, id, in.ID, first)
	}}, nil
}

// streamSlots bounds the log streams, so that one user cannot take all of them.
type streamSlots struct {
	mu    sync.Mutex
	all   int
	users map[string]int
}

func (s *streamSlots) take(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == maxStreams || s.users[user] == maxUserStreams {
		return false
	}
	s.all++
	s.users[user]++
	return true
}

func (s *streamSlots) free(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
}

// follow sends pages until the log has ended, the client has gone, or the server closes.
func (a *API) follow(ctx context.Context, s *stream, id auth.Identity, run domain.RunID, p view.LogPage) {
	ctx, cancel := context.WithTimeout(ctx, streamLifetime)
	defer cancel()
	poll := time.NewTicker(streamPoll)
	defer poll.Stop()
	var err error
	for {
		s.page(p)
		if p.End {
			s.event("end", 0, stateOf(p))
		}
		if err := s.flush(); err != nil || p.End {
			return
		}
		if len(p.Lines) < streamLines {
			select {
			case <-poll.C:
			case <-a.closing:
				return
			case <-ctx.Done():
				return
			}
		}
		if p, err = a.readLog(ctx, id, run, p.Next, streamLines, view.LogFilter{}); err != nil {
			// The client connects again and goes on after the last line it saw.
			a.Log.WarnContext(ctx, "a log stream broke off", "error", err, "run_id", run)
			return
		}
	}
}

func stateOf(p view.LogPage) logState {
	return logState{p.State.State, p.State.Reason, p.State.Attempt}
}

// stream writes server-sent events. It is used by one goroutine.
type stream struct {
	w     http.ResponseWriter
	out   *http.ResponseController
	buf   bytes.Buffer
	state logState // the last one sent
	wrote time.Time
}

// page adds the page's lines, and the state if it has changed: after the lines, as it may be the last.
func (s *stream) page(p view.LogPage) {
	for _, l := range p.Lines {
		s.event("line", l.N, l)
	}
	if now := stateOf(p); now != s.state {
		s.state = now
		s.event("state", 0, now)
	}
}

// event adds an event. JSON has no line breaks, so that its data is one line.
func (s *stream) event(name string, id int64, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("api: encode an event: %v", err)) // lines and states always have a JSON form
	}
	if id > 0 {
		fmt.Fprintf(&s.buf, "id: %d\n", id)
	}
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", name, b)
}

// flush sends what was added, or a comment after a long silence.
func (s *stream) flush() error {
	if s.buf.Len() == 0 {
		if time.Since(s.wrote) < streamBeat {
			return nil
		}
		s.buf.WriteString(": still here\n\n")
	}
	_ = s.out.SetWriteDeadline(time.Now().Add(writePatience))
	if _, err := s.buf.WriteTo(s.w); err != nil {
		return err
	}
	s.wrote = time.Now()
	return s.out.Flush()
}
