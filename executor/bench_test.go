//go:build unix

package executor

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"runtime"
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
	l := newEngineLoad(b)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	l.run(b.N)
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "cpu-ns/op")
}

// TestAllocationsOfAnAttempt counts what an attempt allocates, from the arrival of the offer until the result is settled. A change is no fault, but must
// be meant.
func TestAllocationsOfAnAttempt(t *testing.T) {
	const attempts, most = 10_000, 10.7
	l := newEngineLoad(t)
	l.run(attempts)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l.run(attempts)
	runtime.ReadMemStats(&after)
	if got := float64(after.Mallocs-before.Mallocs) / attempts; got > most {
		t.Errorf("an attempt makes %.2f allocations, want at most %v", got, most)
	}
}

// engineLoad offers attempts to an engine, as a dispatcher does, and settles their results.
type engineLoad struct {
	testing.TB
	*engine
	unsettled sync.WaitGroup

	nth, first int // of the next message and of its runs
	beat       int64
	message    offersMessage
}

// newEngineLoad returns a load for an engine that has run 5,000 attempts per second for as long as its ledger remembers them. The engine ends with
// the test.
func newEngineLoad(tb testing.TB) *engineLoad {
	s, left, err := openSpool(tb.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		tb.Fatal(err)
	}
	quiet := quietLogger()
	x := &engine{
		group: "bench", instance: "bench-1", boot: benchBoot, log: quiet, handlers: map[string]*registered{}, ledger: newLedger(1 << 16),
		attempts: make(map[attemptKey]*attempt), logs: newLogShipper(quiet), starter: newStarter(), now: systemClock(nil),
		reports: newReporter(s, left, 1<<30, quiet), work: context.Background(),
	}
	for n := range 450_000 {
		x.ledger.ended.add(attemptKey{benchRun(n/250-1800, n), 1}, succeeded, time.Duration(n-450_000)*200*time.Microsecond)
	}
	x.handlers["noop"] = newRegistered(HandlerFunc(func(context.Context, Run) error { return nil }))
	x.reports.ready = func() (bool, int64) { return true, 1 << 20 }
	x.reports.written = x.spooled
	l := &engineLoad{TB: tb, engine: x}
	x.reports.publish = l.settle
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { x.reports.run(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
	return l
}

// benchBoot is the boot id of the engine.
const benchBoot = "0123456789abcdef0123456789abcdef"

// settle takes the place of the dispatchers that get results.
func (l *engineLoad) settle(_ context.Context, results [][]byte) error {
	runtime.KeepAlive(wire.EncodeResults(l.load(), results))
	var m wire.Control
	if err := wire.Decode(settledMessage(benchBoot, results), &m); err != nil {
		l.Error(err)
	}
	runtime.KeepAlive(wire.Encode(l.answerControl(&m)))
	l.unsettled.Add(-len(results))
	return nil
}

// run offers attempts, and returns when all their results are settled.
func (l *engineLoad) run(attempts int) {
	for left := attempts; left > 0; l.nth++ {
		if l.nth%32 == 0 || l.beat == 0 { // prewritten offers would be too old, and an executor does not write offers
			var sent instant
			l.beat, sent = l.nextBeat()
			l.confirmed(sent, 0)
			l.message = newOffersMessage(benchBoot, l.beat, 250)
		}
		if len(l.message.runs) > left {
			l.message = newOffersMessage(benchBoot, l.beat, left)
		}
		l.offer()
		if left -= len(l.message.runs); l.nth%16 == 15 {
			l.unsettled.Wait()
		}
		if len(l.message.runs) < 250 {
			l.beat = 0 // the next message is a whole one again
		}
	}
	l.unsettled.Wait()
}

// offer offers the runs of the message under new ids.
func (l *engineLoad) offer() {
	l.message.number(l.nth, l.first)
	l.first += len(l.message.runs)
	l.unsettled.Add(len(l.message.runs))
	var m wire.Offers
	if err := wire.Decode(l.message.data, &m); err != nil {
		l.Fatal(err)
	}
	ans := l.answerOffers(&m, 1, l.now())
	if ans.Verdicts[0].Verdict != wire.Accepted {
		l.Fatalf("%+v", ans.Verdicts[0])
	}
	runtime.KeepAlive(wire.EncodeAnswer(&ans))
}

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
