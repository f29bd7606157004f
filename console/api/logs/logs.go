// Package logs is the REST API of run logs: by page, as text, and as a stream.
package logs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/stream"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/view"
)

// API serves the logs of runs. All fields must be set.
type API struct {
	Store   Store
	Streams *stream.Streams
	Log     *slog.Logger
}

// Store reads logs.
type Store interface {
	Log(ctx context.Context, id domain.RunID, from int64, limit int, filter view.LogFilter) (view.LogPage, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Runs"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/{id}/log", Tag: tag, Summary: "Read a run's log", Needs: account.Viewer,
		Description: lineNumbers + " The log can be read during the run. With q or level, a page has the matching lines among at most the next 200,000 lines. " +
			"The page can be empty; the next page starts at line next. The text keeps ANSI colours, and q ignores them."}, a.page)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/{id}/log/stream", Tag: tag, Summary: "Follow a run's log", Needs: account.Viewer,
		Description: lineNumbers + " Server-sent events. line: a log line, with its number as id. state: the state of the run, at first and " +
			"after each change. end: no more lines follow. With Last-Event-ID the stream continues after that line.",
		Responses: stream.Response(r, map[string]reflect.Type{
			"line": reflect.TypeFor[domain.LogLine](), "state": reflect.TypeFor[logState](), "end": reflect.TypeFor[logState]()})}, a.stream)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/runs/{id}/log.txt", Tag: tag, Summary: "Read a run's whole log as text", Needs: account.Viewer,
		Responses: rest.TextResponse("text/plain", "The log")}, a.text)
}

const (
	streamPoll  = 250 * time.Millisecond // how often a stream looks for new lines
	streamLines = 1000                   // lines read at once
)

type logPage struct {
	Lines []domain.LogLine `json:"lines" nullable:"false"`
	Next  int64            `json:"next" doc:"The value of from for the next page"`
	End   bool             `json:"end" doc:"Whether no more lines follow"`
}

type logState struct {
	State   domain.State  `json:"state"`
	Reason  domain.Reason `json:"reason"`
	Attempt int           `json:"attempt"`
}

const lineNumbers = "Line numbers increase over the whole run: line n of attempt a has the number (a-1)*1,000,000,000 + n."

func (a *API) page(ctx context.Context, id auth.Identity, in *struct {
	rest.RunPath
	From  int64    `query:"from" minimum:"-10000" default:"1" doc:"The number of the first line. A negative number counts lines from the end"`
	Limit int      `query:"limit" minimum:"1" maximum:"10000" default:"1000"`
	Q     string   `query:"q" maxLength:"256" doc:"Only lines that contain this text; case is ignored"`
	Level []string `query:"level" enum:"debug,info,warn,error,stdout,stderr" doc:"Only lines of this level, or of several levels separated by commas"`
}) (*rest.Output[logPage], error) {
	p, err := a.read(ctx, id, in.ID, in.From, in.Limit, view.LogFilter{Text: in.Q, Levels: in.Level})
	return rest.Answer(logPage{p.Lines, p.Next, p.End}), err
}

// read returns a page of the log of a run that the caller may see, NotFound for any other.
func (a *API) read(ctx context.Context, id auth.Identity, run domain.RunID, from int64, limit int, filter view.LogFilter) (view.LogPage, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.RequestTimeout)
	defer cancel()
	p, err := a.Store.Log(ctx, run, from, limit, filter)
	if err == nil {
		err = visible.Check(id, p.State.Group, visible.NoRun)
	}
	return p, err
}

func (a *API) text(ctx context.Context, id auth.Identity, in *rest.RunPath) (*rest.Streamed, error) {
	first, err := a.read(ctx, id, in.ID, 1, streamLines, view.LogFilter{})
	if err != nil {
		return nil, err
	}
	return &rest.Streamed{Body: func(hc huma.Context) {
		r, w := humachi.Unwrap(hc)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out := http.NewResponseController(w)
		ctx, stop := a.Streams.Watch(r.Context(), id)
		defer stop()
		for p := first; ; {
			var text bytes.Buffer
			for _, l := range p.Lines {
				fmt.Fprintf(&text, "%s %d %-6s %s\n", l.At, l.Attempt, l.Level, l.Text)
			}
			_ = out.SetWriteDeadline(time.Now().Add(stream.WritePatience))
			if _, err := w.Write(text.Bytes()); err != nil || len(p.Lines) == 0 {
				return
			}
			if p, err = a.read(ctx, id, in.ID, p.Next, streamLines, view.LogFilter{}); err != nil {
				// The status has been sent already. Only a broken connection can show that lines are missing.
				a.Log.WarnContext(r.Context(), "cannot read a run's log to its end, closing the connection", "err", err, "run_id", in.ID)
				panic(http.ErrAbortHandler)
			}
		}
	}}, nil
}

func (a *API) stream(ctx context.Context, id auth.Identity, in *struct {
	rest.RunPath
	From        int64  `query:"from" minimum:"-10000" default:"1" doc:"The number of the first line. A negative number counts lines from the end"`
	LastEventID string `header:"Last-Event-ID" doc:"The number of the last received line"`
}) (*rest.Streamed, error) {
	from := in.From
	if in.LastEventID != "" {
		n, err := strconv.ParseInt(in.LastEventID, 10, 64)
		if err != nil || n < 0 {
			return nil, problem.Invalid("Last-Event-ID", "must be the number of a line")
		}
		from = n + 1
	}
	first, err := a.read(ctx, id, in.ID, from, streamLines, view.LogFilter{})
	if err != nil {
		return nil, err
	}
	return a.Streams.Open(id, func(ctx context.Context, s *stream.Stream) { a.follow(ctx, s, id, in.ID, first) })
}

// follow sends pages until the log ends, the client disconnects, or the server closes.
func (a *API) follow(ctx context.Context, s *stream.Stream, id auth.Identity, run domain.RunID, p view.LogPage) {
	var state logState // the last one sent
	poll := time.NewTicker(streamPoll)
	defer poll.Stop()
	var err error
	for {
		state = sendPage(s, p, state)
		if p.End {
			s.Event("end", 0, stateOf(p))
		}
		if err := s.Flush(); err != nil || p.End {
			return
		}
		if len(p.Lines) < streamLines {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return
			}
		}
		if p, err = a.read(ctx, id, run, p.Next, streamLines, view.LogFilter{}); err != nil {
			// The client connects again and continues after the last line that it received.
			a.Log.WarnContext(ctx, "cannot read a run's log, ending its stream", "err", err, "run_id", run)
			return
		}
	}
}

func stateOf(p view.LogPage) logState {
	return logState{p.State.State, p.State.Reason, p.State.Attempt}
}

// sendPage adds the lines of a page, and then the state if it differs from before. The state comes last, because it may be
// the final one.
func sendPage(s *stream.Stream, p view.LogPage, before logState) logState {
	for _, l := range p.Lines {
		s.Event("line", l.N, l)
	}
	now := stateOf(p)
	if now != before {
		s.Event("state", 0, now)
	}
	return now
}
