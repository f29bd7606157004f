package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/executor"
	"github.com/belfryhq/belfry/executor/executortest"
	"github.com/belfryhq/belfry/executor/handlers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEcho(t *testing.T) {
	res := executortest.RunFunc(t.Context(), handlers.Echo, executor.RunInfo{Param: "hello"})
	if res.Err != nil || res.Output != "hello" || res.Text() != "hello\n" {
		t.Errorf("%+v", res)
	}
	res = executortest.RunFunc(t.Context(), handlers.Echo, executor.RunInfo{Param: strings.Repeat("x", executor.MaxOutput+1)})
	if res.Err != nil || res.Output != "" {
		t.Errorf("a param beyond the bound of an output: %v", res.Err)
	}
}

func TestSleep(t *testing.T) {
	for param, want := range map[string]time.Duration{"2s": 2 * time.Second, `"3s"`: 3 * time.Second, "0.5": 500 * time.Millisecond, "": time.Second} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			res := executortest.RunFunc(t.Context(), handlers.Sleep, executor.RunInfo{Param: param})
			if got := time.Since(begin); res.Err != nil || got != want {
				t.Errorf("%q slept %v, want %v (%v)", param, got, want, res.Err)
			}
		})
	}
	for _, param := range []string{"soon", "-1", "-2s", "{}", "1e300"} {
		if res := executortest.RunFunc(t.Context(), handlers.Sleep, executor.RunInfo{Param: param}); res.Err == nil || !res.Permanent {
			t.Errorf("%q: %v, want a permanent error", param, res.Err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		res := executortest.RunFunc(t.Context(), handlers.Sleep, executor.RunInfo{Param: "1h", Timeout: time.Second})
		if !errors.Is(res.Err, executor.ErrTimeout) {
			t.Errorf("cancelled: %v", res.Err)
		}
	})
}

func TestHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/big":
			_, _ = w.Write([]byte(strings.Repeat("é", executor.MaxOutput)))
		case "/hang":
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Header.Get("X-A"), r.Header.Get("Content-Type"), data)
		}
	}))
	defer srv.Close()
	get := func(param string) executortest.Result {
		return executortest.RunFunc(t.Context(), handlers.HTTP, executor.RunInfo{Param: strings.ReplaceAll(param, "URL", srv.URL)})
	}
	tests := []struct{ name, param, output, err string }{
		{"plain", `{"url": "URL/"}`, "GET   ", ""},
		{"body text", `{"url": "URL/", "body": "text", "headers": {"X-A": "b"}}`, "POST b  text", ""},
		{"body JSON", `{"url": "URL/", "method": "put", "body": {"a": 1}}`, `PUT  application/json {"a": 1}`, ""},
		{"unexpected", `{"url": "URL/", "expect": [201, "400-499"]}`, "GET   ", "the response is 200 OK, expected 201, 400-499"},
		{"expected", `{"url": "URL/busy", "expect": 503}`, "", ""},
		{"range", `{"url": "URL/busy", "expect": "500-599"}`, "", ""},
		{"busy", `{"url": "URL/busy"}`, "", "the response is 503 Service Unavailable, expected 200-299"},
	}
	for _, tt := range tests {
		res := get(tt.param)
		if errText(res.Err) != tt.err || res.Output != tt.output || res.Permanent {
			t.Errorf("%s: output %q, error %v", tt.name, res.Output, res.Err)
		}
	}
	if res := get(`{"url": "URL/busy"}`); res.RetryAfter != 7*time.Second {
		t.Errorf("Retry-After: %v", res.RetryAfter)
	}
	if res := get(`{"url": "URL/big"}`); res.Err != nil || len(res.Output) > executor.MaxOutput || len(res.Output) < executor.MaxOutput-4 {
		t.Errorf("a big response: %d bytes, %v", len(res.Output), res.Err)
	}
	if res := get(`{"url": "URL/hang", "timeout": "20ms"}`); !errors.Is(res.Err, context.DeadlineExceeded) || res.Permanent {
		t.Errorf("timeout: %v", res.Err)
	}
	for _, param := range []string{"", "x", "[]", `{"url": "ftp://h"}`, `{"url": "/x"}`, `{"URLL": ""}`, `{"url": "URL", "expect": "abc"}`,
		`{"url": "URL", "expect": 99}`, `{"url": "URL", "timeout": "soon"}`, `{"url": "URL", "method": "A B"}`} {
		if res := get(param); res.Err == nil || !res.Permanent {
			t.Errorf("param %s: %v, want a permanent error", param, res.Err)
		}
	}
	if res := get(`{"url": "http://user:hush@127.0.0.1:1/"}`); res.Err == nil || strings.Contains(res.Err.Error(), "hush") {
		t.Errorf("the error contains the password: %v", res.Err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
