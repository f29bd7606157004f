package dispatcher

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestTracker(t *testing.T) {
	now := time.Now()
	tr := newTracker()
	run := func(n byte, due time.Duration) *domain.LiveRun {
		return &domain.LiveRun{ID: domain.RunID{n}, Attempt: 1, DueAt: now.Add(due), Instance: "a", BootID: "boot-a"}
	}
	tr.accepted(run(1, -time.Hour), now) // starts now
	tr.accepted(run(2, 500*time.Millisecond), now)
	tr.accepted(run(3, 0), now)
	tr.forget([]domain.Ended{{RunID: domain.RunID{3}, Attempt: 1}, {RunID: domain.RunID{1}, Attempt: 2}, {RunID: domain.RunID{9}, Attempt: 1}})
	if got := tr.long(now.Add(longRun-time.Millisecond), 10); len(got) != 0 {
		t.Errorf("long before its time: %+v", got)
	}
	if got := tr.long(now.Add(longRun), 10); len(got) != 1 || got[0].RunID != (domain.RunID{1}) || !got[0].StartedAt.Equal(now) {
		t.Errorf("long: %+v", got)
	}
	if got := tr.long(now.Add(time.Hour), 10); len(got) != 1 || got[0].RunID != (domain.RunID{2}) || !got[0].StartedAt.Equal(now.Add(500*time.Millisecond)) {
		t.Errorf("long: %+v", got)
	}
	if got := tr.long(now.Add(time.Hour), 10); len(got) != 0 {
		t.Errorf("said twice: %+v", got)
	}
	// Bounded in what it holds, and in what it gives at once.
	for i := range trackedMax + 10 {
		r := run(0, 0)
		r.ID[1], r.ID[2], r.ID[3] = byte(i>>16), byte(i>>8), byte(i)
		tr.accepted(r, now)
	}
	if len(tr.runs) != trackedMax {
		t.Errorf("holds %d", len(tr.runs))
	}
	if got := tr.long(now.Add(time.Hour), 7); len(got) != 7 || len(tr.runs) != trackedMax-7 {
		t.Errorf("gave %d, holds %d", len(got), len(tr.runs))
	}
}
