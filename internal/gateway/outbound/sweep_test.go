package outbound

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// sweeper has old sends, and deletes some of them with each call.
type sweeper struct {
	Records
	left, calls atomic.Int64
}

func (s *sweeper) Sweep(_ context.Context, limit int) (int64, error) {
	s.calls.Add(1)
	n := min(s.left.Load(), int64(limit))
	s.left.Add(-n)
	return n, nil
}

// One sweep deletes all old sends, however many there are, and makes few calls if there are none.
func TestSweepDeletesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		records := &sweeper{}
		records.left.Store(20*sweepRows + 1)
		f := &Fleet{Config: Config{Records: records}}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { f.sweep(ctx) })
		lifecycle.Pause(ctx, sweepEvery+1)
		synctest.Wait()
		if left, calls := records.left.Load(), records.calls.Load(); left != 0 || calls != 21 {
			t.Errorf("%d sends are left after %d calls", left, calls)
		}
		lifecycle.Pause(ctx, sweepEvery)
		synctest.Wait()
		if calls := records.calls.Load(); calls != 22 {
			t.Errorf("without old sends, a sweep made %d calls", calls-21)
		}
		cancel()
		done.Wait()
	})
}
