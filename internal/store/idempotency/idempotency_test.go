package idempotency_test

import (
	"bytes"
	"crypto/sha256"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/idempotency"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T) (*idempotency.Store, *pgxpool.Pool) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: pgtest.Database(t, store.Migrate)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return idempotency.New(s.Pool(), ""), s.Pool()
}

func TestOneRequestHoldsAKey(t *testing.T) {
	s, _ := open(t)
	k := idempotency.Key{Actor: "a", Route: "r", Key: "k", Content: []byte("body")}
	var wg sync.WaitGroup
	var mu sync.Mutex
	first := 0
	for range 8 {
		wg.Go(func() {
			kept, err := s.Begin(t.Context(), k)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && kept == nil {
				first++
			} else if domain.CodeOf(err) != domain.Conflict {
				t.Errorf("the others get %v, %v", kept, err)
			}
		})
	}
	wg.Wait()
	if first != 1 {
		t.Errorf("%d requests hold the key", first)
	}
	if err := s.Finish(t.Context(), k, idempotency.Answer{Status: 201, Body: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if kept, err := s.Begin(t.Context(), k); err != nil || kept == nil || kept.Status != 201 || string(kept.Body) != "{}" {
		t.Errorf("afterwards: %v, %v", kept, err)
	}
}

// Bodies may hold passwords, so their digests must depend on a secret. Rights decide who gets a stored response.
func TestDigestsAndRights(t *testing.T) {
	s, pool := open(t)
	k := idempotency.Key{Actor: "token/1", Route: "r", Key: "k", Rights: "admin", Content: []byte(`{"password":"hunter2"}`)}
	if kept, err := s.Begin(t.Context(), k); kept != nil || err != nil {
		t.Fatalf("the first request: %v, %v", kept, err)
	}
	if err := s.Finish(t.Context(), k, idempotency.Answer{Status: 200, Body: []byte("secret answer")}); err != nil {
		t.Fatal(err)
	}
	plain := sha256.Sum256(k.Content)
	var stored, random []byte
	if err := pool.QueryRow(t.Context(), `SELECT body_sha256, (SELECT key FROM server_keys) FROM idempotency_keys`).Scan(&stored, &random); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(stored, plain[:]) || len(stored) != 32 || len(random) != 32 {
		t.Errorf("the digest of the body is %x, its key %x", stored, random)
	}
	if kept, err := idempotency.New(pool, "").Begin(t.Context(), k); err != nil || kept == nil {
		t.Errorf("another process does not recognize the request: %v, %v", kept, err)
	}
	if kept, err := idempotency.New(pool, "the server's secret").Begin(t.Context(), k); err == nil {
		t.Errorf("the secret key does not change the digest: %v", kept)
	}
	k.Rights = "operator of a"
	if kept, err := s.Begin(t.Context(), k); domain.CodeOf(err) != domain.Forbidden || kept != nil {
		t.Errorf("with other rights: %v, %v", kept, err)
	}
}

func TestSweep(t *testing.T) {
	s, pool := open(t)
	_, err := pool.Exec(t.Context(),
		`INSERT INTO idempotency_keys VALUES ('a', 'r', 'old', '', 200, '', now() - interval '25 hours'), ('a', 'r', 'new', '', 200, '', now())`)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("Sweep deleted %d rows, want 1 (%v)", n, err)
	}
}
