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
	def := &engine.Definition{JobID: 1, Version: 1}
	def.Name, def.Handler, def.Param = "nightly", "http", "{}"
	s := &Sender{Config: Config{Store: definitions{}}}
	for _, n := range []int{1, 256} {
		runs := make([]engine.LiveRun, n)
		for i := range runs {
			runs[i] = engine.LiveRun{ID: domain.ScheduledRunID(1, definitions{}.Now(), i), JobID: 1, JobVersion: 1, Group: "g", Cause: domain.CauseSchedule, Attempt: 1, Bind: 1, Def: def}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.messages(peer.Boot{Group: "g", Instance: "i", ID: "b"}, 1, runs, nil, nil)
			}
		})
	}
}
