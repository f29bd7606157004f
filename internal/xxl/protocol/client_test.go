package protocol

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(stubVariable) != "" {
		stub()
		return
	}
	goleak.VerifyTestMain(m)
}

// executor returns an Executor for a server.
func executor(t *testing.T, url string) *Executor {
	t.Helper()
	client := NewClient(Config{Dial: new(net.Dialer).DialContext})
	t.Cleanup(client.Close)
	address, err := ParseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	return client.Executor(address, "app", "secret")
}

// serve returns an Executor whose answers a function gives.
func serve(t *testing.T, handle http.HandlerFunc) *Executor {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return executor(t, server.URL)
}

// answering returns an Executor that answers each call with a status and a body.
func answering(t *testing.T, status int, body string) *Executor {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

func TestAnswersOfRun(t *testing.T) {
	failed := func(text string) string { return fmt.Sprintf(`{"code":500,"msg":%q,"content":null}`, text) }
	tests := []struct {
		name   string
		status int
		body   string
		want   Outcome
		text   Text
	}{
		{"taken", 200, `{"code":200,"msg":null,"content":null}`, Taken, ""},
		{"taken, code in quotes", 200, ` {"code":"200"}`, Taken, ""},
		{"queued by Python", 200, `{"code":200,"msg":"job 1 is in queue, logId 2 ranked 1th [max=30]..."}`, Taken, ""},
		{"no handler, Java", 200, failed("job handler [x] not found."), Refused, TextNoHandler},
		{"no handler, Python", 200, failed("handler x not found."), Refused, TextNoHandler},
		{"no handler, Go", 200, `[{"logId":1,"logDateTim":0,"executeResult":{"code":500,"msg":"Task not registered"},"handleCode":500,"handleMsg":"Task not registered"}]`, Refused, TextNoHandler},
		{"busy, Go", 200, `[{"logId":1,"executeResult":{"code":500,"msg":"There are tasks running"},"handleCode":500,"handleMsg":"There are tasks running"}]`, Refused, TextBusy},
		{"busy, Java", 200, failed("block strategy effect：Discard Later"), Refused, TextBusy},
		{"busy, Python", 200, failed("Job 1 is SERIAL, queue length more than 30. Job RunData(…) discard!"), Refused, TextBusy},
		{"no such glue", 200, failed("glueType[GLUE_X] is not valid."), Refused, TextNoGlue},
		{"token", 200, failed("The access token is wrong."), Refused, TextToken},
		{"repeated", 200, failed("repeate trigger job, logId:1"), Taken, ""},
		{"repeated, 3.4", 200, failed("repeat trigger job, logId:1"), Taken, ""},
		{"another text", 200, failed("java.lang.OutOfMemoryError"), Unknown, ""},
		{"another code", 200, `{"code":503}`, Unknown, ""},
		{"a successful list", 200, `[{"logId":1,"handleCode":200}]`, Unknown, ""},
		{"an empty list", 200, `[]`, Unknown, ""},
		{"no JSON", 200, `<html>`, Unknown, ""},
		{"no body", 200, ``, Unknown, ""},
		{"no code", 200, `{}`, Unknown, ""},
		{"a body that is too long", 200, `{"code":200,"msg":"` + strings.Repeat("x", maxReply) + `"}`, Unknown, ""},
		{"unauthorized", 401, ``, Refused, TextToken},
		{"no such path", 404, `no`, Refused, TextNoPath},
		{"method", 405, ``, Refused, TextInvalid},
		{"too large", 413, ``, Refused, TextInvalid},
		{"a redirect", 302, ``, Unknown, ""},
		{"a proxy", 502, `{"code":200}`, Unknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := answering(t, tt.status, tt.body).Run(t.Context(), Run{GlueType: GlueBean}, nil)
			if got.Outcome != tt.want || got.Text != tt.text || len(got.Message) > messageLength+100 || got.Outcome == Unknown && got.Message == "" {
				t.Errorf("%+v", got)
			}
		})
	}
	if got := answering(t, 200, failed("startup failed: unexpected token")).Run(t.Context(), Run{GlueType: "GLUE_GROOVY"}, nil); got.Outcome != Refused || got.Text != TextScript {
		t.Errorf("a Groovy script with a fault: %+v", got)
	}
}

