// Package plan decides which runs a job's fire times become: which are due within the horizon, which were
// missed and what the misfire policy makes of them, and when the job is to be looked at next. It is pure: values
// in, a Decision out. The store calls it under the lock of the job's job_due row, for the pre-read as well as for
// edits, so that both decide alike.
//
// The rule that everything rests on: a fire time at or before Decision.DecidedThrough has its run or its ledger
// entry in the same transaction, and one after it has neither.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Settings are the server's rules about time. The zero value is not useful; see DefaultSettings.
type Settings struct {
	Horizon    time.Duration // how far ahead due jobs are looked for
	Ahead      time.Duration // how far ahead runs are planned at most of a job that is looked at; at least Horizon
	Near       time.Duration // instead of both, while runs are fired late; over the second between two looks
	Step       time.Duration // if not zero: how far past the first fire time that it is late with a job is planned
	Tolerance  time.Duration // up to this late, a fire time is served as if nothing had happened
	FireAllMax int           // how many missed fire times fire_all makes up for, the latest ones
}

// DefaultSettings returns the contract's defaults.
func DefaultSettings() Settings {
	return Settings{Horizon: 5 * time.Second, Ahead: 10 * time.Second, Near: 2 * time.Second, Tolerance: 5 * time.Second, FireAllMax: 100}
}

// NearStep keeps jobs that are due each second in order to the second, and looks at them half as often as they fire.
const NearStep = time.Second

// Nearby returns the settings for planning no further ahead than Near, and of a job that is late no further than one step
// past where it is. While runs are fired late, what is planned further ahead of one job would be fired before what was due
// earlier of another that waits to be planned.
func (set Settings) Nearby() Settings {
	set.Horizon, set.Ahead = min(set.Horizon, set.Near), min(set.Ahead, set.Near)
	set.Step = NearStep
	return set
}

// scanMax bounds the missed fire times that one decision drops, beyond those that fire_all may still want, so that
// a job whose scheduler was away for a year does not hold its lock for long; the next pass goes on where this one
// stopped.
const scanMax = 10_000

// runMax bounds the runs that one decision makes, beyond what a horizon of one-second fires and a full
// fire_all need.
const runMax = 1_000

// Job is what a decision needs to know of a job and of how far its planning has come.
type Job struct {
	ID       domain.JobID
	Schedule *schedule.Schedule
	Misfire  domain.Misfire
	NextFire time.Time // the first undecided fire time; zero when there is none
	Decided  time.Time // the newest decided fire time; zero when there is none
	// Stranded are runs that were planned and that no Fire has ever admitted, although they are past due by more
	// than the tolerance: their scheduler died. In order of fire time, all before NextFire.
	Stranded []Stranded
	// Paused are the pauses of the job's group that are not over, or that ended after NextFire.
	Paused []domain.Pause
	// Closing says that the version ends now: what a pause has held up of it is decided, and dropped.
	Closing bool
}

// Stranded is a planned run that was never admitted.
type Stranded struct {
	RunID    domain.RunID
	FireTime time.Time
}

// Decision is what becomes of the job's fire times.
type Decision struct {
	Runs           []Run          // to insert
	Revive         []domain.RunID // stranded runs to fire now, as misfires
	Drop           []domain.RunID // stranded runs to delete: the ledger has them
	Missed         *domain.Missed // to add to the ledger
	NextFire       time.Time      // the first undecided fire time; zero when there is none
	NextDue        time.Time      // its due instant
	DecidedThrough time.Time      // zero when nothing was ever decided
	Parked         bool           // a pause holds NextFire up, and NextDue is when to look again
}

// Run is a run to insert.
type Run struct {
	ID       domain.RunID
	FireTime time.Time
	DueAt    time.Time
	Cause    domain.Cause
}

