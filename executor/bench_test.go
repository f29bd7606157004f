package executor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/wire"
)

// BenchmarkEngine runs attempts that do nothing, from the offer until they are settled, with their results on disk and
// everything but NATS. One operation is one attempt; they come in messages of 500.
func BenchmarkEngine(b *testing.B) {
	s, left, err := openSpool(b.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	quiet := quietLogger()
	x := &engine{
		group: "g", instance: "i", boot: "boot", log: quiet, handlers: map[string]*registered{}, ledger: newLedger(1 << 20),
		attempts: make(map[attemptKey]*attempt), logs: newLogShipper(quiet), starter: newStarter(), now: systemClock(nil),
		reports: newReporter(s, left, 1<<30, quiet), work: context.Background(),
	}
	x.handlers["h"] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
	x.reports.ready = func() (bool, int64) { return true, 1 << 20 }
	x.reports.written = x.spooled
	var sent sync.WaitGroup
	x.reports.publish = func(_ context.Context, results [][]byte) error {
		m := wire.Control{V: 1, Op: wire.OpSettled}
		data := wire.EncodeResults(wire.Load{}, results)
		var back wire.Results
		if err := wire.Decode(data, &back); err != nil {
			return err
		}
		for _, r := range back.Results {
			m.Runs = append(m.Runs, wire.Ref{RunID: r.RunID, Attempt: r.Attempt, BootID: r.BootID})
		}
		x.answerControl(&m)
		sent.Add(-len(results))
		return nil
	}
	x.confirmed(x.now(), 0)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { x.reports.run(ctx) })
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		x.confirmed(x.now(), 0)
		at := wire.Time{Time: time.Now()}
		m := &wire.Offers{V: 1, BootID: "boot"}
		for ; len(m.Offers) < wire.MaxOffers && n < b.N; n++ {
			m.Offers = append(m.Offers, wire.Offer{RunID: fmt.Sprintf("00000000-0000-7000-8000-%012x", n), Attempt: 1, Bind: 1, BoundAt: at, Now: at, DueAt: at, Handler: "h"})
		}
		sent.Add(len(m.Offers))
		x.answerOffers(m, 1, x.now())
		if n%10_000 < wire.MaxOffers {
			sent.Wait()
		}
	}
	sent.Wait()
	b.StopTimer()
	cancel()
	wg.Wait()
}
