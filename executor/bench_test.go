//go:build unix

package executor

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// BenchmarkEngine runs attempts that do nothing, from the arrival of the offer until the result is settled. It includes
// the disk and everything else except NATS. One operation is one attempt. The time includes waiting for the disk, so
// the benchmark also reports the CPU time per attempt.
func BenchmarkEngine(b *testing.B) {
	s, left, err := openSpool(b.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	quiet := quietLogger()
	const boot = "0123456789abcdef0123456789abcdef"
	x := &engine{
		group: "bench", instance: "bench-1", boot: boot, log: quiet, handlers: map[string]*registered{}, ledger: newLedger(1 << 16),
		attempts: make(map[attemptKey]*attempt), logs: newLogShipper(quiet), starter: newStarter(), now: systemClock(nil),
		reports: newReporter(s, left, 1<<30, quiet), work: context.Background(),
	}
	for n := range 450_000 { // as after running 5,000 attempts per second for as long as the ledger remembers them
		x.ledger.ended.add(attemptKey{benchRun(n/250-1800, n), 1}, succeeded, time.Duration(n-450_000)*200*time.Microsecond)
	}
	x.handlers["noop"] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
	x.reports.ready = func() (bool, int64) { return true, 1 << 20 }
	x.reports.written = x.spooled
	var unsettled sync.WaitGroup
	x.reports.publish = func(_ context.Context, results [][]byte) error {
		sink = wire.EncodeResults(x.load(), results)
		var m wire.Control
		if err := wire.Decode(settledMessage(boot, results), &m); err != nil {
			b.Error(err)
		}
		sink = wire.Encode(x.answerControl(&m))
		unsettled.Add(-len(results))
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { x.reports.run(ctx) })

	var message offersMessage
	var beat int64
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	for n, nth := 0, 0; n < b.N; nth++ {
		if nth%32 == 0 { // prewritten offers would be too old, and an executor does not write offers
			var sent instant
			beat, sent = x.nextBeat()
			x.confirmed(sent, 0)
			message = newOffersMessage(boot, beat, min(250, b.N-n))
		}
		if len(message.runs) > b.N-n {
			message = newOffersMessage(boot, beat, b.N-n)
		}
		message.number(nth, n)
		n += len(message.runs)
		unsettled.Add(len(message.runs))
		var m wire.Offers
		if err := wire.Decode(message.data, &m); err != nil {
			b.Fatal(err)
		}
		ans := x.answerOffers(&m, 1, x.now())
		if ans.Verdicts[0].Verdict != wire.Accepted {
			b.Fatalf("%+v", ans.Verdicts[0])
		}
		sink = wire.EncodeAnswer(&ans)
		if nth%16 == 15 {
			unsettled.Wait()
		}
	}
	unsettled.Wait()
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "cpu-ns/op")
	b.StopTimer()
	cancel()
	wg.Wait()
}

// sink keeps the compiler from removing work whose result is not used.
var sink []byte

// benchRun returns the id of a run of the nth message. Like Belfry's ids, it begins with the time, at 20 messages per
// second.
func benchRun(nth, run int) string { return fmt.Sprintf("%s%012x", benchTime(nth), run) }

func benchTime(nth int) string {
	ms := 1_750_000_000_000 + 50*nth
	return fmt.Sprintf("%08x-%04x-8000-8000-", ms>>16, ms&0xffff)
}

// offersMessage is a message of offers whose run ids change each time it is sent.
type offersMessage struct {
	data []byte
	runs [][]byte // the ids in data
}

func newOffersMessage(boot string, beat int64, count int) (m offersMessage) {
	run := benchRun(0, 0)
	at := wire.Time{Time: time.Now()}
	o := wire.AppendOffer(nil, &wire.Offer{
		RunID: run, Attempt: 1, Bind: 1, BoundAt: at, JobID: 1234, JobName: "bench-1234", Group: "bench", Handler: "noop",
		Cause: "schedule", FireTime: at, DueAt: at, Now: at, Shard: wire.Shard{Total: 1},
	})
	offers := make([][]byte, count)
	for i := range offers {
		offers[i] = o
	}
	m.data = wire.EndOffers(append(wire.BeginOffers(nil, boot, beat), bytes.Join(offers, []byte(","))...))
	for rest := m.data; ; {
		before, after, more := bytes.Cut(rest, []byte(run))
		if !more {
			return m
		}
		m.runs, rest = append(m.runs, rest[len(before):len(before)+len(run)]), after
	}
}

// number makes this the nth message and numbers its runs from first on.
func (m *offersMessage) number(nth, first int) {
	at := benchTime(nth)
	for i, run := range m.runs {
		n := first + i
		hex.Encode(run[copy(run, at):], []byte{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
}

// settledMessage returns the control request that settles these results.
func settledMessage(boot string, results [][]byte) []byte {
	refs := make([]wire.Ref, len(results))
	for i, r := range results {
		_, run, _ := bytes.Cut(r, []byte(`"run_id":"`))
		refs[i] = wire.Ref{RunID: string(run[:36]), Attempt: 1, BootID: boot}
	}
	return wire.EncodeSettled(refs)
}

// cpuTime returns the CPU time that the process has used, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
