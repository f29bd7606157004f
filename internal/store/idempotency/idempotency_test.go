package idempotency_test

import (
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
	return idempotency.New(s.Pool()), s.Pool()
}

func TestOneRequestHoldsAKey(t *testing.T) {
	s, _ := open(t)
	k := idempotency.Key{Actor: "a", Route: "r", Key: "k", BodySHA256: []byte("digest")}
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
