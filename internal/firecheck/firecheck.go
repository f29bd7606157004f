// Package firecheck explains each fire time of a job: it ran, it was dropped for a recorded reason, or it is unexplained. It is
// pure. The caller passes the records of Postgres and the current time.
//
// # Expected fire times
//
// Expected computes fire times from the versions of a job only. A version is in force from one edit to the next. Its fire times are
// those whose due instant lies after the start of this period and not after its end. This agrees with package plan: an edit first
// decides by the old version all fire times that are due, and then plans the later ones by the new version. There are three
// special cases:
//
//   - Both versions have the fire time. By the old version it is due after the edit; by the new one, which has less jitter, it was
//     due before the edit. The fire time then belongs to the new version (plan.Carried).
//   - The fire time lies in the period of its version, but its due instant lies after the end. Its claim is Cut.
//   - The version is disabled. The claim is Disabled.
//
// The fire times of schedules of kind none and fixed_delay do not follow from the schedule.
//
// # Recorded facts
//
// The caller must read the Facts with separate statements in this order: versions and planning (job_due), runs, ledger, days.
// With this order, concurrent changes hide no record. If job_due says that a fire time is decided, the same transaction has written
// its run or ledger entry. After that, the run may end, but a view unites the tables of unfinished and ended runs. Or the run is
// dropped to the ledger, which is read later. A day is dropped together with its runs, and days are read last.
//
// # Restores
//
// After a restore of the database to an earlier state, fire times that were due between that state and the restore may have run:
// the database does not know. The command `belfry restored` enters them into the missed ledger with the code restored, so that no
// misfire policy runs them again, and records the restore as a disturbance. Their fate is uncertain, not missed. The same fate has
// a fire time whose run was unfinished in the restored state and starts after it, because the run may have started before, too. See
// the section about restores in the package comment of internal/store.
//
// # Texts
//
// The texts are English, or simplified Chinese if Facts.Language says so. Each place has both texts side by side, so that they say
// the same. The dispatcher stores the reason of unexplained fire times from English facts.
//
// # Limits
//
// The check does not find a run whose fire time belongs to no version. It also does not find the deleted run of a fire time that
// lies within a ledger entry of several fire times, because the entry contains their number but not the fire times.
package firecheck

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Job contains the records of a job and its planning.
type Job struct {
	ID          domain.JobID
	Name, Group string
	Versions    []Version // in order; at least those that were in force in the period
	// NextFire is the first fire time that planning has not decided yet; zero if there is none. It and all later ones may still
	// get a run.
	NextFire time.Time
}

// Version is a version of a job.
type Version struct {
	Number    int
	From, To  time.Time // it is in force after From and until To; To is zero for the current version
	Group     string
	Enabled   bool
	Deleted   bool // the job was deleted; no version is in force from then on
	Misfire   domain.Misfire
	Schedule  *schedule.Schedule // nil: it no longer compiles, and Fault contains the error
	Fault     string
	Jitter    time.Duration
	Retention time.Duration // how long finished runs are kept; 0: the server's setting
	By        string        // who created it
	Change    string        // created, edited, enabled, disabled, deleted, calendar (the calendar's days off changed)
}

// holds reports whether the version was in force at t.
func (v *Version) holds(t time.Time) bool {
	return t.After(v.From) && (v.To.IsZero() || !t.After(v.To))
}

// Chained reports whether the version's fire times follow from the ends of runs.
func (v *Version) Chained() bool {
	return v.Schedule != nil && v.Schedule.Kind() == domain.ScheduleFixedDelay
}

// Claim is the relation of a version to a fire time.
type Claim string

// The claims.
const (
	Owned    Claim = "owned"    // it was due while the version was in force: it must have a run or a ledger entry
	Cut      Claim = "cut"      // the version ended before its due instant, and no later version has it
	Disabled Claim = "disabled" // the version was disabled
)

// Fire is a fire time of a version of the job.
type Fire struct {
	Time, Due time.Time
	Version   int // index into Job.Versions
	Claim     Claim
}

// ID returns the id of the fire time's run, or of its first shard.
func (f *Fire) ID(job domain.JobID) domain.RunID { return domain.ScheduledRunID(job, f.Time, 0) }

// Expected returns the fire times that are due after since and not after until, ordered by due instant. If there are more than
// about limit, it returns only those that are due by through. Otherwise through equals until.
func Expected(job *Job, since, until time.Time, limit int) (fires []Fire, through time.Time) {
	through = until
	for i := range job.Versions {
		v := &job.Versions[i]
		if v.Deleted || v.Schedule == nil || v.Chained() {
			continue
		}
		fires, through = job.expectedOf(i, fires, since, through, limit)
	}
	fires = slices.DeleteFunc(fires, func(f Fire) bool { return f.Due.After(through) })
	slices.SortFunc(fires, func(a, b Fire) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return a.Time.Compare(b.Time)
	})
	return fires, through
}