// until returns up to when a job is planned: between Horizon and Ahead from now. A job of one-second fires is so looked at,
// and its row rewritten, every few seconds instead of every second. By their ids jobs end at different seconds, so that those
// that began together are not all looked at in the same one.
func (set Settings) until(id domain.JobID, now time.Time) time.Time {
	most := now.Add(max(set.Ahead, set.Horizon))
	turns := int64((set.Ahead - set.Horizon) / time.Second)
	if turns <= 0 {
		return most
	}
	most = most.Truncate(time.Second)
	return most.Add(-time.Duration((most.Unix()+int64(id))%turns) * time.Second)
}

// Decide looks at every fire time of the job that is due up to an instant, see Settings.until and Settings.Step.
func Decide(j Job, now time.Time, set Settings) Decision {
	now = now.Truncate(time.Millisecond) // the precision of every instant that a compare-and-set checks
	d := Decision{DecidedThrough: j.Decided}
	if d.parkStranded(j, now, set) {
		return d
	}
	missed := missedTimes{stranded: j.Stranded}
	scan := scanMax + set.FireAllMax
	fire, end := j.NextFire, set.until(j.ID, now)
	for !fire.IsZero() && len(d.Runs) < runMax {
		due := j.Schedule.Due(j.ID, fire)
		if due.After(end) {
			break
		}
		late := due.Before(now.Add(-set.Tolerance))
		pause := domain.PauseAt(j.Paused, due)
		if until := j.heldUp(pause, late, due, now); !until.IsZero() {
			d.park(j, fire, until, set)
			break
		}
		if late || pause != nil {
			if len(missed.fresh) >= scan {
				break
			}
			missed.fresh = append(missed.fresh, fire)
		} else {
			if set.Step > 0 && len(d.Runs) == 0 && due.Before(now) && due.Add(set.Step).Before(end) {
				end = due.Add(set.Step)
			}
			if len(d.Runs) == 1 && due.After(d.Runs[0].DueAt) { // as far as fire times are regular, the rest then fits
				d.Runs = slices.Grow(d.Runs, min(int(end.Sub(due)/due.Sub(d.Runs[0].DueAt))+1, runMax))
			}
			d.Runs = append(d.Runs, Run{
				ID: domain.ScheduledRunID(j.ID, fire, 0), FireTime: fire, DueAt: due, Cause: domain.CauseSchedule,
			})
		}
		d.DecidedThrough = fire
		fire = next(j.Schedule, fire)
	}
	// Where the scan stopped in the middle of the missed ones, the tail that fire_once and fire_all may still want
	// stays undecided for the next pass.
	if full := len(missed.fresh) == scan && !fire.IsZero() && len(d.Runs) == 0; full {
		fire = missed.fresh[scanMax]
		missed.fresh = missed.fresh[:scanMax]
		d.DecidedThrough = missed.fresh[scanMax-1]
		missed.more = true
	}
	d.judge(j, missed, now, set)
	if d.Parked {
		return d
	}
	d.NextFire = fire
	if j.Schedule.Kind() == domain.ScheduleFixedDelay && fire.IsZero() && len(d.Runs) == 0 && len(missed.fresh) > 0 && !d.firesMissed() {
		// A dropped fire of fixed_delay has no end that could set the next one, so the chain goes on from here.
		d.NextFire = After(j.Schedule, now)
	}
	if !d.NextFire.IsZero() {
		d.NextDue = j.Schedule.Due(j.ID, d.NextFire)
	}
	return d
}

// lookAgain is after how long a job is looked at again whose group's pause has no end yet. Whoever ends the pause has
// it looked at, so that this matters only if that is lost.
const lookAgain = 24 * time.Hour

// heldUp returns until when a fire time is held up by a pause, zero if it is not. While its group is paused, what is due
// in the pause and what was missed before is left, so that the misfire policy decides about all of it at once.
func (j *Job) heldUp(pause *domain.Pause, late bool, due, now time.Time) time.Time {
	if pause == nil || pause.Over(now) {
		if pause == nil && !late {
			return time.Time{}
		}
		pause = domain.PauseAt(j.Paused, now)
	}
	switch {
	case pause == nil || j.Closing && !due.After(now):
		return time.Time{}
	case pause.To.IsZero():
		return now.Add(lookAgain)
	}
	return pause.To
}

