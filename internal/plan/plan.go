// Package plan decides which runs a job's fire times become. It finds the fire times that are due within the horizon,
// applies the misfire policy to missed ones, and returns when the job must be planned next. It is pure: it gets values
// and returns a Decision. The store calls it under the lock of the job's job_due row, for the pre-read and for edits, so
// that both decide in the same way.
//
// The basic invariant is: a fire time at or before Decision.DecidedThrough has its run or its ledger entry in the
// same transaction, and a later fire time has neither.
package plan

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Settings are the server's timing rules. The zero value is not useful; see DefaultSettings.
type Settings struct {
	Horizon    time.Duration // how far ahead the pre-read looks for due jobs
	Ahead      time.Duration // how far ahead the runs of a due job are planned at most; at least Horizon
	Near       time.Duration // replaces Horizon and Ahead while runs are fired late; longer than the period of the pre-read, one second
	Step       time.Duration // if not zero: how far a late job is planned past its first fire time
	Tolerance  time.Duration // a fire time that is late by at most this fires at once
	FireAllMax int           // how many missed fire times fire_all makes up for; it takes the latest ones
}

// DefaultSettings returns the settings of a server without flags.
func DefaultSettings() Settings {
	return Settings{Horizon: 5 * time.Second, Ahead: 10 * time.Second, Near: 2 * time.Second, Tolerance: 5 * time.Second, FireAllMax: 100}
}

// NearStep is the Step of Nearby. With it, a decision for a late job of one-second fires plans two runs. Runs of several
// such jobs are therefore fired in the order of their due instants, to within a second.
const NearStep = time.Second

// Nearby returns the settings to use while runs are fired late. Jobs are planned at most Near ahead, and a late job at
// most one Step past its first fire time. If one job were planned further ahead, its runs would be fired before the
// earlier due runs of a job that is not planned yet.
func (set Settings) Nearby() Settings {
	set.Horizon, set.Ahead = min(set.Horizon, set.Near), min(set.Ahead, set.Near)
	set.Step = NearStep
	return set
}

// scanMax bounds the missed fire times that one decision drops, in addition to those that fire_all may need. So a job
// whose scheduler was down for a year does not hold its lock for long. The next pass continues where this one stopped.
const scanMax = 10_000

// runMax bounds the runs that one decision makes. It is more than a horizon of one-second fires and a full fire_all
// need.
const runMax = 1_000

// Job is the input of a decision: the job and the progress of its planning.
type Job struct {
	ID       domain.JobID
	Schedule *schedule.Schedule
	Misfire  domain.Misfire
	NextFire time.Time // the first undecided fire time; zero if there is none
	Decided  time.Time // the newest decided fire time; zero if there is none
	// Stranded are planned runs that no Fire has admitted although they are past due by more than the tolerance,
	// because their scheduler died. They are in order of fire time and all before NextFire.
	Stranded []Stranded
	// Paused are the pauses of the job and of its group that are not over, or that ended after NextFire.
	Paused []domain.Pause
	// Disturbed are the disturbances that may be why fire times were missed. They only change the recorded reason.
	Disturbed []domain.Disturbance
	// Closing means that the version ends now: fire times that a pause has held up are decided now, and dropped.
	Closing bool
}

// Stranded is a planned run that was never admitted.
type Stranded struct {
	RunID    domain.RunID
	FireTime time.Time
}

// Decision is the result for the job's fire times.
type Decision struct {
	Runs           []Run          // to insert
	Revive         []domain.RunID // stranded runs to fire now, as misfires
	Drop           []domain.RunID // stranded runs to delete, because the ledger has them
	Missed         *domain.Missed // to add to the ledger
	MissedWhy      explain.Note   // the reason of Missed, as it is stored
	NextFire       time.Time      // the first undecided fire time; zero if there is none
	NextDue        time.Time      // its due instant
	DecidedThrough time.Time      // zero if no fire time was ever decided
	ParkedBy       *domain.Pause  // the pause that holds NextFire up, if any; NextDue is when to plan again
}

// Run is a run to insert.
type Run struct {
	ID       domain.RunID
	FireTime time.Time
	DueAt    time.Time
	Cause    domain.Cause
}

