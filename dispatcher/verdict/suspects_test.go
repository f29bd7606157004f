package verdict

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// Only a binding that the judge has known for long enough is old: not a new attempt, and not an attempt that was offered again.
func TestKnownForLong(t *testing.T) {
	run := func(attempt, bind int) engine.LiveRun {
		return engine.LiveRun{ID: domain.RunID{1}, Attempt: attempt, Bind: bind}
	}
	begin := time.Now()
	var s suspect
	old := func(r engine.LiveRun, after time.Duration) int {
		s.note([]engine.LiveRun{r}, begin.Add(after))
		return len(s.knownForLong([]engine.LiveRun{r}, begin.Add(after)))
	}
	for _, step := range []struct {
		attempt, bind int
		after         time.Duration
		want          int
	}{
		{1, 1, 0, 0},
		{1, 1, enough - time.Millisecond, 0},
		{1, 1, enough, 1},
		{1, 2, enough, 0}, // offered again
		{1, 2, 2 * enough, 1},
		{2, 2, 2 * enough, 0}, // the next attempt
		{1, 2, 2 * enough, 0}, // it was not bound meanwhile
	} {
		if got := old(run(step.attempt, step.bind), step.after); got != step.want {
			t.Errorf("%+v: %d", step, got)
		}
	}
	if len(s.known) != 1 {
		t.Errorf("%d bindings are remembered", len(s.known))
	}
}
