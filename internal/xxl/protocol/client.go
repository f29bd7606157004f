package protocol

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Outcome is what is known of a call. The package comment defines the outcomes.
type Outcome string

// The outcomes.
const (
	NotSent Outcome = "not_sent"
	Refused Outcome = "refused"
	Taken   Outcome = "taken"
	Unknown Outcome = "unknown"
)

// Answer is the result of a call.
type Answer struct {
	Outcome Outcome
	Text    Text   // why the executor refused
	Message string // for people: the text of the executor, or the error
}

// Config holds the settings of a Client.
type Config struct {
	// Dial resolves the name in address and makes a connection, if that is allowed. It is required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	TLS  *tls.Config // nil: the system's certificates
	// MaxConns is the maximum number of connections to one host and port. 0 means 4. Java executors serve all calls with one thread.
	MaxConns int
}

// The limits of a Client. Executors close idle connections after 90 s, and proxies often after 60 s.
const (
	idleTimeout   = 50 * time.Second
	tlsTimeout    = 5 * time.Second
	maxHeader     = 64 << 10
	maxReply      = 256 << 10
	maxLogReply   = 16 << 20
	maxIdleTotal  = 4096
	defaultConns  = 4
	messageLength = 1 << 10
)

// Client calls executors. It is safe for concurrent use.
type Client struct{ http *http.Client }

// NewClient returns a Client. It uses no proxy, because only the dialer decides what may be reached.
func NewClient(c Config) *Client {
	if c.MaxConns == 0 {
		c.MaxConns = defaultConns
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 resends requests by itself, and has many on one connection
	return &Client{&http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				made, err := c.Dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return &conn{Conn: made}, nil
			},
			TLSClientConfig: c.TLS, TLSHandshakeTimeout: tlsTimeout, Protocols: protocols, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
			MaxConnsPerHost: c.MaxConns, MaxIdleConnsPerHost: c.MaxConns, MaxIdleConns: maxIdleTotal, IdleConnTimeout: idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes the idle connections. Calls in progress continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Executor returns the executor at an address. app and token are sent with each call; an empty token is not sent.
func (c *Client) Executor(address Address, app, token string) *Executor {
	return &Executor{client: c, base: address.String(), app: app, token: token}
}

// Executor calls one executor. It is safe for concurrent use. The context of a call limits its time.
type Executor struct {
	client           *Client
	base, app, token string
	trigger          atomic.Bool // the executor serves /trigger and not /run
}

// Beat asks whether the executor serves requests.
func (e *Executor) Beat(ctx context.Context) Answer {
	answer, _ := e.call(ctx, "/beat", struct{}{}, maxReply, nil)
	return answer
}

// IdleBeat asks whether the executor has no run of a job: Taken means idle, Refused with TextBusy busy. Idle is no evidence that a run has
// ended: handlers that ignore a kill or a timeout still run.
func (e *Executor) IdleBeat(ctx context.Context, jobID int64) Answer {
	answer, _ := e.call(ctx, "/idleBeat", map[string]int64{"jobId": jobID}, maxReply, nil)
	return answer
}

// Kill asks the executor to end all runs of a job, also those in its queue. Only a callback confirms that a run has ended.
func (e *Executor) Kill(ctx context.Context, jobID int64) Answer {
	answer, _ := e.call(ctx, "/kill", map[string]int64{"jobId": jobID}, maxReply, nil)
	return answer
}

// Run starts a run. may is called directly before the first byte of the request is written; if it returns false, the outcome is NotSent. It may
// be called on another goroutine, and twice if the executor does not know the first path. It must not block.
func (e *Executor) Run(ctx context.Context, r Run, may func() bool) Answer {
	paths := [...]string{"/run", "/trigger"}
	if e.trigger.Load() {
		paths[0], paths[1] = paths[1], paths[0]
	}
	first, _ := e.call(ctx, paths[0], r, maxReply, may)
	if first.Outcome == Refused && first.Text == TextNoPath {
		second, _ := e.call(ctx, paths[1], r, maxReply, may)
		if second.Outcome == Refused && second.Text == TextNoPath {
			return first
		}
		if second.Outcome != NotSent {
			e.trigger.Store(paths[1] == "/trigger")
		}
		return judgeRun(second, r)
	}
	return judgeRun(first, r)
}

// judgeRun applies what differs between /run and the other calls: an error text that is not known does not prove that nothing was started.
func judgeRun(a Answer, r Run) Answer {
	if a.Outcome != Refused {
		return a
	}
	switch a.Text {
	case TextOther:
		if r.GlueType == "GLUE_GROOVY" { // Java compiles the script before it queues the run, and answers with the text of the compiler
			a.Text = TextScript
			return a
		}
		a.Outcome = Unknown
	case textRepeated: // a proxy sent the request again
		a.Outcome, a.Text = Taken, TextOther
	case TextBusy, TextNoHandler, TextNoGlue, TextToken, TextNoPath, TextInvalid, TextScript:
	}
	return a
}

// LogPage is a part of a run's log.
type LogPage struct {
	Lines []string // the last one may be half; the executor adds its end later
	// Missing means that the executor has no log of the run: not yet, not any more, or never.
	Missing bool
	// AtEnd is the executor's claim that the log ends here. It is not reliable: pyxxl says so at the present end of a run's log, executor-go always.
	AtEnd bool
}

// Log reads the log of a run from a line, counted from 1. logTimeMS is Run.LogTimeMS, by which executors find the file. A log of more
// than 16 MiB from that line cannot be read: the outcome is Unknown.
func (e *Executor) Log(ctx context.Context, logID, logTimeMS int64, from int) (LogPage, Answer) {
	request := map[string]int64{"logId": logID, "logDateTim": logTimeMS, "logDateTime": logTimeMS, "fromLineNum": int64(from)}
	answer, payload := e.call(ctx, "/log", request, maxLogReply, nil)
	if answer.Outcome != Taken {
		return LogPage{}, answer
	}
	page, err := logPage(payload, from)
	if err != nil {
		return LogPage{}, Answer{Outcome: Unknown, Message: "the answer to /log: " + err.Error()}
	}
	return page, answer
}

// call makes one call. payload is the content of an answer that is Taken.
func (e *Executor) call(ctx context.Context, path string, body any, limit int64, may func() bool) (answer Answer, payload json.RawMessage) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return Answer{Outcome: NotSent, Message: "encode the request: " + err.Error()}, nil
	}
	a := &attempt{may: may}
	request, err := http.NewRequestWithContext(a.traced(ctx), http.MethodPost, e.base+path, bytes.NewReader(encoded))
	if err != nil {
		return Answer{Outcome: NotSent, Message: err.Error()}, nil
	}
	request.Header["Content-Type"] = []string{"application/json;charset=UTF-8"}
	request.Header["User-Agent"] = []string{"belfry"}
	request.Header[HeaderApp] = []string{e.app} // in the spelling that the other side knows
	if e.token != "" {
		request.Header[HeaderToken] = []string{e.token}
	}
	response, err := e.client.http.Do(request)
	if err != nil {
		return a.failed(err), nil
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return a.failed(err), nil
	case int64(len(reply)) > limit:
		return Answer{Outcome: Unknown, Message: fmt.Sprintf("the answer has more than %d bytes", limit)}, nil
	}
	return judge(response.StatusCode, reply)
}

// failed returns the answer to a call that ended with an error.
func (a *attempt) failed(err error) Answer {
	if a.sent() {
		return Answer{Outcome: Unknown, Message: clip(err.Error())}
	}
	return Answer{Outcome: NotSent, Message: clip(err.Error())}
}

func clip(s string) string { return Clip(s, messageLength) }