func TestRequests(t *testing.T) {
	type call struct {
		path, token, app, kind string
		body                   map[string]any
	}
	var calls []call
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c := call{path: r.URL.Path, token: r.Header.Get(HeaderToken), app: r.Header.Get(HeaderApp), kind: r.Header.Get("Content-Type")}
		if err := json.NewDecoder(r.Body).Decode(&c.body); err != nil {
			t.Error(err)
		}
		calls = append(calls, c)
		io.WriteString(w, `{"code":200,"data":{"fromLineNum":3,"toLineNum":4,"logContent":"a\nb\n","isEnd":false},"content":null}`)
	})
	e.Beat(t.Context())
	e.IdleBeat(t.Context(), 7)
	e.Run(t.Context(), Run{JobID: 7, LogID: 8}, nil)
	e.Kill(t.Context(), 7)
	page, answer := e.Log(t.Context(), 8, 9, 3)
	if answer.Outcome != Taken || len(page.Lines) != 2 || page.Lines[1] != "b" || page.AtEnd || page.Missing {
		t.Errorf("the log: %+v, %+v", page, answer)
	}
	want := []string{"/beat map[]", "/idleBeat map[jobId:7]", "/run ", "/kill map[jobId:7]", "/log map[fromLineNum:3 logDateTim:9 logDateTime:9 logId:8]"}
	for i, c := range calls {
		if c.token != "secret" || c.app != "app" || !strings.HasPrefix(c.kind, "application/json") || !strings.HasPrefix(fmt.Sprint(c.path, " ", c.body), want[i]) {
			t.Errorf("call %d: %+v, want %s", i, c, want[i])
		}
	}
	if len(calls) != len(want) {
		t.Errorf("%d calls", len(calls))
	}

	sent := ""
	none := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent = fmt.Sprint(r.Header[http.CanonicalHeaderKey(HeaderToken)])
	})
	none.token = ""
	if none.Beat(t.Context()); sent != "[]" {
		t.Errorf("an empty token is sent as %s", sent)
	}
}

// An executor of 3.5 serves /trigger. The choice is kept, and other calls are not repeated.
func TestRunPath(t *testing.T) {
	var paths []string
	e := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		if r.URL.Path != "/trigger" {
			fmt.Fprintf(w, `{"code":500,"msg":"invalid request, uri-mapping(%s) not found."}`, r.URL.Path)
			return
		}
		io.WriteString(w, `{"code":200}`)
	})
	for range 2 {
		if a := e.Run(t.Context(), Run{}, nil); a.Outcome != Taken {
			t.Errorf("%+v", a)
		}
	}
	if a := e.Kill(t.Context(), 1); a.Outcome != Refused || a.Text != TextNoPath {
		t.Errorf("%+v", a)
	}
	if got := strings.Join(paths, " "); got != "/run /trigger /trigger /kill" {
		t.Errorf("calls: %s", got)
	}
}

func TestLogPages(t *testing.T) {
	tests := []struct {
		name, content string
		from          int
		lines         []string
		missing, end  bool
	}{
		{"Java", `{"fromLineNum":1,"toLineNum":2,"logContent":"a\n\nb\n","isEnd":false}`, 1, []string{"a", "", "b"}, false, false},
		{"nothing new up to 3.2", `{"fromLineNum":3,"toLineNum":2,"logContent":"","isEnd":false}`, 3, nil, false, false},
		{"nothing new from 3.3", `{"fromLineNum":3,"toLineNum":0,"logContent":"","isEnd":false}`, 3, nil, false, false},
		{"no file", `{"fromLineNum":1,"toLineNum":0,"logContent":"readLog fail, logFile not exists","isEnd":true}`, 1, nil, true, false},
		{"Python, no log", `{"fromLineNum":1,"toLineNum":0,"logContent":"No such logid logs.","isEnd":true}`, 1, nil, true, false},
		{"Python, all lines up to now", `{"fromLineNum":5,"toLineNum":5,"logContent":"e","isEnd":true}`, 5, []string{"e"}, false, true},
		{"Go, repeated", `{"fromLineNum":3,"toLineNum":2,"logContent":"x","isEnd":true}`, 3, nil, false, true},
		{"no payload", `null`, 1, nil, true, false},
		{"bad bytes", `{"logContent":"a\u0000\r\nb"}`, 1, []string{"a\ufffd", "b"}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page, a := answering(t, 200, `{"code":200,"content":`+tt.content+`}`).Log(t.Context(), 1, 2, tt.from)
			if a.Outcome != Taken || strings.Join(page.Lines, "|") != strings.Join(tt.lines, "|") || len(page.Lines) != len(tt.lines) || page.Missing != tt.missing || page.AtEnd != tt.end {
				t.Errorf("%+v, %+v", page, a)
			}
		})
	}
	if _, a := answering(t, 200, `{"code":200,"content":[]}`).Log(t.Context(), 1, 2, 1); a.Outcome != Unknown {
		t.Errorf("a log that is a list: %+v", a)
	}
	if _, a := answering(t, 200, `{"code":200,"content":{"logContent":"`+strings.Repeat("x", maxLogReply)+`"}}`).Log(t.Context(), 1, 2, 1); a.Outcome != Unknown {
		t.Errorf("a log that is too long: %+v", a)
	}
}

