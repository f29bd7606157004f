package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/internal/domain"
)

// LogPage is a part of a run's log. End means that no line follows Next.
type LogPage struct {
	Lines []domain.LogLine `json:"lines"`
	Next  int64            `json:"next"`
	End   bool             `json:"end"`
}

// Log returns up to limit lines of a run's log, starting with line number from. Lines count from 1; a negative number counts
// from the end.
func (c *Client) Log(ctx context.Context, id domain.RunID, from int64, limit int) (LogPage, error) {
	return c.SearchLog(ctx, id, from, limit, LogFilter{})
}

// LogFilter selects lines; an empty field selects all.
type LogFilter struct {
	Text   string // a part of the line, ignoring case
	Levels string // separated by commas
}

// SearchLog is like Log, but returns only matching lines. An empty page may be followed by others: see its Next.
func (c *Client) SearchLog(ctx context.Context, id domain.RunID, from int64, limit int, f LogFilter) (LogPage, error) {
	q := values("from", strconv.FormatInt(from, 10), "limit", strconv.Itoa(limit), "q", f.Text, "level", f.Levels)
	return answer[LogPage](ctx, c, http.MethodGet, "/runs/"+id.String()+"/log", q, nil)
}

// maxEventBytes bounds one event of the stream. A log line is far below it.
const maxEventBytes = 4 << 20

// brokenStreams is the number of connections in a row that may break without a new line before FollowLog returns an error.
const brokenStreams = 5

// errEnded is the ordinary end of a stream.
var errEnded = errors.New("the log has ended")

// FollowLog calls line for each line of a run's log as it arrives, starting with line number from, and returns when the log has
// ended. If the connection breaks, FollowLog connects again and does not repeat lines. If line returns an error, FollowLog
// returns it.
func (c *Client) FollowLog(ctx context.Context, id domain.RunID, from int64, line func(domain.LogLine) error) error {
	next := from
	backoff := firstBackoff
	for broken := 0; ; {
		before := next
		err := c.streamLog(ctx, id, &next, line)
		switch {
		case errors.Is(err, errEnded):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, new(*brokenError)) && !transient(err), errors.As(err, new(*callbackError)):
			return err
		}
		if broken++; next > before {
			broken, backoff = 0, firstBackoff
		}
		if broken >= brokenStreams {
			return err
		}
		if !sleep(ctx, backoff) {
			return ctx.Err()
		}
		backoff = min(2*backoff, longestBackoff)
	}
}

// brokenError means that a stream ended before the log.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return fmt.Sprintf("the log stream broke off: %v", e.err) }
func (e *brokenError) Unwrap() error { return e.err }

// callbackError is an error that the callback returned.
type callbackError struct{ err error }

func (e *callbackError) Error() string { return e.err.Error() }
func (e *callbackError) Unwrap() error { return e.err }

func (c *Client) streamLog(ctx context.Context, id domain.RunID, next *int64, line func(domain.LogLine) error) error {
	q := url.Values{"from": {strconv.FormatInt(*next, 10)}}
	resp, err := c.send(ctx, http.MethodGet, "/runs/"+id.String()+"/log/stream", q, nil, "text/event-stream")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = readEvents(resp.Body, func(event, data string) error {
		switch event {
		case "end":
			return errEnded
		case "line":
			var l domain.LogLine
			if err := json.Unmarshal([]byte(data), &l); err != nil {
				return fmt.Errorf("decode a log line: %w", err)
			}
			if *next > 0 && l.N < *next {
				return nil // sent before the connection broke
			}
			*next = l.N + 1
			if err := line(l); err != nil {
				return &callbackError{err}
			}
		}
		return nil // the event state, and events of newer servers
	})
	if errors.Is(err, errEnded) || errors.As(err, new(*callbackError)) {
		return err
	}
	return &brokenError{err}
}

// readEvents reads server-sent events and calls handle for each. It returns the first error of handle or of reading. At the end
// of the stream it returns io.ErrUnexpectedEOF, because a server announces the end of a log by an event.
func readEvents(r io.Reader, handle func(event, data string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxEventBytes)
	var event string
	var data strings.Builder
	for s.Scan() {
		text := strings.TrimSuffix(s.Text(), "\r")
		if text == "" {
			if event != "" || data.Len() > 0 {
				if err := handle(event, strings.TrimSuffix(data.String(), "\n")); err != nil {
					return err
				}
			}
			event = ""
			data.Reset()
			continue
		}
		field, value, _ := strings.Cut(text, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event = value
		case "data":
			if data.Len()+len(value) > maxEventBytes {
				return bufio.ErrTooLong
			}
			data.WriteString(value + "\n")
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
