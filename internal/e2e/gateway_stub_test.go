//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// stubExecutor stands for an executor of XXL-JOB whose handlers succeed at once. It costs less CPU than a real one.
type stubExecutor struct {
	*httptest.Server
	gateways []string
	client   *http.Client
	ctx      context.Context //nolint:containedctx // ends with the test
	calls    sync.WaitGroup
}

// newStubExecutor starts an executor of the group of the tests that registers every 10 s.
func newStubExecutor(t *testing.T, gateways ...string) *stubExecutor {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := &stubExecutor{gateways: gateways, client: &http.Client{Transport: &http.Transport{}}, ctx: ctx}
	e.Server = httptest.NewServer(e)
	e.calls.Go(func() {
		for {
			e.call("registry", fmt.Sprintf(`{"registryGroup":"EXECUTOR","registryKey":%q,"registryValue":%q}`, xxlApp, e.URL))
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		e.CloseClientConnections()
		e.Close()
		e.calls.Wait()
		e.client.CloseIdleConnections()
	})
	return e
}

// ServeHTTP implements http.Handler.
func (e *stubExecutor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		LogID int64 `json:"logId"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == "/run" {
		e.calls.Go(func() {
			e.call("callback", fmt.Sprintf(`[{"logId":%d,"logDateTim":1,"handleCode":200,"handleMsg":"done"}]`, body.LogID))
		})
	}
	fmt.Fprint(w, `{"code":200}`)
}

// call calls the gateways in turn until one of them takes the request.
func (e *stubExecutor) call(endpoint, body string) {
	for i := 0; ; i++ {
		if e.callOnce(e.gateways[i%len(e.gateways)]+"/api/"+endpoint, body) {
			return
		}
		select {
		case <-e.ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (e *stubExecutor) callOnce(url, body string) bool {
	ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header["XXL-JOB-ACCESS-TOKEN"] = []string{xxlToken}
	resp, err := e.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var reply struct{ Code int }
	data, err := io.ReadAll(resp.Body)
	return err == nil && json.Unmarshal(data, &reply) == nil && reply.Code == 200
}
