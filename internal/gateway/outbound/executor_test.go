package outbound

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// executor stands for an executor of XXL-JOB. It takes every run, unless answer says otherwise.
type executor struct {
	*httptest.Server
	mu    sync.Mutex
	runs  map[int64]int // how often each log id was sent
	kills map[int64]int // by job id
	sent  []protocol.Run
	// answer returns the answer to a request, or "" for the usual one. It is called without the lock.
	answer func(path string, body []byte) string
	log    string
	page   int  // lines in an answer to /log; 0: all
	idle   bool // it denies having runs
}

func newExecutor(t *testing.T) *executor {
	t.Helper()
	e := &executor{runs: map[int64]int{}, kills: map[int64]int{}, log: "one\ntwo\nthree"}
	e.Server = httptest.NewServer(e)
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// ServeHTTP implements http.Handler.
func (e *executor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		protocol.Run
		From int `json:"fromLineNum"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		panic(err)
	}
	e.mu.Lock()
	answer, reply := e.answer, `{"code":200}`
	switch r.URL.Path {
	case "/run":
		e.runs[body.LogID]++
		e.sent = append(e.sent, body.Run)
	case "/kill":
		e.kills[body.JobID]++
	case "/idleBeat":
		if !e.idle {
			reply = `{"code":500,"msg":"job thread is running or has trigger queue."}`
		}
	case "/log":
		lines := strings.Split(e.log, "\n")
		from, to := min(body.From-1, len(lines)), len(lines)
		if e.page > 0 {
			to = min(to, from+e.page)
		}
		data, err := json.Marshal(map[string]any{"fromLineNum": body.From, "toLineNum": to, "logContent": strings.Join(lines[from:to], "\n"), "isEnd": false})
		if err != nil {
			panic(err)
		}
		reply = fmt.Sprintf(`{"code":200,"data":%s}`, data)
	}
	e.mu.Unlock()
	if answer != nil {
		encoded, err := json.Marshal(body.Run)
		if err != nil {
			panic(err)
		}
		if other := answer(r.URL.Path, encoded); other != "" {
			reply = other
		}
	}
	fmt.Fprint(w, reply)
}

func (e *executor) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

func (e *executor) count(f func() int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return f()
}

// requests returns how many runs the executor received.
func (e *executor) requests() int { return e.count(func() int { return len(e.sent) }) }
