package outbound

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/gateway/address"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// settles counts the attempts that are settled.
type settles struct {
	Sends
	calls []int // attempts in each statement
	away  error
}

func (s *settles) Settle(_ context.Context, attempts []gateway.SettledAttempt) ([]int64, error) {
	s.calls = append(s.calls, len(attempts))
	return []int64{1}, s.away
}

// One statement records the attempts of all addresses that dispatchers settle at about the same time. Then the gateway forgets these attempts, but not if Postgres is away.
func TestSettledTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sends := &settles{}
		s := &settler{f: &Fleet{Config: Config{Sends: sends, Log: slog.New(slog.DiscardHandler)}}, wake: make(chan struct{}, 1), now: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { s.run(ctx) })
		tenders := []*tender{settlingTender(), settlingTender()}
		settle := func(n int) {
			for i := range n {
				t := tenders[i%2]
				run := domain.NewRunID(time.Now())
				t.machine.Restore(ended(run, wire.Succeeded))
				s.soon(t, []wire.Ref{{RunID: run.String(), Attempt: 1, BootID: "boot"}, {RunID: "none"}})
				lifecycle.Pause(ctx, settleFor/100)
			}
			lifecycle.Pause(ctx, time.Second)
			synctest.Wait()
		}
		known := func() int { return len(tenders[0].machine.Attempts()) + len(tenders[1].machine.Attempts()) }
		settle(20)
		if !slices.Equal(sends.calls, []int{20}) || known() != 0 {
			t.Errorf("statements for %v results, %d attempts are known", sends.calls, known())
		}
		sends.calls, sends.away = nil, errors.New("away")
		settle(10)
		if !slices.Equal(sends.calls, []int{10}) || known() != 10 {
			t.Errorf("while Postgres is away: statements for %v results, %d attempts are known", sends.calls, known())
		}
		sends.calls, sends.away = nil, nil
		run := domain.NewRunID(time.Now())
		tenders[0].machine.Restore(ended(run, wire.Unstarted))
		s.soon(tenders[0], []wire.Ref{{RunID: run.String(), Attempt: 1, BootID: "boot"}})
		synctest.Wait() // no time passes
		if !slices.Equal(sends.calls, []int{1}) {
			t.Errorf("an attempt that did not start is not settled at once: %v", sends.calls)
		}
		cancel()
		done.Wait()
	})
}

func settlingTender() *tender {
	return &tender{address: gateway.Address{BootID: "boot"}, machine: address.New(address.Config{BootID: "boot", Capacity: 100})}
}

// ended returns a send that has ended.
func ended(run domain.RunID, outcome string) *gateway.Send {
	now := time.Now()
	return &gateway.Send{LogID: 1, Offer: gateway.Offer{Attempt: gateway.Attempt{Run: run, Number: 1}}, EndedAt: &now, Result: gateway.Result{Outcome: outcome}}
}
