package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/freeport"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
	"github.com/belfryhq/belfry/internal/xxl/xxltest"
)

var update = flag.Bool("update", false, "record real executors in Java again, with Maven")

// versions are the recorded versions of xxl-job-core.
var versions = []string{"2.4.2", "3.3.2"}

// exchange is a recorded request with its response, and its meaning for this package.
type exchange struct {
	Step     string `json:"step"`
	Path     string `json:"path"`
	Agent    string `json:"agent,omitempty"` // of a request by the executor
	Request  string `json:"request"`
	Response string `json:"response,omitempty"` // of the executor
	Meaning  string `json:"meaning"`
}

// TestRecorded reads what real executors have sent.
func TestRecorded(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			if *update {
				record(t, version)
			}
			recorded, err := os.ReadFile(filepath.Join("testdata", "java-"+version+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var exchanges []exchange
			if err := json.Unmarshal(recorded, &exchanges); err != nil {
				t.Fatal(err)
			}
			for _, e := range exchanges {
				if got := meaning(t, e); got != e.Meaning {
					t.Errorf("%s %s: %s, want %s", e.Step, e.Path, got, e.Meaning)
				}
			}
			if len(exchanges) < 25 {
				t.Errorf("only %d exchanges", len(exchanges))
			}
		})
	}
}

// TestJavaExecutor makes the calls of the recording to a real executor.
func TestJavaExecutor(t *testing.T) {
	if os.Getenv("BELFRY_TEST_LONG") == "" {
		t.Skip("NOT COVERED: a real executor in Java, because it needs Maven; `.ci/long executors` runs it, and TestRecorded has recorded answers")
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { newSession(t, version).play() })
	}
}

