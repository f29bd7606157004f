package dispatcher

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// Offers that together are larger than what NATS takes in one message go out in several.
func TestLargeParamsAreOffered(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: many megabytes of params; -short leaves it out")
	}
	w := newWorld(t, option{})
	w.join("a", auto, capacity(100))
	job := w.job("large", func(s *domain.JobSpec) {
		s.Param, s.Block = strings.Repeat("p", domain.MaxParamBytes), domain.BlockParallel
	})
	var ids []domain.RunID
	for range 40 {
		ids = append(ids, w.trigger(job))
	}
	for _, id := range ids {
		if r := w.becomes(id, "succeeded"); r.Attempt != 1 {
			t.Errorf("run %+v", r)
		}
	}
}

// One that is too large for any message ends, and says why, instead of being bound for ever.
func TestOversizedOfferEnds(t *testing.T) {
	w := newWorld(t, option{})
	b := boot{"g", "a", "b"}
	def := &domain.Definition{JobID: 1, Version: 1}
	def.Param = strings.Repeat("p", offerMax)
	defs := domain.Definitions{{Job: 1, Version: 1}: def}
	small := "small"
	runs := []domain.LiveRun{{JobID: 1, JobVersion: 1, Attempt: 1, Bind: 3}, {JobID: 1, JobVersion: 1, Attempt: 1, Param: &small}}
	batches, oversized := w.batches(b, 0, runs, defs, nil)
	if len(batches) != 1 || len(batches[0].runs) != 1 || len(oversized) != 1 || oversized[0].Reason != domain.ReasonUnsupported || oversized[0].Bind != 3 {
		t.Errorf("%d batches, oversized %+v", len(batches), oversized)
	}
}
