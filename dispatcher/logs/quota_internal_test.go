package logs

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// quotas is a store that counts the readings of the groups over their quota.
type quotas struct {
	mu    sync.Mutex
	over  []string // guarded by mu
	reads int      // guarded by mu
}

func (q *quotas) GroupsOverLogLimit(context.Context) ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reads++
	return q.over, nil
}

// set sets the groups over their quota.
func (q *quotas) set(over ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = over
}

func (q *quotas) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reads
}

func (q *quotas) StoreLogs(context.Context, []engine.LogChunk) error { return nil }

func (q *quotas) GroupsOf(context.Context, []domain.RunID) (map[domain.RunID]string, error) {
	return nil, nil
}

// The quotas are read again only after lines have come, or while a group is over its quota, because its next day may begin.
func TestQuotasRestWithoutLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &quotas{}
		c := &Consumer{Config: Config{Store: store, Log: slog.New(slog.DiscardHandler)}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.quotaLoop(ctx)
		after := func(what string, want int) {
			t.Helper()
			time.Sleep(4 * quotaPeriod)
			synctest.Wait()
			if n := store.count(); n != want {
				t.Fatalf("%s: the quotas were read %d times, not %d", what, n, want)
			}
		}
		after("without lines", 1)
		c.came.Store(true)
		store.set("g")
		after("after lines, with a group over its quota", 5)
		store.set()
		after("as no group is over its quota", 6)
	})
}