// until returns how far a job is planned: between Horizon and Ahead from now. So a job of one-second fires is planned,
// and its row rewritten, every few seconds instead of every second. The end depends on the job's id, so that jobs that
// were created together are not all planned in the same second.
func (set Settings) until(id domain.JobID, now time.Time) time.Time {
	most := now.Add(max(set.Ahead, set.Horizon))
	turns := int64((set.Ahead - set.Horizon) / time.Second)
	if turns <= 0 {
		return most
	}
	most = most.Truncate(time.Second)
	return most.Add(-time.Duration((most.Unix()+int64(id))%turns) * time.Second)
}

// Decide decides about every fire time of the job that is due up to an instant, see Settings.until and Settings.Step.
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
		if by := j.heldUp(pause, late, due, now); by != nil {
			d.park(j, fire, by, now, set)
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
			if len(d.Runs) == 1 && due.After(d.Runs[0].DueAt) { // if fire times are regular, this is the capacity for all of them
				d.Runs = slices.Grow(d.Runs, min(int(end.Sub(due)/due.Sub(d.Runs[0].DueAt))+1, runMax))
			}
			d.Runs = append(d.Runs, Run{
				ID: domain.ScheduledRunID(j.ID, fire, 0), FireTime: fire, DueAt: due, Cause: domain.CauseSchedule,
			})
		}
		d.DecidedThrough = fire
		fire = next(j.Schedule, fire)
	}
	// The scan stopped in the middle of the missed fire times. The last ones, which fire_once and fire_all may need,
	// stay undecided for the next pass.
	if full := len(missed.fresh) == scan && !fire.IsZero() && len(d.Runs) == 0; full {
		fire = missed.fresh[scanMax]
		missed.fresh = missed.fresh[:scanMax]
		d.DecidedThrough = missed.fresh[scanMax-1]
		missed.more = true
	}
	//sim:seam missed-recorded
	d.judge(j, missed, now, set)
	if d.ParkedBy != nil {
		return d
	}
	d.NextFire = fire
	if j.Schedule.Kind() == domain.ScheduleFixedDelay && fire.IsZero() && len(d.Runs) == 0 && len(missed.fresh) > 0 && !d.firesMissed() {
		// The end of a run sets the next fire time of fixed_delay. A dropped fire has no run, so the chain continues at now.
		d.NextFire = After(j.Schedule, now)
	}
	if !d.NextFire.IsZero() {
		d.NextDue = j.Schedule.Due(j.ID, d.NextFire)
	}
	return d
}

// lookAgain is the time after which a job is planned again if its pause has no end yet. The end of the pause
// makes the job due for planning, so this interval only matters if that update is lost.
const lookAgain = 24 * time.Hour

// heldUp returns the pause that delays a fire time, or nil. While the job or its group is paused, fire times due in the
// pause and fire times missed before it stay undecided, so that the misfire policy decides about all of them together.
func (j *Job) heldUp(pause *domain.Pause, late bool, due, now time.Time) *domain.Pause {
	if pause == nil || pause.Over(now) {
		if pause == nil && !late {
			return nil
		}
		pause = domain.PauseAt(j.Paused, now)
	}
	if j.Closing && !due.After(now) {
		return nil
	}
	return pause
}

// LookAt returns the NextDue of a job that a pause keeps from being planned. It is the end of the pause or, if the end is not known,
// a day from now. It adds the horizon, because the pre-read looks that far ahead.
func (set Settings) LookAt(p *domain.Pause, now time.Time) time.Time {
	if p.To.IsZero() {
		return now.Add(lookAgain + set.Horizon)
	}
	return p.To.Add(set.Horizon)
}

// park leaves the fire times from fire on undecided until a pause is over.
func (d *Decision) park(j Job, fire time.Time, by *domain.Pause, now time.Time, set Settings) {
	d.ParkedBy, d.NextFire, d.NextDue = by, fire, set.LookAt(by, now)
	if due := j.Schedule.Due(j.ID, fire); due.After(d.NextDue) {
		d.NextDue = due
	}
}

// parkStranded drops the stranded runs and leaves their fire times undecided until the pause is over, because no missed
// fire is made up for during a pause. It reports false if no pause lasts. It also reports false if the job has no later
// fire time, for example because it is disabled now. Decide then applies the misfire policy at once.
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
	d.park(j, first, pause, now, set)
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

// missedTimes are missed fire times in order: first those that already have a run, then those without one.
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

