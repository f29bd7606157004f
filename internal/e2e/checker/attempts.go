package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// early is how long before its due instant an attempt may start. An executor estimates the database's clock from the estimate of
// the process that makes the offer. The same error is allowed for the instant of a verdict.
const early = 250 * time.Millisecond

// starts compares the starts that the handlers wrote down with the attempts in the database.
func (c *check) starts() {
	for t, notes := range c.notes {
		if len(notes) > 1 {
			c.fail(RuleStart, "attempt %d of the run %s started %d times: on %s at %s, on %s at %s", t.attempt, t.run, len(notes),
				notes[0].Instance, clock(notes[0].Start.UnixMilli()), notes[1].Instance, clock(notes[1].Start.UnixMilli()))
		}
		r := c.runs[t.run]
		if r == nil {
			c.fail(RuleStart, "the run %s started on %s and is not in the database", t.run, notes[0].Instance)
			continue
		}
		a := c.tries[t]
		if a == nil {
			c.fail(RuleStart, "attempt %d of the run %s started on %s and is not in the database", t.attempt, t.run, notes[0].Instance)
			continue
		}
		for _, n := range notes {
			if a.Instance != n.Instance {
				c.fail(RuleStart, "attempt %d of the run %s started on %s, and was bound to %q", t.attempt, t.run, n.Instance, a.Instance)
			}
			if c.startedLost(a, n) {
				c.fail(RuleVerdict, "attempt %d of the run %s started on %s at %s, %v after it was declared lost", t.attempt, t.run, n.Instance,
					clock(n.Start.UnixMilli()), n.Start.Sub(a.FinishedAt).Round(time.Millisecond))
			}
			if due := r.earliest(a); n.Start.Before(due.Add(-early - c.slack(due))) {
				c.fail(RuleEarly, "attempt %d of the run %s (%s) started %v before it was due, at %s on %s", t.attempt, t.run, r.Cause,
					due.Sub(n.Start).Round(time.Millisecond), clock(n.Start.UnixMilli()), n.Instance)
			}
		}
	}
}

// startedLost reports whether an attempt started after it was declared lost. The instant of the verdict comes from the
// dispatcher's estimate of the database's clock.
func (c *check) startedLost(a *Attempt, n *Note) bool {
	return a.Reason == domain.ReasonLost && n.Start.After(a.FinishedAt.Add(early+c.slack(a.FinishedAt)))
}

// earliest returns the first instant at which an attempt of the run may start. If a run ended while it waited for its next
// attempt, DueAt is the due instant of that attempt.
func (r *Run) earliest(a *Attempt) time.Time {
	switch {
	case !r.scheduled():
		return r.CreatedAt
	case r.Attempt == 1 && a.last:
		return r.DueAt
	}
	return r.FireTime
}

// ends compares the ends that the handlers wrote down with the database, and each success with its handler.
func (c *check) ends() {
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		if r.State != domain.Succeeded {
			continue
		}
		if notes := c.notes[try{r.ID, r.Attempt}]; len(notes) == 0 || notes[0].Outcome != OK {
			c.fail(RuleEffect, "the run %s succeeded at attempt %d, but its handler %s", r.ID, r.Attempt, said(notes))
		}
	}
	for t, notes := range c.notes {
		a, r := c.tries[t], c.runs[t.run]
		if a == nil || r == nil {
			continue // starts reports it
		}
		for _, n := range notes {
			if !n.End.IsZero() && !c.known(r, a, n) {
				c.fail(RuleResult, "attempt %d of the run %s ended %s at %s on %s, but the database has %s/%s", t.attempt, t.run,
					n.Outcome, clock(n.End.UnixMilli()), n.Instance, a.Outcome, a.Reason)
			}
		}
	}
}

func said(notes []*Note) string {
	switch {
	case len(notes) == 0:
		return "never started"
	case notes[0].End.IsZero():
		return "never ended"
	}
	return "ended " + notes[0].Outcome
}

