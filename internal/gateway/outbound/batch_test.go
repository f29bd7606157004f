package outbound

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// Items that come while a call is on its way are in the next call, in calls of a limited size, and each caller gets the result of the call that had its item.
func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		release := make(chan error)
		b := batch[int, int]{most: 3, do: func(items []int) (int, error) {
			calls = append(calls, slices.Clone(items))
			return len(calls), <-release
		}}
		var mu sync.Mutex
		of := make(map[int]int) // the call that had the item
		failed := make(map[int]bool)
		var callers sync.WaitGroup
		add := func(item int) {
			callers.Go(func() {
				n, err := b.call(item)
				mu.Lock()
				defer mu.Unlock()
				of[item], failed[item] = n, err != nil
			})
			synctest.Wait()
		}
		for item := range 5 {
			add(item)
		}
		release <- nil
		release <- errors.New("refused")
		synctest.Wait()
		release <- nil
		callers.Wait()
		add(5)
		release <- nil
		callers.Wait()
		if want := [][]int{{0}, {1, 2, 3}, {4}, {5}}; !slices.EqualFunc(calls, want, slices.Equal) {
			t.Errorf("the calls had %v, want %v", calls, want)
		}
		for item, call := range []int{1, 2, 2, 2, 3, 4} {
			if of[item] != call || failed[item] != (call == 2) {
				t.Errorf("item %d has the result of call %d, failed: %t", item, of[item], failed[item])
			}
		}
	})
}

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