// judge applies the misfire policy to the missed fire times. The latest ones fire now, in order, before fire times that
// are due later. The others go to the ledger.
func (d *Decision) judge(j Job, m missedTimes, now time.Time, set Settings) {
	if m.len() == 0 {
		return
	}
	fires := 0
	policy := j.Misfire
	if j.Closing && domain.PauseAt(j.Paused, now) != nil {
		policy = domain.MisfireSkip // firing now would be firing during the pause
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
		d.MissedWhy = j.why(policy, m.at(0), m.at(dropped-1), now, set)
		d.Missed = &domain.Missed{
			First: domain.At(m.at(0)), Last: domain.At(m.at(dropped - 1)), Count: dropped, Policy: policy,
			At: domain.At(now), Why: d.MissedWhy.Explanation(),
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

// why returns the explanation of why the fire times from first to last were dropped.
func (j *Job) why(policy domain.Misfire, first, last, now time.Time, set Settings) explain.Note {
	began, ended := j.pauseOf(first), j.pauseOf(last)
	pauses := explain.List{}
	for i := range j.Paused {
		if p := &j.Paused[i]; p.Covers(j.Schedule.Due(j.ID, first)) || p.Covers(j.Schedule.Due(j.ID, last)) {
			pauses = append(pauses, []any{p.Group, domain.At(p.From).String(), instantOrNone(p.To), p.By, p.Reason, p.Over(now), p.JobID != 0})
		}
	}
	outcome, latest := explain.OutcomeSkip, 0
	switch policy {
	case domain.MisfireFireOnce:
		outcome = explain.OutcomeFireOnce
	case domain.MisfireFireAll:
		outcome, latest = explain.OutcomeFireAll, set.FireAllMax
	case domain.MisfireSkip:
		if policy != j.Misfire || j.Closing && ended != nil {
			outcome = explain.OutcomeChanged
		}
	}
	switch {
	case began != nil && began.JobID != 0:
		return explain.Of(explain.JobPaused, outcome, latest, pauses)
	case began != nil:
		return explain.Of(explain.GroupPaused, outcome, latest, pauses)
	}
	late := now.Sub(first).Truncate(time.Second)
	if d := j.disturbance(first, set.Tolerance); d != nil {
		from, to := domain.At(d.From).String(), domain.At(d.To).String()
		if d.Kind == domain.ClockStep {
			return explain.Of(explain.ClockStepped, outcome, latest, d.Step.Milliseconds(), from, to, pauses)
		}
		return explain.Of(explain.PostgresAway, outcome, latest, from, to, pauses)
	}
	return explain.Of(explain.NoScheduler, outcome, latest, set.Tolerance.Milliseconds(), late.Milliseconds(), pauses)
}

// disturbance returns why a fire time was missed although schedulers were running, or nil.
func (j *Job) disturbance(fire time.Time, tolerance time.Duration) *domain.Disturbance {
	due := j.Schedule.Due(j.ID, fire)
	for i := range j.Disturbed {
		if d := &j.Disturbed[i]; d.Delays(due, tolerance) {
			return d
		}
	}
	return nil
}

func (j *Job) pauseOf(fire time.Time) *domain.Pause {
	return domain.PauseAt(j.Paused, j.Schedule.Due(j.ID, fire))
}

// instantOrNone writes an instant, "" for the zero time.
func instantOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return domain.At(t).String()
}

// After returns the fire time of a fixed_delay job that follows a run which ended at end: one delay later, but not
// before the window opens. It returns zero if the window closes before that.
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

// First returns the fire time and due instant from which planning begins when a job is created, enabled or edited at
// now. This is the first fire time after decided whose due instant is after now. Decided is the newest fire time that
// keeps its run or ledger entry. First returns zero times if there is none.
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
	// Jitter moves a due instant after its fire time, but by less than the gap between two fire times, so the search
	// may begin one jitter ago.
	from := now.Add(-jitter - time.Millisecond)
	if decided.After(from) {
		from = decided
	}
	for fire = next(s, from); !fire.IsZero(); fire = next(s, fire) {
		//sim:seam edit-first-fire
		if due = s.Due(id, fire); due.After(now) {
			return fire, due
		}
	}
	return time.Time{}, time.Time{}
}

// Carried returns a fire time that an edit at now would otherwise lose, because the edit reduces the jitter. Both
// versions have the fire time. By the old version it is not due yet, and by the new one its due instant has passed. The
// returned due instant is the new version's. If it is late by more than the tolerance, the misfire policy decides.
// Decided is the newest fire time that keeps its run or ledger entry; jitter is the old version's. Carried returns zero
// times if no fire time would be lost.
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