// raw starts a server that gives each connection to a function.
func raw(t *testing.T, handle func(c net.Conn)) *Executor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return executor(t, "http://"+l.Addr().String())
}

// request reads one request, and reports whether there was one.
func request(r *bufio.Reader) bool {
	q, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, q.Body)
	return err == nil
}

const okay = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"code\":200}"

func TestNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if a := executor(t, "http://"+l.Addr().String()).Run(t.Context(), Run{}, nil); a.Outcome != NotSent || a.Message == "" {
		t.Errorf("nobody listens: %+v", a)
	}
	if a := executor(t, "http://no-such-host.invalid:9").Run(t.Context(), Run{}, nil); a.Outcome != NotSent {
		t.Errorf("a name that does not exist: %+v", a)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a := answering(t, 200, `{"code":200}`).Run(ended, Run{}, nil); a.Outcome != NotSent {
		t.Errorf("an ended context: %+v", a)
	}
}

// The check comes before the first byte, on new and on kept connections.
func TestCheckBeforeTheFirstByte(t *testing.T) {
	var requests atomic.Int32
	e := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		io.WriteString(w, `{"code":200}`)
	})
	for range 2 {
		if a := e.Run(t.Context(), Run{}, func() bool { return false }); a.Outcome != NotSent {
			t.Errorf("forbidden: %+v", a)
		}
		if a := e.Run(t.Context(), Run{}, func() bool { return true }); a.Outcome != Taken {
			t.Errorf("allowed: %+v", a)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests arrived, want 2", n)
	}
}

// After a byte was written, no failure is taken for a run that was not started.
func TestUnknown(t *testing.T) {
	for name, answer := range map[string]string{
		"closed without an answer": "", "half a status line": "HTTP/1.1 2", "half a body": "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"code\":200}", "no HTTP": "hello\r\n\r\n",
	} {
		var requests atomic.Int32
		e := raw(t, func(c net.Conn) {
			if request(bufio.NewReader(c)) {
				requests.Add(1)
				io.WriteString(c, answer)
			}
		})
		if a := e.Run(t.Context(), Run{}, nil); a.Outcome != Unknown || a.Message == "" {
			t.Errorf("%s: %+v", name, a)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	e := raw(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		request(r)
		cancel()
		request(r) // until the client closes
	})
	if a := e.Run(ctx, Run{}, nil); a.Outcome != Unknown {
		t.Errorf("the caller stopped waiting: %+v", a)
	}
}

// An executor that dies between two calls resets its kept connection. The second call was written, so it is not sent again.
func TestKeptConnectionBreaks(t *testing.T) {
	var requests atomic.Int32
	e := raw(t, func(c net.Conn) {
		for r := bufio.NewReader(c); request(r); io.WriteString(c, okay) {
			if requests.Add(1) == 2 {
				return
			}
		}
	})
	if a := e.Run(t.Context(), Run{}, nil); a.Outcome != Taken {
		t.Fatalf("%+v", a)
	}
	if a := e.Run(t.Context(), Run{}, nil); a.Outcome != Unknown {
		t.Errorf("the connection broke after the request: %+v", a)
	}
	if a := e.Run(t.Context(), Run{}, nil); a.Outcome != Taken {
		t.Errorf("a new connection: %+v", a)
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("%d requests arrived, want 3", n)
	}
}

// A call whose outcome is NotSent never arrives, however its end and its connection interleave.
func TestNotSentIsExact(t *testing.T) {
	var arrived, mayHaveArrived atomic.Int32
	t.Cleanup(func() { // after all connections have ended
		if a, m := arrived.Load(), mayHaveArrived.Load(); a > m {
			t.Errorf("%d calls arrived, and only %d may have", a, m)
		}
	})
	e := raw(t, func(c net.Conn) {
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			arrived.Add(1)
		}
	})
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range i % 60 {
				runtime.Gosched()
			}
			cancel()
		}()
		if a := e.Run(ctx, Run{}, nil); a.Outcome != NotSent {
			mayHaveArrived.Add(1)
		}
	}
	e.client.Close()
}