// park leaves the fire times from fire on until a pause is over. What is due is looked for ahead of time.
func (d *Decision) park(j Job, fire, until time.Time, set Settings) {
	d.Parked, d.NextFire, d.NextDue = true, fire, until.Add(set.Horizon)
	if due := j.Schedule.Due(j.ID, fire); due.After(d.NextDue) {
		d.NextDue = due
	}
}

// parkStranded takes back what a dead scheduler left behind, if a pause holds it up: nothing is made up for in a pause.
// Of a job that has nothing planned after it, such as one that was disabled since, it is judged at once.
func (d *Decision) parkStranded(j Job, now time.Time, set Settings) bool {
	pause := domain.PauseAt(j.Paused, now)
	if pause == nil || j.Closing || len(j.Stranded) == 0 || j.NextFire.IsZero() {
		return false
	}
	for _, s := range j.Stranded {
		d.Drop = append(d.Drop, s.RunID)
	}
	first := j.Stranded[0].FireTime
	d.DecidedThrough = first.Add(-time.Millisecond)
	d.park(j, first, j.heldUp(nil, true, now, now), set)
	return true
}

func next(s *schedule.Schedule, after time.Time) time.Time {
	t, ok := s.Next(after)
	if !ok {
		return time.Time{}
	}
	return t
}

func (d *Decision) firesMissed() bool {
	if len(d.Revive) > 0 {
		return true
	}
	for _, r := range d.Runs {
		if r.Cause == domain.CauseMisfire {
			return true
		}
	}
	return false
}

// missedTimes are fire times that passed unserved, in order: first those that had a run already, then those
// that had none yet.
type missedTimes struct {
	stranded []Stranded
	fresh    []time.Time
	more     bool // later ones follow in the next pass
}

func (m missedTimes) len() int { return len(m.stranded) + len(m.fresh) }

func (m missedTimes) at(i int) time.Time {
	if i < len(m.stranded) {
		return m.stranded[i].FireTime
	}
	return m.fresh[i-len(m.stranded)]
}

// judge applies the misfire policy to the missed fire times: the latest few fire now, in order, before what is
// due later; the rest goes to the ledger.
func (d *Decision) judge(j Job, m missedTimes, now time.Time, set Settings) {
	if m.len() == 0 {
		return
	}
	fires := 0
	policy := j.Misfire
	if j.Closing && domain.PauseAt(j.Paused, now) != nil {
		policy = domain.MisfireSkip // to fire now would be to fire in the pause
	}
	switch policy {
	case domain.MisfireFireOnce:
		fires = 1
	case domain.MisfireFireAll:
		fires = set.FireAllMax
	case domain.MisfireSkip:
	}
	if m.more {
		fires = 0
	}
	dropped := max(m.len()-fires, 0)
	if dropped > 0 {
		d.Missed = &domain.Missed{
			First: domain.At(m.at(0)), Last: domain.At(m.at(dropped - 1)), Count: dropped, Policy: policy,
			At: domain.At(now), Why: j.why(policy, m.at(0), m.at(dropped-1), now, set),
		}
	}
	var made []Run
	for i := range m.len() {
		switch {
		case i < len(m.stranded) && i < dropped:
			d.Drop = append(d.Drop, m.stranded[i].RunID)
		case i < len(m.stranded):
			d.Revive = append(d.Revive, m.stranded[i].RunID)
		case i >= dropped:
			fire := m.at(i)
			made = append(made, Run{
				ID: domain.ScheduledRunID(j.ID, fire, 0), FireTime: fire, DueAt: now, Cause: domain.CauseMisfire,
			})
		}
	}
	d.Runs = append(made, d.Runs...)
}

