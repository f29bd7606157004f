package gateway_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/store/gateway"
)

// BenchmarkSends takes sends through their life, and measures the CPU time of the Postgres process that serves it, for each send and step. Batches are as
// small as those of one executor at some hundred runs per second.
func BenchmarkSends(b *testing.B) {
	const batch, settledBefore = 20, 200_000
	w := newWorld(b, 1)
	a := w.register("one", "g", "a", "10.0.0.1")
	w.exec(`INSERT INTO gateway_sends (group_name, instance, boot_id, run_id, attempt, bind, wire_id, handler, state, ended_at, forget_at)
		SELECT 'g', 'a', 'boot-a', overlay(first_run_id(now())::text placing substr(md5(random()::text), 1, 12) from 25)::uuid, 1, 1, 1, 'demo', 'ended', now(), now() + interval '10 min'
		  FROM generate_series(1, $1::int)`, settledBefore)
	w.exec(`VACUUM ANALYZE gateway_sends`)
	var pid int
	if err := w.pool.QueryRow(b.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		b.Fatal(err)
	}
	took := make(map[string]time.Duration)
	step := func(name string, f func() error) {
		b.Helper()
		before := cpuOf(b, pid)
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took[name] += cpuOf(b, pid) - before
	}
	sends := 0
	for b.Loop() {
		if sends++; sends%batch != 1 {
			continue
		}
		o := offers(batch)
		ids := make([]int64, 0, batch)
		var settled []gateway.SettledAttempt
		var ends []gateway.End
		step("accept", func() error { ids = w.accept("one", a.Hold(), o); return nil })
		for i, id := range ids {
			settled = append(settled, gateway.SettledAttempt{Attempt: o[i].Attempt, BootID: "boot-a"})
			ends = append(ends, gateway.End{LogID: id, Result: gateway.Result{Outcome: "succeeded"}})
		}
		step("send", func() error { w.send("one", a.Hold(), ids...); return nil })
		step("finish", func() error { _, err := w.Finish(b.Context(), []string{"g"}, ends); return err })
		step("results", func() error { _, err := w.Results(b.Context(), ids); return err })
		step("settle", func() error { _, err := w.Settle(b.Context(), settled); return err })
	}
	sends = max(sends-sends%batch, batch)
	for name, d := range took {
		b.ReportMetric(float64(d.Nanoseconds())/1000/float64(sends), name+"-µs/send")
	}
	b.ReportMetric(0, "ns/op")
}

// cpuOf returns the CPU time of a process.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		b.Skip("NOT COVERED: this system does not report the CPU time of processes")
	}
	var ns int64
	if _, err := fmt.Sscan(string(text), &ns); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}
