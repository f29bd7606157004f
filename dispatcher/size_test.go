package dispatcher

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// If offers together exceed the maximum size of a NATS message, they are sent in several messages.
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
