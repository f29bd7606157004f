package batch_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/internal/gateway/batch"
)

// Items that come while a call is on its way are in the next call, in calls of a limited size, and each caller gets the result of the call that had its item.
func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]int
		release := make(chan error)
		b := batch.New(3, nil, 0, func(items []int) (int, error) {
			calls = append(calls, slices.Clone(items))
			return len(calls), <-release
		})
		var mu sync.Mutex
		of := make(map[int]int) // the call that had the item
		failed := make(map[int]bool)
		var callers sync.WaitGroup
		add := func(item int) {
			callers.Go(func() {
				n, err := b.Call(item)
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

// A call has as many items as fit, at least one.
func TestBatchOfSizes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls [][]string
		release := make(chan struct{})
		b := batch.New(5, func(item string) int { return len(item) }, time.Millisecond, func(items []string) (struct{}, error) {
			calls = append(calls, slices.Clone(items))
			<-release
			return struct{}{}, nil
		})
		var callers sync.WaitGroup
		for _, item := range []string{"first", "aa", "bbb", "c", "larger than a call", "dddd", "e"} {
			callers.Go(func() {
				if _, err := b.Call(item); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(release)
		callers.Wait()
		if want := [][]string{{"first"}, {"aa", "bbb"}, {"c"}, {"larger than a call"}, {"dddd", "e"}}; !slices.EqualFunc(calls, want, slices.Equal) {
			t.Errorf("the calls had %q, want %q", calls, want)
		}
	})
}
