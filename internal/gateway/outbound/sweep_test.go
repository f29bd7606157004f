package outbound

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// sweeper has sends, of which some are old.
type sweeper struct {
	Records
	old, after, calls atomic.Int64
}

func (s *sweeper) Sweep(_ context.Context, after int64, limit int) (next, deleted int64, err error) {
	s.calls.Add(1)
	if !s.after.CompareAndSwap(after, after+int64(limit)) {
		return 0, 0, fmt.Errorf("the sweep continues after %d, not %d", after, s.after.Load())
	}
	if next = s.after.Load(); next >= s.old.Load() {
		s.after.Store(0)
		return 0, 0, nil
	}
	return next, int64(limit), nil
}

// One sweep looks at all old sends, part after part, however many there are, and makes one call if there are none.
func TestSweepLooksAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		records := &sweeper{}
		records.old.Store(20*sweepRows + 1)
		f := &Fleet{Config: Config{Records: records}}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { f.sweep(ctx) })
		lifecycle.Pause(ctx, sweepEvery+1)
		synctest.Wait()
		if calls := records.calls.Load(); calls != 21 {
			t.Errorf("the sweep made %d calls", calls)
		}
		records.old.Store(0)
		lifecycle.Pause(ctx, sweepEvery)
		synctest.Wait()
		if calls := records.calls.Load(); calls != 22 {
			t.Errorf("without old sends, a sweep made %d calls", calls-21)
		}
		cancel()
		done.Wait()
	})
}
