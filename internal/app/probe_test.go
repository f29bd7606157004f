package app

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A probe keeps the result of the last write, forgives failures during an election, and says each change once.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int64
		var fault atomic.Pointer[error]
		away := errors.New("away")
		var said []error
		p := newProbe("jetstream", 5*time.Second, func(ctx context.Context) error {
			checks.Add(1)
			if e := fault.Load(); e != nil {
				<-ctx.Done() // a server without quorum does not answer
				return *e
			}
			return nil
		}, func(_ context.Context, err error) { said = append(said, err) })
		if p.Err() == nil {
			t.Error("available before the first check")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.run(ctx) }()
		synctest.Wait()
		<-p.ready
		if err := p.Err(); err != nil {
			t.Errorf("after the first check: %v", err)
		}
		time.Sleep(time.Minute)
		if n := checks.Load(); n > 60 {
			t.Errorf("%d checks in a minute", n)
		}

		fault.Store(&away)
		time.Sleep(2 * time.Second)
		if err := p.Err(); err != nil {
			t.Errorf("unavailable after a failure that an election explains: %v", err)
		}
		time.Sleep(10 * time.Second)
		if err := p.Err(); !errors.Is(err, away) || p.Took() != probeTimeout {
			t.Errorf("got %v after %v", err, p.Took())
		}
		fault.Store(nil)
		time.Sleep(10 * time.Second)
		if err := p.Err(); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !slices.Equal(said, []error{away, nil}) {
			t.Errorf("said %v", said)
		}
	})
}