func record(t *testing.T, version string) {
	t.Helper()
	exchanges := newSession(t, version).play()
	for i, e := range exchanges {
		exchanges[i].Meaning = meaning(t, e)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(exchanges); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", "java-"+version+".json"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// meaning returns what this package makes of an exchange.
func meaning(t *testing.T, e exchange) string {
	t.Helper()
	if e.Response == "" {
		kind := protocol.KindOf(e.Agent)
		endpoint, _ := protocol.EndpointOf(e.Path)
		if endpoint != protocol.EndpointCallback {
			r, err := protocol.DecodeRegistration([]byte(e.Request))
			if err != nil {
				return err.Error()
			}
			address, err := protocol.ParseAddress(r.Address)
			return fmt.Sprintf("%s %s: app %s, instance %s, %v", kind, endpoint, r.App, address.Instance(), err)
		}
		out := []string{string(kind)}
		for c, err := range protocol.Callbacks(strings.NewReader(e.Request)) {
			if err != nil {
				out = append(out, err.Error())
				continue
			}
			first, _, _ := strings.Cut(c.Message, "\n")
			out = append(out, fmt.Sprintf("%d %s %q", c.LogID-firstLog, c.End, first))
		}
		return strings.Join(out, " ")
	}
	// The recorded answer is sent again, so that the whole client reads it.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, e.Response) }))
	defer server.Close()
	executor, done := dial(t, server.URL, "")
	defer done()
	answer, page := call(t.Context(), executor, e)
	out := fmt.Sprintf("%s %s", answer.Outcome, answer.Text)
	if e.Path == "/log" {
		out += fmt.Sprintf(" %d lines, missing %v, end %v", len(page.Lines), page.Missing, page.AtEnd)
	}
	return out
}

// call makes the call of an exchange.
func call(ctx context.Context, executor *protocol.Executor, e exchange) (protocol.Answer, protocol.LogPage) {
	var r struct {
		protocol.Run
		From int   `json:"fromLineNum"`
		At   int64 `json:"logDateTim"`
	}
	if err := json.Unmarshal([]byte(e.Request), &r); err != nil {
		return protocol.Answer{Message: err.Error()}, protocol.LogPage{}
	}
	switch e.Path {
	case "/beat":
		return executor.Beat(ctx), protocol.LogPage{}
	case "/idleBeat":
		return executor.IdleBeat(ctx, r.JobID), protocol.LogPage{}
	case "/kill":
		return executor.Kill(ctx, r.JobID), protocol.LogPage{}
	case "/run":
		return executor.Run(ctx, r.Run, nil), protocol.LogPage{}
	}
	page, answer := executor.Log(ctx, r.LogID, r.At, r.From)
	return answer, page
}

func dial(t *testing.T, url, token string) (*protocol.Executor, func()) {
	t.Helper()
	address, err := protocol.ParseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	client := protocol.NewClient(protocol.Config{Dial: new(net.Dialer).DialContext})
	return client.Executor(address, "demo-app", token), client.Close
}

// firstLog is the log id before the first one.
const firstLog = 1 << 40

// session is a real executor with an admin that records.
type session struct {
	t         *testing.T
	java      *xxltest.Executor
	executor  *protocol.Executor
	proxy     *httptest.Server
	mu        sync.Mutex
	step      string
	exchanges []exchange
	callbacks map[int64]protocol.Callback
	arrived   chan struct{} // an endpoint was called
	target    string
}

func newSession(t *testing.T, version string) *session {
	t.Helper()
	program := xxltest.Java(t, version)
	s := &session{t: t, step: "start", callbacks: make(map[int64]protocol.Callback), arrived: make(chan struct{}, 1)}
	admin := httptest.NewServer(http.HandlerFunc(s.serveAdmin))
	t.Cleanup(admin.Close)
	port := freeport.Take(t)
	s.target = fmt.Sprintf("http://127.0.0.1:%d", port)
	s.proxy = httptest.NewServer(http.HandlerFunc(s.forward))
	t.Cleanup(s.proxy.Close)
	executor, done := dial(t, s.proxy.URL, "secret")
	t.Cleanup(done)
	s.executor = executor
	s.java = program.Start(t, admin.URL+"/xxl-job-admin", "demo-app", "secret", port)
	s.until("registered", func() bool { return s.saw("/registry") })
	return s
}

// saw reports whether the executor has called a path with this end.
func (s *session) saw(end string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.exchanges, func(e exchange) bool { return strings.HasSuffix(e.Path, end) })
}

// callback returns the callback of a run.
func (s *session) callback(n int64) (c protocol.Callback, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok = s.callbacks[firstLog+n]
	return c, ok
}

func (s *session) serveAdmin(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	endpoint, ok := protocol.EndpointOf(r.URL.Path)
	if !ok || r.Header.Get(protocol.HeaderToken) != "secret" {
		s.t.Errorf("%s with the token %q", r.URL.Path, r.Header.Get(protocol.HeaderToken))
	}
	s.mu.Lock()
	s.exchanges = append(s.exchanges, exchange{Step: s.step, Path: r.URL.Path, Agent: r.UserAgent(), Request: string(body)})
	if endpoint == protocol.EndpointCallback {
		for c, err := range protocol.Callbacks(bytes.NewReader(body)) {
			if err != nil {
				s.t.Errorf("%s: %v", body, err)
			}
			s.callbacks[c.LogID] = c
		}
	}
	s.mu.Unlock()
	w.Write(protocol.AppendReply(nil, protocol.CodeOK, ""))
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// forward records what goes to the executor.
func (s *session) forward(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, s.target+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return
	}
	request.Header = r.Header.Clone()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer response.Body.Close()
	reply, _ := io.ReadAll(response.Body)
	s.mu.Lock()
	s.exchanges = append(s.exchanges, exchange{Step: s.step, Path: r.URL.Path, Request: string(body), Response: string(reply)})
	s.mu.Unlock()
	w.WriteHeader(response.StatusCode)
	w.Write(reply)
}

// until waits until a condition holds. It is checked after each call of the executor.
func (s *session) until(what string, holds func() bool) {
	s.t.Helper()
	timeout := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-s.arrived:
		case <-time.After(50 * time.Millisecond):
		case <-timeout:
			s.t.Fatalf("not %s", what)
		}
	}
}

func (s *session) begin(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
}

// want checks the answer to a call.
func (s *session) want(outcome protocol.Outcome, text protocol.Text, got protocol.Answer) {
	s.t.Helper()
	if got.Outcome != outcome || got.Text != text {
		s.t.Errorf("%s: %+v, want %s %s", s.step, got, outcome, text)
	}
}

// run starts a run whose log id is firstLog + n.
func (s *session) run(n, job int64, handler, param string) protocol.Answer {
	return s.executor.Run(s.t.Context(), protocol.Run{JobID: job, Handler: handler, Param: param, Block: protocol.BlockSerial, LogID: firstLog + n, LogTimeMS: logTime,
		GlueType: protocol.GlueBean, ShardTotal: 1}, nil)
}

// logTime is the instant that all runs carry: 1 March 2026.
const logTime = 1772352000000

// ended waits for the callback of a run.
func (s *session) ended(n int64, end protocol.End) {
	s.t.Helper()
	s.until(fmt.Sprintf("%s: callback of %d", s.step, n), func() bool { _, ok := s.callback(n); return ok })
	if c, _ := s.callback(n); c.End != end {
		s.t.Errorf("%s: callback %+v, want %s", s.step, c, end)
	}
}