// why says in words why the fire times from first to last were dropped.
func (j *Job) why(policy domain.Misfire, first, last, now time.Time, set Settings) string {
	began, ended := j.pauseOf(first), j.pauseOf(last)
	var because []string
	if began == nil {
		because = append(because, fmt.Sprintf("no scheduler served them within %s of their due instant (up to %s late)", set.Tolerance, now.Sub(first).Truncate(time.Second)))
	}
	for i, p := range []*domain.Pause{began, ended} {
		if p != nil && (i == 0 || p != began) {
			because = append(because, p.Describe(now, sayInstant))
		}
	}
	text := strings.Join(because, "; ")
	switch policy {
	case domain.MisfireFireOnce:
		return text + "; fire_once made up for the latest"
	case domain.MisfireFireAll:
		return fmt.Sprintf("%s; fire_all makes up for the latest %d", text, set.FireAllMax)
	case domain.MisfireSkip:
	}
	if policy != j.Misfire || j.Closing && ended != nil {
		return text + "; the job was changed meanwhile"
	}
	return text + "; the policy is skip"
}

func (j *Job) pauseOf(fire time.Time) *domain.Pause {
	return domain.PauseAt(j.Paused, j.Schedule.Due(j.ID, fire))
}

func sayInstant(t time.Time) string { return domain.At(t).String() }

// After returns the fire time of a fixed_delay job that follows a run which ended at end: one delay later, not
// before the window opens. Zero when the window closes before that.
func After(s *schedule.Schedule, end time.Time) time.Time {
	start, last := s.Window()
	fire := end.Add(s.Delay()).UTC().Truncate(time.Millisecond)
	if start.After(fire) {
		fire = start
	}
	if !last.IsZero() && fire.After(last) {
		return time.Time{}
	}
	return fire
}

// First returns the fire time and due instant from which a job is planned that is created, enabled or edited at
// now: the first fire time after decided, the newest one that keeps its run or ledger entry, whose due instant is
// after now. Zero times when there is none.
func First(id domain.JobID, s *schedule.Schedule, jitter time.Duration, decided, now time.Time) (fire, due time.Time) {
	if s.Kind() == domain.ScheduleFixedDelay {
		start, end := s.Window()
		fire = now
		if start.After(now) {
			fire = start
		}
		if !end.IsZero() && fire.After(end) {
			return time.Time{}, time.Time{}
		}
		fire = fire.Truncate(time.Millisecond)
		return fire, s.Due(id, fire)
	}
	// Jitter puts a due instant after its fire time, but by less than the gap between two fire times, so that the
	// search may begin one jitter ago.
	from := now.Add(-jitter - time.Millisecond)
	if decided.After(from) {
		from = decided
	}
	for fire = next(s, from); !fire.IsZero(); fire = next(s, fire) {
		if due = s.Due(id, fire); due.After(now) {
			return fire, due
		}
	}
	return time.Time{}, time.Time{}
}

// Carried returns the fire time, if there is one, that an edit at now would let fall between two versions: the old one
// had it, with a due instant still to come; the new one has it too, with less jitter, and by that its due instant has
// passed. Its due instant is the new version's, so that up to the tolerance it fires and beyond it the misfire policy
// decides. Decided is the newest fire time that keeps its run or ledger entry; jitter is the old version's. Zero times
// when there is none.
func Carried(id domain.JobID, old, edited *schedule.Schedule, jitter time.Duration, decided, now time.Time) (fire, due time.Time) {
	if old.Kind() == domain.ScheduleFixedDelay || edited.Kind() == domain.ScheduleFixedDelay {
		return time.Time{}, time.Time{}
	}
	from := now.Add(-jitter - time.Millisecond)
	if decided.After(from) {
		from = decided
	}
	for fire = next(old, from); !fire.IsZero() && !fire.After(now); fire = next(old, fire) {
		if old.Due(id, fire).After(now) && next(edited, fire.Add(-time.Millisecond)).Equal(fire) {
			if due = edited.Due(id, fire); !due.After(now) {
				return fire, due
			}
		}
	}
	return time.Time{}, time.Time{}
}