// known reports whether the database has the end that the handler wrote down, or may have a different one.
func (c *check) known(r *Run, a *Attempt, n *Note) bool {
	// A kill between the end of a handler and the write of its result to disk loses the result. The write takes longer while
	// the disk is busy.
	gap := 5 * time.Second
	volatile := slices.Contains(c.h.Volatile, n.Instance)
	if volatile {
		gap = named // results wait while NATS or the dispatchers have a fault
	}
	stopped := a.Reason == domain.ReasonKilled || a.Reason == domain.ReasonCovered
	switch late := c.late[try{a.Run, a.Attempt}]; {
	case stopped && (late != nil || c.endedWithin(n.Instance, n.End, gap)): // it was stopped while its instance was unreachable or gone
		return true
	case stopped && slices.Contains(c.h.KillWins, n.Instance):
		return true
	case a.Reason == domain.ReasonLost:
		return late != nil || c.endedWithin(n.Instance, n.End, gap) || volatile && c.terminated(n.Instance, n.End)
	case a.Reason == domain.ReasonTimeout:
		return true // a timeout overrides the handler's result
	case stopped && c.overran(r, n):
		return true // the attempt had timed out, so a kill may override its success
	case n.Outcome == OK:
		return a.Outcome == string(domain.Succeeded)
	case a.Outcome == string(domain.Succeeded):
		return false
	case n.Outcome == Panic:
		return a.Reason == domain.ReasonHandlerPanic || stopped || c.h.Kills[r.ID]
	}
	return a.Reason == domain.ReasonHandlerError || a.Reason == domain.ReasonDrained || stopped || c.h.Kills[r.ID]
}

// overran reports whether a handler ended after its timeout, which begins a little before the handler writes its start.
func (c *check) overran(r *Run, n *Note) bool {
	const before = 100 * time.Millisecond
	j := c.jobs[r.Job]
	if j == nil {
		return false // index reports it
	}
	v := j.version(r.Version)
	return v != nil && v.Spec.Timeout > 0 && n.ended.Sub(n.began) > v.Spec.Timeout.Std()-before
}

// endedWithin reports whether a fault ended a process within d after an instant.
func (c *check) endedWithin(target string, at time.Time, d time.Duration) bool {
	slack := c.slack(at)
	return slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
		return f.Target == target && f.ends() && !f.From.Before(at.Add(-slack)) && f.From.Before(at.Add(d+slack))
	})
}

// terminated reports whether a process was stopping at an instant.
func (c *check) terminated(target string, at time.Time) bool {
	slack := c.slack(at)
	return slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
		return f.Target == target && f.terminates() && !f.From.After(at.Add(slack)) && !f.To.Before(at.Add(-slack))
	})
}

// named is how long after the end of a fault an attempt may be declared lost because of it. The verdict waits for the lease to
// expire, and needs NATS and Postgres.
const named = 60 * time.Second

// losses checks RuleLost.
func (c *check) losses() {
	for t, a := range c.tries {
		if a.Reason != domain.ReasonLost {
			continue
		}
		c.report.Lost++
		if len(c.notes[t]) == 0 {
			c.report.Unstarted++
		}
		from := a.DispatchedAt
		if from.IsZero() {
			from = c.runs[t.run].CreatedAt
		}
		if !slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
			return f.Target == a.Instance && f.stops() && !f.From.After(a.FinishedAt.Add(c.slack(from))) && !f.To.Add(named+c.slack(from)).Before(from)
		}) {
			c.fail(RuleLost, "attempt %d of the run %s was dispatched to %q at %s and declared lost at %s, but that instance had no fault",
				t.attempt, t.run, a.Instance, clock(from.UnixMilli()), clock(a.FinishedAt.UnixMilli()))
		}
	}
}

// drains checks that a drained attempt had started, on an instance that received SIGTERM, and that its handler did not succeed.
func (c *check) drains() {
	const settles = 5 * time.Second // the error of the end's instant, which is an executor's estimate
	for t, a := range c.tries {
		if a.Reason != domain.ReasonDrained {
			continue
		}
		c.report.Drained++
		if notes := c.notes[t]; len(notes) == 0 || notes[0].Outcome == OK || notes[0].Outcome == Panic {
			c.fail(RuleDrained, "attempt %d of the run %s is drained, but its handler %s", t.attempt, t.run, said(notes))
			continue
		}
		from := c.notes[t][0].Start
		if !slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
			return f.Target == a.Instance && f.terminates() && f.From.Before(a.FinishedAt.Add(settles+c.slack(from))) && f.To.Add(c.slack(from)).After(from)
		}) {
			c.fail(RuleDrained, "attempt %d of the run %s was drained at %s, but %s had received no SIGTERM", t.attempt, t.run,
				clock(a.FinishedAt.UnixMilli()), a.Instance)
		}
	}
}

