package logs

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// quotas is a store that counts the readings of the groups over their quota. Only the bubble of a test uses it.
type quotas struct {
	over  []string
	reads int
}

func (q *quotas) GroupsOverLogLimit(context.Context) ([]string, error) {
	q.reads++
	return q.over, nil
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
			if store.reads != want {
				t.Fatalf("%s: the quotas were read %d times, not %d", what, store.reads, want)
			}
		}
		after("without lines", 1)
		c.came.Store(true)
		store.over = []string{"g"}
		after("after lines, with a group over its quota", 5)
		store.over = nil
		after("as no group is over its quota", 6)
	})
}
