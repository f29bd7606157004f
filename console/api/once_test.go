package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/idempotency"
)

// memoryKeys keeps idempotency keys in memory, by the rules of idempotency.Store.
type memoryKeys struct {
	mu   sync.Mutex
	kept map[[3]string]*memoryKey
}

type memoryKey struct {
	rights, content string
	answer          *idempotency.Answer
}

func (m *memoryKeys) Begin(_ context.Context, k idempotency.Key) (*idempotency.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.kept[[3]string{k.Actor, k.Route, k.Key}]
	switch {
	case old == nil:
		m.kept[[3]string{k.Actor, k.Route, k.Key}] = &memoryKey{k.Rights, string(k.Content), nil}
		return nil, nil
	case old.rights != k.Rights:
		return nil, domain.NewError(domain.Forbidden, "other rights")
	case old.content != string(k.Content):
		return nil, domain.NewError(domain.Invalid, "another body")
	case old.answer == nil:
		return nil, domain.NewError(domain.Conflict, "in progress")
	}
	return old.answer, nil
}

func (m *memoryKeys) Finish(_ context.Context, k idempotency.Key, a idempotency.Answer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Body = bytes.Clone(a.Body)
	m.kept[[3]string{k.Actor, k.Route, k.Key}].answer = &a
	return nil
}

func (m *memoryKeys) Forget(_ context.Context, k idempotency.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, [3]string{k.Actor, k.Route, k.Key})
	return nil
}

// FuzzOnce sends a request twice, and then from another caller. Whatever key and body it has, it takes effect once for each
// caller if it succeeds, and it can be tried again if it fails.
func FuzzOnce(f *testing.F) {
	f.Add("k", "/api/v1/jobs/1/trigger", "dry_run=true", []byte(`{"param":"a"}`), []byte(`{"run_ids":["x"],"token":"bfg_x"}`), 202, false)
	f.Add("", "/api/v1/jobs", "", []byte(nil), []byte(nil), 201, false)
	f.Add("a\tb", "/", "%zz", []byte("\x00\xff"), []byte("{"), 200, false)
	f.Add("k", "/api/v1/groups", "", []byte("{"), []byte(`{"token":"bfg_secret"}`), 422, false)
	f.Add("k", "/api/v1/groups", "", []byte("{}"), []byte(`{"token":5}`), 204, true)
	f.Fuzz(func(t *testing.T, key, path, query string, body, answered []byte, status int, panics bool) {
		if status < 200 || status > 599 || status == http.StatusNoContent || status == http.StatusNotModified {
			status = http.StatusOK
		}
		o := &once{&memoryKeys{kept: map[[3]string]*memoryKey{}}, slog.New(slog.DiscardHandler)}
		calls := 0
		ask := func(p account.Principal, body []byte) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			r.URL = &url.URL{Path: path, RawQuery: query}
			r.Header["Idempotency-Key"] = []string{key}
			r = r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: p}))
			rec := httptest.NewRecorder()
			defer func() {
				if v := recover(); v != nil && !errors.Is(v.(error), errPlanted) {
					t.Errorf("it panics: %v", v)
				}
			}()
			o.serve(rec, r, func(w http.ResponseWriter, r *http.Request) {
				calls++
				if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, body) {
					t.Errorf("the handler reads %q, %v, not %q", got, err, body)
				}
				w.WriteHeader(status)
				w.Write(answered) //nolint:errcheck // a recorder
				if panics {
					panic(errPlanted)
				}
			})
			return rec
		}
		ann := account.Principal{UserID: 1, User: "ann", Role: account.Operator, Groups: []string{"a", "b"}}
		first, second := ask(ann, body), ask(ann, body)
		switch {
		case key != "" && !rest.ValidKey(key):
			if calls != 0 || first.Code != http.StatusUnprocessableEntity {
				t.Fatalf("a key that is not valid: %d, %d calls", first.Code, calls)
			}
			return
		case key == "" || panics || status >= 300:
			if calls != 2 || len(o.keys.(*memoryKeys).kept) != 0 {
				t.Fatalf("%d calls, kept %v", calls, o.keys.(*memoryKeys).kept)
			}
			return
		}
		if calls != 1 || second.Code != status || second.Header().Get("Idempotency-Replayed") != "true" ||
			!bytes.Equal(second.Body.Bytes(), withoutToken(first.Body.Bytes())) {
			t.Fatalf("%d calls; at first %d %q, then %d %q", calls, first.Code, first.Body, second.Code, second.Body)
		}
		if a := ask(ann, append(bytes.Clone(body), 'x')); a.Code != http.StatusUnprocessableEntity || calls != 1 {
			t.Errorf("another body: %d, %d calls", a.Code, calls)
		}
		swapped := ann
		swapped.Groups = []string{"b", "a"}
		if a := ask(swapped, body); calls != 1 || a.Code != status {
			t.Errorf("the same groups in another order: %d, %d calls", a.Code, calls)
		}
		fewer := ann
		fewer.Groups = []string{"a"}
		if a := ask(fewer, body); calls != 1 || a.Code != http.StatusForbidden {
			t.Errorf("with fewer rights: %d, %d calls", a.Code, calls)
		}
		for n, other := range []account.Principal{{UserID: 2, User: "ann", Role: ann.Role, Groups: ann.Groups},
			{UserID: 1, User: "ann", Role: ann.Role, Groups: ann.Groups, TokenID: 1}, {UserID: 1, User: "ann", Role: ann.Role, Groups: ann.Groups, TokenID: 2}} {
			if ask(other, body); calls != 2+n {
				t.Errorf("caller %d: %d calls", n, calls)
			}
		}
	})
}

var errPlanted = fmt.Errorf("planted: %w", http.ErrAbortHandler)