// play makes all calls, and returns what was recorded.
func (s *session) play() []exchange {
	ctx := s.t.Context()
	s.begin("idle")
	s.want(protocol.Taken, "", s.executor.Beat(ctx))
	s.want(protocol.Taken, "", s.executor.IdleBeat(ctx, 1))
	s.want(protocol.Taken, "", s.executor.Kill(ctx, 1))

	s.begin("success")
	s.want(protocol.Taken, "", s.run(1, 1, "demo", "2026-02"))
	s.ended(1, protocol.EndSucceeded)
	page, answer := s.executor.Log(ctx, firstLog+1, logTime, 1)
	s.want(protocol.Taken, "", answer)
	if len(page.Lines) < 3 || !slices.ContainsFunc(page.Lines, func(l string) bool { return strings.HasSuffix(l, "job 1 param 2026-02 shard 0/1") }) {
		s.t.Errorf("the log is %q", page.Lines)
	}
	if page, answer = s.executor.Log(ctx, firstLog+1, logTime, 1000); answer.Outcome != protocol.Taken || len(page.Lines) != 0 || page.Missing {
		s.t.Errorf("after the end of the log: %+v, %+v", page, answer)
	}
	if page, answer = s.executor.Log(ctx, firstLog+999, logTime, 1); answer.Outcome != protocol.Taken || !page.Missing {
		s.t.Errorf("the log of another run: %+v, %+v", page, answer)
	}

	s.begin("failure")
	s.want(protocol.Taken, "", s.run(2, 2, "fail", ""))
	s.ended(2, protocol.EndFailed)
	s.want(protocol.Taken, "", s.run(3, 3, "throw", ""))
	s.ended(3, protocol.EndFailed)

	s.begin("refused")
	s.want(protocol.Refused, protocol.TextNoHandler, s.run(4, 4, "none", ""))
	unknown := protocol.Run{JobID: 5, LogID: firstLog + 5, LogTimeMS: logTime, Block: protocol.BlockSerial, GlueType: "GLUE_X"}
	s.want(protocol.Refused, protocol.TextNoGlue, s.executor.Run(ctx, unknown, nil))
	stranger, done := dial(s.t, s.proxy.URL, "wrong")
	defer done()
	s.want(protocol.Refused, protocol.TextToken, stranger.Beat(ctx))

	s.begin("scripts")
	shell := protocol.Run{JobID: 6, LogID: firstLog + 6, LogTimeMS: logTime, Block: protocol.BlockSerial, GlueType: "GLUE_SHELL", GlueSource: "echo hello; exit 0\n", GlueUpdatedMS: logTime}
	s.want(protocol.Taken, "", s.executor.Run(ctx, shell, nil))
	s.ended(6, protocol.EndSucceeded)
	groovy := protocol.Run{JobID: 7, LogID: firstLog + 7, LogTimeMS: logTime, Block: protocol.BlockSerial, GlueType: "GLUE_GROOVY", GlueSource: "class {", GlueUpdatedMS: logTime}
	s.want(protocol.Refused, protocol.TextScript, s.executor.Run(ctx, groovy, nil))

	s.begin("timeout")
	slow := protocol.Run{JobID: 8, Handler: "sleep", Param: "60", TimeoutS: 1, LogID: firstLog + 8, LogTimeMS: logTime, Block: protocol.BlockSerial, GlueType: protocol.GlueBean}
	s.want(protocol.Taken, "", s.executor.Run(ctx, slow, nil))
	s.ended(8, protocol.EndTimedOut)

	s.begin("kill")
	s.want(protocol.Taken, "", s.run(9, 9, "sleep", "60"))
	s.want(protocol.Refused, protocol.TextBusy, s.executor.IdleBeat(ctx, 9))
	s.until("a run that has started", func() bool {
		page, _ := s.executor.Log(ctx, firstLog+9, logTime, 1)
		return len(page.Lines) > 0
	})
	s.want(protocol.Taken, "", s.run(10, 9, "sleep", "60"))
	s.want(protocol.Taken, "", s.run(10, 9, "sleep", "60")) // it is queued, and the executor says so
	s.want(protocol.Taken, "", s.executor.Kill(ctx, 9))
	s.ended(9, protocol.EndKilled)
	s.ended(10, protocol.EndNotExecuted)

	s.begin("stop")
	s.java.Signal(syscall.SIGTERM)
	s.until("removed", func() bool { return s.saw("/registryRemove") })
	<-s.java.Ended()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.exchanges)
}