// expectedOf appends the fire times of one version. It lowers until when it reaches the limit.
func (job *Job) expectedOf(index int, fires []Fire, since, until time.Time, limit int) ([]Fire, time.Time) {
	v := &job.Versions[index]
	if f, ok := job.carried(index); ok && f.Due.After(since) && !f.Due.After(until) {
		fires = append(fires, f)
	}
	after := v.From
	if since.After(after) {
		after = since
	}
	for f, ok := v.Schedule.Next(after.Add(-v.Jitter - time.Millisecond)); ok; f, ok = v.Schedule.Next(f) {
		fire := Fire{Time: f, Due: v.Schedule.Due(job.ID, f), Version: index}
		switch {
		case fire.Due.After(until) || !v.To.IsZero() && f.After(v.To):
			return fires, until
		case !fire.Due.After(after):
			continue
		}
		if fire.Claim, ok = job.claim(&fire); !ok {
			continue
		}
		fires = append(fires, fire)
		if len(fires) >= limit {
			until = fire.Due
		}
	}
	return fires, until
}

// claim returns the claim of the fire's version. It returns false if the fire time belongs to another version.
func (job *Job) claim(f *Fire) (Claim, bool) {
	v := &job.Versions[f.Version]
	claim := Owned
	switch {
	case !v.Enabled:
		claim = Disabled
	case !v.holds(f.Due):
		claim = Cut
	}
	if claim != Owned && !v.holds(f.Time) {
		return claim, false // the fire time lies in the period of another version
	}
	for i := range job.Versions {
		switch w := &job.Versions[i]; {
		case i == f.Version:
		case job.carries(i, f.Time):
			return claim, false
		case claim == Owned && i > f.Version:
		case w.From.Add(-w.Jitter).After(f.Time) || !w.To.IsZero() && w.To.Before(f.Time): // it cannot be due in the period of this version
		case job.owns(i, f.Time):
			return claim, false // an earlier version decided it, or it belongs to a later one
		}
	}
	return claim, true
}

// carried returns the fire time that an edit carried over to the version that it created, if there is one: a fire time that the
// previous version had not reached yet and that is past due by the new one.
func (job *Job) carried(index int) (fire Fire, ok bool) {
	if index == 0 {
		return fire, false
	}
	v, old := &job.Versions[index], &job.Versions[index-1]
	for _, w := range []*Version{v, old} {
		if !w.Enabled || w.Deleted || w.Schedule == nil || w.Chained() {
			return fire, false
		}
	}
	if old.Jitter == 0 {
		return fire, false
	}
	for f, ok := old.Schedule.Next(v.From.Add(-old.Jitter - time.Millisecond)); ok && !f.After(v.From); f, ok = old.Schedule.Next(f) {
		due := v.Schedule.Due(job.ID, f)
		if old.Schedule.Due(job.ID, f).After(v.From) && isFire(v.Schedule, f) && !due.After(v.From) {
			for i := range index {
				if job.owns(i, f) || job.carries(i, f) {
					return fire, false // an earlier version decided it
				}
			}
			return Fire{Time: f, Due: due, Version: index, Claim: Owned}, true
		}
	}
	return fire, false
}

// carries reports whether f was carried over to the version.
func (job *Job) carries(index int, f time.Time) bool {
	if index == 0 || f.After(job.Versions[index].From) || job.Versions[index].From.Sub(f) > job.Versions[index-1].Jitter {
		return false
	}
	carried, ok := job.carried(index)
	return ok && carried.Time.Equal(f)
}

// owns reports whether f is a fire time of the version and due while the version is in force and enabled.
func (job *Job) owns(index int, f time.Time) bool {
	v := &job.Versions[index]
	if v.Deleted || !v.Enabled || v.Schedule == nil || !isFire(v.Schedule, f) {
		return false
	}
	return v.holds(v.Schedule.Due(job.ID, f))
}

func isFire(s *schedule.Schedule, t time.Time) bool {
	next, ok := s.Next(t.Add(-1))
	return ok && next.Equal(t)
}

// Run is the record of a fire time's run.
type Run struct {
	ID           domain.RunID
	Version      int // number of the job's version
	Cause        domain.Cause
	State        domain.State
	Reason       domain.Reason
	Message      string
	Waiting      *explain.Explanation
	Instance     string
	Attempt      int
	FireTime     time.Time
	DueAt        time.Time // for a held run: its release; for a misfire: when planning decided it
	DispatchedAt time.Time // zero: never bound
	StartedAt    time.Time // of the last attempt; zero: never started
	FinishedAt   time.Time // zero: unfinished
	LatenessMS   *int64    // of the first attempt against DueAt
	HeldBy       *domain.RunID
	Shards       int // total number of shards of a broadcast
	Missing      int // number of shards without a record
}