// zombie reports whether an attempt may have continued after it had ended in the database: it was declared lost, it timed out, or
// it was killed while its instance was unreachable. The result of such a killed attempt is stored only if it is a success. An
// attempt that started after it was declared lost is not a zombie.
func (c *check) zombie(t try, a *Attempt, n *Note) bool {
	if c.startedLost(a, n) {
		return false
	}
	if a.Reason == domain.ReasonLost || a.Reason == domain.ReasonTimeout || c.late[t] != nil {
		return true
	}
	if a.Reason != domain.ReasonKilled && a.Reason != domain.ReasonCovered || !n.End.After(a.FinishedAt.Add(-c.slack(a.FinishedAt))) {
		return false
	}
	slack := c.slack(a.FinishedAt)
	return slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
		return f.Target == a.Instance && f.stops() && f.From.Before(a.FinishedAt.Add(slack)) && n.Start.Before(f.To.Add(slack))
	})
}

// retries checks the number of attempts of a run.
func (c *check) retries(r *Run) {
	j := c.jobs[r.Job]
	if j == nil || j.version(r.Version) == nil {
		return
	}
	most := 1 + j.version(r.Version).Spec.Retries
	if r.Attempt > most {
		c.fail(RuleRetry, "the run %s of %s had %d attempts; %d are allowed", r.ID, j.name(), r.Attempt, most)
	}
	for n := 1; n < r.Attempt; n++ {
		a := c.tries[try{r.ID, n}]
		switch {
		case a == nil:
			c.fail(RuleRetry, "the run %s is at attempt %d, but its attempt %d is not in the database", r.ID, r.Attempt, n)
		case a.Outcome == string(domain.Succeeded):
			c.fail(RuleRetry, "the run %s had another attempt after its attempt %d had succeeded", r.ID, n)
		}
	}
	if r.State != domain.Failed || r.Attempt >= most || j.deleted || c.h.Kills[r.ID] {
		return
	}
	switch r.Reason {
	case domain.ReasonHandlerError, domain.ReasonHandlerPanic, domain.ReasonTimeout, domain.ReasonLost, domain.ReasonDrained:
		if !slices.ContainsFunc(c.notes[try{r.ID, r.Attempt}], func(n *Note) bool { return n.Outcome == Permanent }) {
			c.fail(RuleRetry, "the run %s of %s failed with %s at attempt %d of %d, and had no further attempt", r.ID, j.name(), r.Reason, r.Attempt, most)
		}
	case domain.NoReason, domain.ReasonHandlerNotFound, domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonKilled,
		domain.ReasonDiscarded, domain.ReasonCovered, domain.ReasonJobDeleted, domain.ReasonBadScript, domain.ReasonUnsupported:
	}
}

