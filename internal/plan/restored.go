package plan

import (
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Restored decides about the fire times that were due by restored.To and that the restored database has not decided, or whose run
// was only planned. They may have run before the restore, so the ledger gets all of them, whatever the misfire policy. Stranded of
// the job are its planned runs that were due by restored.To. Decide then begins with the first later fire time. more reports that
// the decision stopped at its bound and has to be repeated.
func Restored(j Job, restored domain.Disturbance, now time.Time) (d Decision, more bool) {
	now = now.Truncate(time.Millisecond)
	d = Decision{DecidedThrough: j.Decided}
	unsure := missedTimes{stranded: j.Stranded}
	fire := j.NextFire
	for !fire.IsZero() && !j.Schedule.Due(j.ID, fire).After(restored.To) {
		if len(unsure.fresh) == scanMax {
			more = true
			break
		}
		unsure.fresh = append(unsure.fresh, fire)
		d.DecidedThrough = fire
		fire = next(j.Schedule, fire)
	}
	for _, s := range j.Stranded {
		d.Drop = append(d.Drop, s.RunID)
	}
	if n := unsure.len(); n > 0 {
		d.MissedWhy = explain.Of(explain.Restored, domain.At(restored.From).String(), domain.At(restored.To).String())
		d.Missed = &domain.Missed{
			First: domain.At(unsure.at(0)), Last: domain.At(unsure.at(n - 1)), Count: n, Policy: j.Misfire,
			At: domain.At(now), Why: d.MissedWhy.Explanation(),
		}
		if fire.IsZero() && j.Schedule.Kind() == domain.ScheduleFixedDelay {
			fire = After(j.Schedule, now) // no run is left whose end would set the next fire time
		}
	}
	if d.NextFire = fire; !fire.IsZero() {
		d.NextDue = j.Schedule.Due(j.ID, fire)
	}
	return d, more
}