// Missed is an entry of the missed ledger.
type Missed struct {
	ID int64
	domain.Missed
}

// Gap is a period in which no scheduler served fire times. To is zero if it has not ended.
type Gap struct {
	From, To time.Time
	Fault    *domain.Disturbance // why schedulers that were running served none; nil: none was running
}

// Facts contains the records about the fire times of one job.
type Facts struct {
	Job    *Job
	Runs   map[domain.RunID][]Run // by the id of the fire time's run or first shard
	Missed []Missed               // all that overlap the fire times
	// Later maps a fire time in Unix milliseconds, if MayBeOvertaken, to the later fire time of a run of an earlier version.
	Later map[int64]time.Time
	Away  []Gap
	// Disturbed contains the disturbances since the first fire time.
	Disturbed []domain.Disturbance
	// Paused contains the pauses of the job and of its groups that overlap the fire times. Those of other jobs and groups are ignored.
	Paused []domain.Pause
	Kept   func(day time.Time) bool // whether the history of a UTC day still exists
	Now    time.Time
	// Tolerance is the lateness up to which a run counts as punctual.
	Tolerance time.Duration
	Language  explain.Language // of the texts
}

// Settled is the time after its due instant within which planning may still decide a fire time. Only after it can a fire time be
// unexplained.
const Settled = 30 * time.Second

// Ahead is how far ahead of its due instant a run may be admitted. An edit does not affect an admitted run.
const Ahead = 250 * time.Millisecond

// shortGap is the length that a gap between scheduler presence records must exceed to count as a Gap.
const shortGap = 3 * time.Second

// Gaps returns the periods until now in which no scheduler served fire times. present contains the periods in which one was
// running, ordered by their start. Nothing is known about the time before the first one. A gap that disturbances explain has
// a Fault: a step of the clock, with or without a gap in the presence of schedulers, and an absence of Postgres, because a
// scheduler records its presence in Postgres.
func Gaps(present []Gap, disturbed []domain.Disturbance, now time.Time) []Gap {
	var gaps []Gap
	var seen time.Time
	for i := range disturbed {
		if d := &disturbed[i]; d.Kind == domain.ClockStep && !d.Back() {
			gaps = append(gaps, Gap{From: d.From, To: d.To, Fault: d})
		}
	}
	for _, p := range present {
		if !seen.IsZero() && p.From.Sub(seen) > shortGap {
			gaps = appendGap(gaps, Gap{From: seen, To: p.From}, disturbed)
		}
		if p.To.After(seen) {
			seen = p.To
		}
	}
	// Because schedulers record their presence periodically, the newest record is up to one period old.
	if !seen.IsZero() && now.Sub(seen) > 2*shortGap {
		gaps = append(gaps, Gap{From: seen})
	}
	return gaps
}

// appendGap appends a gap in the presence of schedulers, in parts if disturbances explain some of it. A rest of at most
// shortGap beside a disturbance belongs to the disturbance.
func appendGap(gaps []Gap, g Gap, disturbed []domain.Disturbance) []Gap {
	for i := range disturbed {
		d := &disturbed[i]
		if d.Back() || !d.To.After(g.From) || !d.From.Before(g.To) {
			continue
		}
		if d.From.Sub(g.From) > shortGap {
			gaps = append(gaps, Gap{From: g.From, To: d.From})
			g.From = d.From
		}
		if g.To.Sub(d.To) <= shortGap {
			return append(gaps, Gap{From: g.From, To: g.To, Fault: d})
		}
		gaps = append(gaps, Gap{From: g.From, To: d.To, Fault: d})
		g.From = d.To
	}
	return append(gaps, g)
}

// paused returns the pauses of a job and of its group in which a fire time is due.
func (f *Facts) paused(fire *Fire) (in []*domain.Pause) {
	group := f.Job.Versions[fire.Version].Group
	for i := range f.Paused {
		if p := &f.Paused[i]; p.Of(f.Job.ID, group) && p.Covers(fire.Due) {
			in = append(in, p)
		}
	}
	return in
}

// away returns the gap in which t lies.
func (f *Facts) away(t time.Time) (Gap, bool) {
	i := slices.IndexFunc(f.Away, func(g Gap) bool {
		return !t.Before(g.From) && (g.To.IsZero() || !t.After(g.To))
	})
	if i < 0 {
		return Gap{}, false
	}
	return f.Away[i], true
}

// repeated returns the disturbance because of which the database's clock showed t twice.
func (f *Facts) repeated(t time.Time) *domain.Disturbance {
	for i := range f.Disturbed {
		if d := &f.Disturbed[i]; d.Back() && d.Covers(t) {
			return d
		}
	}
	return nil
}