// reasons checks that the history confirms the reason of a run's end.
func (c *check) reasons(r *Run) {
	j := c.jobs[r.Job]
	if j == nil || j.version(r.Version) == nil || !r.State.Final() {
		return
	}
	spec := &j.version(r.Version).Spec
	wrong := func(why string) {
		c.fail(RuleReason, "the run %s of %s is %s/%s, but %s", r.ID, j.name(), r.State, r.Reason, why)
	}
	notes := c.notes[try{r.ID, r.Attempt}]
	switch r.Reason {
	case domain.NoReason:
		if r.State != domain.Succeeded {
			wrong("it has no reason")
		}
	case domain.ReasonKilled:
		if !c.h.Kills[r.ID] {
			wrong("there was no kill request")
		}
	case domain.ReasonJobDeleted:
		if !j.deleted {
			wrong("the job was not deleted")
		}
	case domain.ReasonDiscarded:
		if spec.Block != domain.BlockDiscardLater {
			wrong("the block policy is " + string(spec.Block))
		}
	case domain.ReasonCovered:
		if spec.Block != domain.BlockCoverEarly {
			wrong("the block policy is " + string(spec.Block))
		}
		if r.State == domain.Skipped && len(notes) > 0 {
			wrong("the handler " + said(notes))
		}
		if !slices.ContainsFunc(j.runs, func(o *Run) bool {
			return cmp.Or(o.Broadcast, o.ID) != cmp.Or(r.Broadcast, r.ID) && c.mayCover(o, r, spec)
		}) {
			wrong("the job has no newer run")
		}
	case domain.ReasonQueueFull:
		if spec.Block != domain.BlockSerial {
			wrong("the block policy is " + string(spec.Block))
		}
	case domain.ReasonTimeout:
		if spec.Timeout == 0 {
			wrong("the job has no timeout")
		}
	case domain.ReasonHandlerError:
		if len(notes) == 0 || notes[0].Outcome == OK || notes[0].Outcome == Panic {
			wrong("the handler " + said(notes))
		}
	case domain.ReasonHandlerPanic:
		if len(notes) == 0 || notes[0].Outcome != Panic {
			wrong("the handler " + said(notes))
		}
	case domain.ReasonNoExecutor:
		pinned := r.Broadcast != "" && spec.Shards == 0 // such a shard ends if its instance is gone
		if waited := r.FinishedAt.Sub(r.CreatedAt); !pinned && waited < spec.StartDeadline.Std()-time.Second-c.slack(r.FinishedAt) {
			wrong("it waited for " + waited.String() + " only")
		}
		if len(notes) > 0 {
			wrong("the handler " + said(notes))
		}
	case domain.ReasonLost, domain.ReasonDrained: // the functions losses and drains check these reasons
	case domain.ReasonHandlerNotFound, domain.ReasonBadScript, domain.ReasonUnsupported:
		wrong("every instance has the handler")
	}
}

// mayCover reports whether run o may have become due after run r, so that o may cover r. The database does not keep when a run
// became due if the run was held or retried. Therefore mayCover uses the fire time, or the creation. A child or a misfire may have
// become due at any later time.
func (c *check) mayCover(o, r *Run, spec *domain.JobSpec) bool {
	came := func(r *Run) time.Time {
		if r.Cause == domain.CauseSchedule && !r.FireTime.IsZero() {
			return r.FireTime
		}
		return r.CreatedAt
	}
	const clocks = 500 * time.Millisecond // the largest difference between the clocks of two processes
	switch o.Cause {
	case domain.CauseMisfire, domain.CauseChild:
		return true
	case domain.CauseSchedule, domain.CauseManual, domain.CauseAPI, domain.CauseEvent, domain.CauseBackfill:
	}
	return !came(o).Add(spec.Schedule.Jitter.Std() + clocks + c.slack(came(r))).Before(came(r))
}

// call is one call of a handler.
type call struct {
	note     *Note
	from, to time.Time
	owner    string // the run, or the broadcast that it belongs to
}

// overlaps checks RuleOverlap by the handlers' notes. Zombies do not count.
func (c *check) overlaps(j *job) {
	var calls []call
	for _, r := range j.runs {
		v := j.version(r.Version)
		if v == nil || v.Spec.Block == domain.BlockParallel {
			continue
		}
		for n := 1; n <= r.Attempt; n++ {
			t := try{r.ID, n}
			a := c.tries[t]
			if a == nil {
				continue
			}
			for _, note := range c.notes[t] {
				if note.End.IsZero() || c.zombie(t, a, note) {
					continue // without an end, it was killed, or another rule reports it
				}
				calls = append(calls, call{note, note.began, note.ended, cmp.Or(r.Broadcast, r.ID)})
			}
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return a.from.Compare(b.from) })
	byInstance := slices.ContainsFunc(j.versions, func(v *Version) bool { return v.Spec.BlockScope == domain.ScopeInstance })
	latest := make(map[string]call) // by scope: the one that ends last
	for _, one := range calls {
		scope := ""
		if byInstance {
			scope = one.note.Instance
		}
		last, found := latest[scope]
		if found && one.owner != last.owner && one.from.Before(last.to) {
			c.fail(RuleOverlap, "%s: the run %s (attempt %d, %s to %s on %s) overlaps %s (attempt %d, %s to %s on %s)", j.name(),
				last.note.Run, last.note.Attempt, clock(last.from.UnixMilli()), clock(last.to.UnixMilli()), last.note.Instance,
				one.note.Run, one.note.Attempt, clock(one.from.UnixMilli()), clock(one.to.UnixMilli()), one.note.Instance)
		}
		if !found || one.to.After(last.to) {
			latest[scope] = one
		}
	}
}
