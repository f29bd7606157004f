//go:build unix

package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// front stands for a load balancer before gateways: it sends each request to the first gateway that answers. It can also lose callbacks, or their answers.
type front struct {
	*httptest.Server
	gateways []string
	client   *http.Client

	mu            sync.Mutex
	loses         loss
	callbacks     int
	registrations int
}

// loss is what a front does with the first callback.
type loss string

const (
	losesNothing loss = ""
	losesRequest loss = "request" // the gateway does not receive the callback
	losesAnswer  loss = "answer"  // the executor does not receive the answer
)

func newFront(t *testing.T, loses loss, gateways ...string) *front {
	t.Helper()
	f := &front{gateways: gateways, loses: loses, client: &http.Client{Transport: &http.Transport{}}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
		f.client.CloseIdleConnections()
	})
	return f
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	loses := f.note(r.URL.Path)
	if loses == losesRequest {
		panic(http.ErrAbortHandler)
	}
	for _, to := range f.gateways {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, to+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header = r.Header.Clone()
		resp, err := f.client.Do(req)
		if err != nil {
			continue
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			continue
		}
		if loses == losesAnswer {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(answer) // the executor may have gone
		return
	}
	panic(http.ErrAbortHandler) // no gateway answers
}

// note counts a request, and returns what to do with it.
func (f *front) note(path string) loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.HasSuffix(path, "/registry"):
		f.registrations++
	case strings.HasSuffix(path, "/callback"):
		f.callbacks++
		loses := f.loses
		f.loses = losesNothing
		return loses
	}
	return losesNothing
}

// counts returns the number of registrations and of callbacks.
func (f *front) counts() (registrations, callbacks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.registrations, f.callbacks
}
