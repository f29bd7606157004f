package firecheck

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// After a restore, a fire time is uncertain if its run was unfinished in the restored state and starts after the restore, or if
// `belfry restored` has entered it into the ledger.
func TestExplainRestored(t *testing.T) {
	const unknown = "the database was restored to its state of 2026-03-28 12:00:05Z, and does not know what ran from then until 2026-03-28 12:00:40Z"
	run := func(state domain.State, started int) *Run {
		r := &Run{
			ID: domain.ScheduledRunID(jobID, at, 0), State: state, Cause: domain.CauseSchedule, Attempt: 1, Version: 1, Instance: "i1",
			FireTime: at, DueAt: at, DispatchedAt: at,
		}
		if started > 0 {
			r.StartedAt = second(started)
		}
		return r
	}
	for name, c := range map[string]struct {
		to   int // when the uncertain time ends
		run  *Run
		fate Fate
		text string
	}{
		"in the ledger":               {40, nil, FateUncertain, unknown + "; they may have run, and are not run again"},
		"started after the restore":   {40, run(domain.Succeeded, 60), FateUncertain, "its run was unfinished then, so that it may have run twice: " + unknown},
		"still waits":                 {40, run(domain.Queued, 0), FateUncertain, unknown},
		"held":                        {40, run(domain.Pending, 0), FateUncertain, unknown},
		"started before":              {40, run(domain.Running, 10), FateRan, "running on instance i1"},
		"ended without a start":       {40, run(domain.Cancelled, 0), FateNotStarted, ""},
		"was due after the restore":   {9, run(domain.Queued, 0), FateWaiting, "it"},
		"a restore some time earlier": {9, run(domain.Succeeded, 12), FateRan, "succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			f := everySecond(t)
			f.Disturbed = []domain.Disturbance{{Kind: domain.Restored, From: second(5), To: second(c.to)}}
			f.Away = Gaps([]Gap{{From: second(-60), To: second(5)}, {From: second(50), To: second(600)}}, f.Disturbed, second(600))
			if c.run != nil {
				f.Runs[c.run.ID] = []Run{*c.run}
			} else {
				f.Missed = []Missed{{ID: 3, Missed: domain.Missed{First: domain.At(noon), Last: domain.At(at), Why: explain.Of(explain.Restored, "2026-03-28 12:00:05Z", "2026-03-28 12:00:40Z").Explanation()}}}
			}
			got := f.one(Owned)
			if got.Fate != c.fate || !strings.Contains(got.Text, c.text) {
				t.Errorf("%s: %q, want %s: %q", got.Fate, got.Text, c.fate, c.text)
			}
			f.Language = explain.Chinese
			if got.Fate == FateUncertain {
				checkChinese(t, f.one(Owned).Text)
			}
		})
	}
}

// A fire time after the uncertain time that no scheduler served names the absence of schedulers, not the restore.
func TestAwayAfterRestore(t *testing.T) {
	restored := []domain.Disturbance{{Kind: domain.Restored, From: second(5), To: second(40)}}
	f := Facts{Away: Gaps([]Gap{{From: second(-60), To: second(5)}, {From: second(90), To: second(600)}}, restored, second(600))}
	for at, fault := range map[int]bool{20: true, 60: false} {
		if gap, away := f.away(second(at)); !away || (gap.Fault != nil) != fault {
			t.Errorf("%s at second %d: %+v", time.Duration(at), at, gap)
		}
	}
}
