package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A call that does not end delays no call for other groups, and its group is not idle.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLanes()
		stuck := make(chan struct{})
		l.Do(t.Context(), []string{"a", "b"}, func() error { <-stuck; return errors.New("of a") })
		done := 0
		for range 3 * maxLanes {
			l.Do(t.Context(), []string{"c"}, func() error { done++; return nil })
			synctest.Wait()
		}
		if done != 3*maxLanes || l.Idle("a") || l.Idle("b") || !l.Idle("c") || l.Err() != nil {
			t.Errorf("%d calls have ended, idle: a %v, b %v, c %v", done, l.Idle("a"), l.Idle("b"), l.Idle("c"))
		}
		close(stuck)
		l.Wait()
		if err := l.Err(); !l.Idle("a") || err == nil || err.Error() != "of a" {
			t.Errorf("idle: %v, error: %v", l.Idle("a"), err)
		}
		if err := l.Err(); err != nil {
			t.Errorf("the error is returned twice: %v", err)
		}
	})
}

// The calls in progress and the errors that are kept are bounded.
func TestLanesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLanes()
		stuck := make(chan struct{})
		for i := range maxLanes {
			l.Do(t.Context(), []string{fmt.Sprint(i)}, func() error { <-stuck; return errors.New("x") })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.Do(ctx, []string{"late"}, func() error { t.Error("called beyond the bound"); return nil })
		if ctx.Err() == nil || !l.Idle("late") {
			t.Errorf("Do has not waited: %v", ctx.Err())
		}
		close(stuck)
		l.Wait()
		if n := strings.Count(l.Err().Error(), "x"); n != maxLaneErrors {
			t.Errorf("%d errors are kept", n)
		}
	})
}
