// Package firecheck says of every fire time what became of it: it ran, was dropped for a reason that is on record, or
// is unexplained. It is pure: the caller brings what Postgres has on record, and every instant.
//
// # What is expected
//
// Expected recomputes fire times from the versions of a job alone. A version that holds from one edit to the next has
// those fire times whose due instant lies after its beginning and not after its end, as package plan has it: an edit
// decides by the old version what is due by then, and plans by the new one what comes later. A fire time that both
// versions have and that falls between them, as the new one has less jitter, is the new one's (plan.Carried). One that a
// version had in its time, and whose due instant it did not live to see, is Cut; one of a version that was
// disabled is Disabled. Of the kinds none and fixed_delay nothing follows from the schedule alone.
//
// # What is on record
//
// The Facts must be read in this order, each by a statement of its own, so that nothing that moves meanwhile is
// missed: versions and planning (job_due), runs, ledger, days. What job_due says to be decided has been given a run or
// a ledger entry in the same transaction; a run may then only end, which the view of both tables sees as one, or be
// dropped to the ledger, which is read later; and a day is dropped with its runs after all.
//
// # What it does not see
//
// A run of the schedule whose fire time no version has. A fire time inside a ledger entry of several whose own run was
// deleted: the entry says how many it dropped, not which.
package firecheck

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Job is what is on record of a job and its planning.
type Job struct {
	ID          domain.JobID
	Name, Group string
	Versions    []Version // in order; at least those that held in the span
	// NextFire is the first fire time that planning has not decided yet; zero when there is none. It and all later
	// ones may still get a run.
	NextFire time.Time
}

// Version is a version of a job.
type Version struct {
	Number    int
	From, To  time.Time // it holds after From up to To; To is zero while it holds
	Group     string
	Enabled   bool
	Deleted   bool // the job was deleted; nothing holds from then on
	Misfire   domain.Misfire
	Schedule  *schedule.Schedule // nil: it cannot be compiled any more, and Fault says why
	Fault     string
	Jitter    time.Duration
	Retention time.Duration // how long finished runs are kept; 0: the server's
	By        string        // who made it
	Change    string        // created, edited, enabled, disabled, deleted, calendar (its days off changed)
}

// holds reports whether the version held at t.
func (v *Version) holds(t time.Time) bool {
	return t.After(v.From) && (v.To.IsZero() || !t.After(v.To))
}

// Chained reports whether the ends of runs set the version's fire times.
func (v *Version) Chained() bool {
	return v.Schedule != nil && v.Schedule.Kind() == domain.ScheduleFixedDelay
}

// Claim says how a version has a fire time.
type Claim string

// The claims.
const (
	Owned    Claim = "owned"    // it was due while the version held: it must have a run or a ledger entry
	Cut      Claim = "cut"      // the version ended before its due instant, and no later one has it
	Disabled Claim = "disabled" // the version was disabled
)

// Fire is a fire time that a version of the job has.
type Fire struct {
	Time, Due time.Time
	Version   int // index into Job.Versions
	Claim     Claim
}

// ID returns the id that the fire time's run has, or its first shard.
func (f *Fire) ID(job domain.JobID) domain.RunID { return domain.ScheduledRunID(job, f.Time, 0) }

// Expected lists the fire times that are due after since and not after until, by due instant. Of more than limit
// it returns some, and all that are due by through; where it returns all, through is until.
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

// expectedOf appends what one version has. It lowers until when it comes to the limit.
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

// claim says how the fire's version has it, and false where another version has the better claim.
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
		return claim, false // it was never this version's: its time came while another one held
	}
	for i := range job.Versions {
		switch w := &job.Versions[i]; {
		case i == f.Version:
		case job.carries(i, f.Time):
			return claim, false
		case claim == Owned && i > f.Version:
		case w.From.Add(-w.Jitter).After(f.Time) || !w.To.IsZero() && w.To.Before(f.Time): // far from it
		case job.owns(i, f.Time):
			return claim, false // an earlier one decided it, or a later one has it
		}
	}
	return claim, true
}

// carried returns the fire time that the edit which made the version carried over to it, if there is one: the version
// before had it still to come, for this one it is past due.
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
					return fire, false // it was decided long before
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

// owns reports whether f is a fire time of an enabled version that is due while it holds.
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

// Run is a run of a fire time as it is on record.
type Run struct {
	ID           domain.RunID
	Version      int // of the job, its number
	Cause        domain.Cause
	State        domain.State
	Reason       domain.Reason
	Message      string
	Waiting      *explain.Explanation
	Instance     string
	Attempt      int
	FireTime     time.Time
	DueAt        time.Time // of a held run: its release; of a misfire: when it was decided
	DispatchedAt time.Time // zero: never bound
	StartedAt    time.Time // of the last attempt; zero: never started
	FinishedAt   time.Time // zero: unfinished
	LatenessMS   *int64    // of the first attempt against DueAt
	HeldBy       *domain.RunID
	Shards       int // of a broadcast, in all
	Missing      int // shards that are not on record
}

// Missed is an entry of the missed ledger.
type Missed struct {
	ID int64
	domain.Missed
}

// Gap is a time in which no scheduler was at work. To is zero while it lasts.
type Gap struct{ From, To time.Time }

// Facts are what is on record of the fire times of one job.
type Facts struct {
	Job    *Job
	Runs   map[domain.RunID][]Run // by the id of the fire time's run or first shard
	Missed []Missed               // all that overlap the fire times
	// Later has, by the Unix milliseconds of a fire time that MayBeOvertaken, the fire time of a run that is later
	// and of an earlier version.
	Later map[int64]time.Time
	Away  []Gap
	// Paused are the pauses of the groups that the job was in, as far as they overlap the fire times.
	Paused []domain.Pause
	Kept   func(day time.Time) bool // whether the history of a UTC day is there
	Now    time.Time
	// Tolerance is how late a run may be without being called late.
	Tolerance time.Duration
}

// Settled is how long after its due instant a fire time without a run must have been decided: until then it may
// be just about to be.
const Settled = 30 * time.Second

// Ahead is how far ahead of its due instant a run may be admitted; from then on an edit leaves it alone.
const Ahead = 250 * time.Millisecond

// shortGap is what a gap between the signs of life of schedulers must exceed to count as their absence.
const shortGap = 3 * time.Second

// Gaps returns when no scheduler was at work, up to now, from the times that each was, in order of their beginning.
// Before the first of them nothing is known.
func Gaps(present []Gap, now time.Time) []Gap {
	var gaps []Gap
	var seen time.Time
	for _, p := range present {
		if !seen.IsZero() && p.From.Sub(seen) > shortGap {
			gaps = append(gaps, Gap{From: seen, To: p.From})
		}
		if p.To.After(seen) {
			seen = p.To
		}
	}
	// The newest sign of life is as old as the pause between two of them.
	if !seen.IsZero() && now.Sub(seen) > 2*shortGap {
		gaps = append(gaps, Gap{From: seen})
	}
	return gaps
}

// paused returns the pause in which a fire time is due.
func (f *Facts) paused(fire *Fire) *domain.Pause {
	group := f.Job.Versions[fire.Version].Group
	for i := range f.Paused {
		if p := &f.Paused[i]; p.Group == group && p.Covers(fire.Due) {
			return p
		}
	}
	return nil
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
