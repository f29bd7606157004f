package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// The times of a stub, like those of an executor in Java.
const (
	stubRegisterEvery = 30 * time.Second
	stubCallTime      = 3 * time.Second
	stubTryAgain      = time.Second // Java waits for 30 s, which would measure only the wait
)

// stubAgent is how an executor in Java names itself.
const stubAgent = "Java/17.0.13"

// mostArrivals bounds the memory of a stub. Later requests are only counted.
const mostArrivals = 1_000_000

// stubLog is a run's log. An executor in Java writes such lines for a handler that does nothing.
const stubLog = "2026-01-01 00:00:00 [job.thread.JobThread] ----------- job execute start -----------\n" +
	"2026-01-01 00:00:00 [job.thread.JobThread] ----------- job execute end(finish) -----------\n"

// stub is a process with several executors that speak the protocol of XXL-JOB as version 3.3 of the executor in Java does. Their handlers
// do nothing.
type stub struct {
	gateway string
	client  *http.Client

	mu       sync.Mutex
	arrivals arrivals // guarded by mu
}

// arrivals are the requests that start runs: their log ids, and the Unix times of their arrival in microseconds.
type arrivals struct {
	LogIDs []int64 `json:"log_ids"`
	AtUS   []int64 `json:"at_us"`
	Left   int     `json:"left"` // requests that are not in the lists
}

// runStub runs executors until ctx ends.
func (p *part) runStub(ctx context.Context) error {
	s := &stub{gateway: p.order.Gateway, client: &http.Client{Timeout: stubCallTime, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * p.order.Stubs}}}
	p.take = s.take
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range p.order.Stubs {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("open an address for an executor: %w", err)
		}
		e := &stubExecutor{stub: s, url: "http://" + ln.Addr().String() + "/", wake: make(chan struct{}, 1)}
		server := &http.Server{Handler: e.routes(), ReadHeaderTimeout: stubCallTime}
		running.Go(func() {
			if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				logger(os.Stderr).Error("an executor has ended", "err", err)
			}
		})
		running.Go(func() { e.callBack(ctx) })
		defer server.Close()
		if err := e.register(ctx, "/api/registry"); err != nil {
			return err
		}
		running.Go(func() { e.stayRegistered(ctx) })
	}
	p.ready()
	<-ctx.Done()
	return nil
}

// take returns the arrivals since the last call.
func (s *stub) take() (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken, err := json.Marshal(s.arrivals)
	s.arrivals = arrivals{}
	return taken, err
}

func (s *stub) arrived(logID int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.arrivals.LogIDs) == mostArrivals {
		s.arrivals.Left++
		return
	}
	s.arrivals.LogIDs, s.arrivals.AtUS = append(s.arrivals.LogIDs, logID), append(s.arrivals.AtUS, at.UnixMicro())
}

// call sends a request to the gateway. An answer without the code of success is an error.
func (s *stub) call(ctx context.Context, path string, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.gateway+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json;charset=UTF-8")
	request.Header.Set("User-Agent", stubAgent) // an executor in Go gets only one run of a handler at a time
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Code int    `json:"code"`
		Msg  string `json:"msg"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer to %s: %w", path, err)
	}
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection is used again
	if answer.Code != http.StatusOK {
		return fmt.Errorf("the gateway refused %s: %s", path, answer.Msg)
	}
	return nil
}

// stubExecutor is one executor of a stub.
type stubExecutor struct {
	*stub
	url  string
	wake chan struct{} // capacity 1

	waiting sync.Mutex
	ends    []stubCallback // guarded by waiting
}

// stubCallback is the end of a run, as an executor reports it.
type stubCallback struct {
	LogID     int64   `json:"logId"`
	LogTimeMS int64   `json:"logDateTim"`
	Code      int     `json:"handleCode"`
	Message   *string `json:"handleMsg"`
}

// register calls an endpoint for registrations.
func (e *stubExecutor) register(ctx context.Context, path string) error {
	return e.call(ctx, path, map[string]string{"registryGroup": "EXECUTOR", "registryKey": gatewayGroup, "registryValue": e.url})
}

func (e *stubExecutor) stayRegistered(ctx context.Context) {
	for lifecycle.Pause(ctx, stubRegisterEvery) {
		_ = e.register(ctx, "/api/registry") // the next one comes soon
	}
}

// routes serves the calls of the gateway.
func (e *stubExecutor) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", e.run)
	mux.HandleFunc("POST /beat", func(w http.ResponseWriter, _ *http.Request) { stubAnswer(w, nil) })
	mux.HandleFunc("POST /idleBeat", func(w http.ResponseWriter, _ *http.Request) { stubAnswer(w, nil) })
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, _ *http.Request) { stubAnswer(w, nil) })
	mux.HandleFunc("POST /log", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			From int `json:"fromLineNum"`
		}
		if json.NewDecoder(r.Body).Decode(&in) != nil || in.From > 1 {
			stubAnswer(w, map[string]any{"fromLineNum": in.From, "toLineNum": 0, "logContent": "", "isEnd": false})
			return
		}
		stubAnswer(w, map[string]any{"fromLineNum": 1, "toLineNum": 2, "logContent": stubLog, "isEnd": false})
	})
	return mux
}

// run starts a run. Its handler does nothing, so the run has ended.
func (e *stubExecutor) run(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var in struct {
		LogID     int64 `json:"logId"`
		LogTimeMS int64 `json:"logDateTime"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.arrived(in.LogID, at)
	e.waiting.Lock()
	e.ends = append(e.ends, stubCallback{LogID: in.LogID, LogTimeMS: in.LogTimeMS, Code: http.StatusOK})
	e.waiting.Unlock()
	lifecycle.Signal(e.wake)
	stubAnswer(w, nil)
}

// callBack reports ended runs, one batch after the other. A batch has all runs that have ended since the last one.
func (e *stubExecutor) callBack(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		}
		e.waiting.Lock()
		batch := e.ends
		e.ends = nil
		e.waiting.Unlock()
		for len(batch) > 0 && e.call(ctx, "/api/callback", batch) != nil {
			if !lifecycle.Pause(ctx, stubTryAgain) {
				return
			}
		}
	}
}

// stubAnswer answers a call with success.
func stubAnswer(w http.ResponseWriter, data any) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"code": http.StatusOK, "msg": nil, "data": data}) // the gateway sees that the answer ends early
}
