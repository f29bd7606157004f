package offer

import (
	"fmt"
	"testing"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// BenchmarkMessages encodes messages of offers without an exporter of traces. Compare it with the commit before with benchstat: runs that
// continue no trace must cost no further allocation.
func BenchmarkMessages(b *testing.B) {
	for _, n := range []int{1, 256} {
		encode := encoding(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encode()
			}
		})
	}
}

// A change of a figure is no fault, but must be meant.
func TestAllocationsOfMessages(t *testing.T) {
	for _, n := range []int{1, 256} {
		if got, most := testing.AllocsPerRun(100, encoding(n)), float64(n+2); got > most {
			t.Errorf("offers of %d runs: %v allocations, want at most %v", n, got, most)
		}
	}
}

// encoding returns a function that encodes offers of n runs.
func encoding(n int) func() {
	def := &engine.Definition{JobID: 1, Version: 1}
	def.Name, def.Handler, def.Param = "nightly", "http", "{}"
	s := &Sender{Config: Config{Store: definitions{}}}
	runs := make([]engine.LiveRun, n)
	for i := range runs {
		runs[i] = engine.LiveRun{ID: domain.ScheduledRunID(1, definitions{}.Now(), i), JobID: 1, JobVersion: 1, Group: "g", Cause: domain.CauseSchedule, Attempt: 1, Bind: 1, Def: def}
	}
	return func() { s.messages(peer.Boot{Group: "g", Instance: "i", ID: "b"}, 1, runs, nil, nil) }
}
