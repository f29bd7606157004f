package checker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// early is how far a start may lie before its due instant: executors know the database's clock by an estimate, which
// rests on that of whoever makes the offer. It is also the error that is allowed for the instant of a verdict.
const early = 250 * time.Millisecond

// starts checks promise 2: what the handlers wrote down against what the database says.
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
			c.fail(RuleStart, "attempt %d of the run %s started on %s, and the database knows of none", t.attempt, t.run, notes[0].Instance)
			continue
		}
		for _, n := range notes {
			if a.Instance != n.Instance {
				c.fail(RuleStart, "attempt %d of the run %s started on %s, and was %q's", t.attempt, t.run, n.Instance, a.Instance)
			}
			if a.startedLost(n) {
				c.fail(RuleVerdict, "attempt %d of the run %s started on %s at %s, %v after it was declared lost", t.attempt, t.run, n.Instance,
					clock(n.Start.UnixMilli()), n.Start.Sub(a.FinishedAt).Round(time.Millisecond))
			}
			if due := r.earliest(a); n.Start.Before(due.Add(-early)) {
				c.fail(RuleEarly, "attempt %d of the run %s (%s) started %v before it was due, at %s on %s", t.attempt, t.run, r.Cause,
					due.Sub(n.Start).Round(time.Millisecond), clock(n.Start.UnixMilli()), n.Instance)
			}
		}
	}
}

// startedLost reports whether an attempt started after it was declared lost. The instant of the verdict is the dispatcher's
// estimate of the database's clock.
func (a *Attempt) startedLost(n *Note) bool {
	return a.Reason == domain.ReasonLost && n.Start.After(a.FinishedAt.Add(early))
}

// earliest is the first instant at which an attempt of the run may start. A run that ended while it waited for its next
// attempt has the due instant of that one.
func (r *Run) earliest(a *Attempt) time.Time {
	switch {
	case !r.scheduled():
		return r.CreatedAt
	case r.Attempt == 1 && a.last:
		return r.DueAt
	}
	return r.FireTime
}

// ends checks promise 4, and that a success is one.
func (c *check) ends() {
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		if r.State != domain.Succeeded {
			continue
		}
		if notes := c.notes[try{r.ID, r.Attempt}]; len(notes) == 0 || notes[0].Outcome != OK {
			c.fail(RuleEffect, "the run %s succeeded at attempt %d, and its handler %s", r.ID, r.Attempt, said(notes))
		}
	}
	for t, notes := range c.notes {
		a, r := c.tries[t], c.runs[t.run]
		if a == nil || r == nil {
			continue // told by starts
		}
		for _, n := range notes {
			if !n.End.IsZero() && !c.known(r, a, n) {
				c.fail(RuleResult, "attempt %d of the run %s ended %s at %s on %s, and the database says %s/%s", t.attempt, t.run,
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

// known reports whether the database says of an attempt what its handler did, or may lawfully not.
func (c *check) known(r *Run, a *Attempt, n *Note) bool {
	// Between a handler's last word and its result on disk there is a moment in which a kill takes the result along. It
	// lasts while the disk is busy.
	const gap = 5 * time.Second
	stopped := a.Reason == domain.ReasonKilled || a.Reason == domain.ReasonCovered
	switch late := c.late[try{a.Run, a.Attempt}]; {
	case stopped && (late != nil || c.endedWithin(n.Instance, n.End, gap)): // it ended so while its instance could not be reached, or was gone
		return true
	case a.Reason == domain.ReasonLost:
		return late != nil || c.endedWithin(n.Instance, n.End, gap)
	case a.Reason == domain.ReasonTimeout:
		return true // counts whatever the handler returned
	case stopped && c.overran(r, n):
		return true // as it counts as timed out, it is no success that a kill would have to respect
	case n.Outcome == OK:
		return a.Outcome == string(domain.Succeeded)
	case a.Outcome == string(domain.Succeeded):
		return false
	case n.Outcome == Panic:
		return a.Reason == domain.ReasonHandlerPanic || stopped || c.h.Kills[r.ID]
	}
	return a.Reason == domain.ReasonHandlerError || a.Reason == domain.ReasonDrained || stopped || c.h.Kills[r.ID]
}

// overran reports whether a handler ended after its timeout, which runs from a little before its first word.
func (c *check) overran(r *Run, n *Note) bool {
	const before = 100 * time.Millisecond
	j := c.jobs[r.Job]
	if j == nil {
		return false // a fault of its own
	}
	v := j.version(r.Version)
	return v != nil && v.Spec.Timeout > 0 && n.End.Sub(n.Start) > v.Spec.Timeout.Std()-before
}

// endedWithin reports whether a process was ended, or frozen and then ended, within d after an instant.
func (c *check) endedWithin(target string, at time.Time, d time.Duration) bool {
	return slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
		return f.Target == target && f.ends() && !f.From.Before(at) && f.From.Before(at.Add(d))
	})
}

// named is how long after a fault was healed an attempt may be named lost for it: its verdict takes the lease, and then
// the servers must be there to tell.
const named = 60 * time.Second

// losses checks promise 3: an attempt is lost where its instance was ended, frozen, or cut off.
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
			return f.Target == a.Instance && f.stops() && !f.From.After(a.FinishedAt) && !f.To.Add(named).Before(from)
		}) {
			c.fail(RuleLost, "attempt %d of the run %s was dispatched to %q at %s and named lost at %s, and nothing had been done to that",
				t.attempt, t.run, a.Instance, clock(from.UnixMilli()), clock(a.FinishedAt.UnixMilli()))
		}
	}
}

// drains checks that a drained attempt had started, on an instance that received SIGTERM, and that its handler did not succeed.
func (c *check) drains() {
	const settles = 5 * time.Second // how far the instant of its end, an executor's estimate, may be off
	for t, a := range c.tries {
		if a.Reason != domain.ReasonDrained {
			continue
		}
		c.report.Drained++
		if notes := c.notes[t]; len(notes) == 0 || notes[0].Outcome == OK || notes[0].Outcome == Panic {
			c.fail(RuleDrained, "attempt %d of the run %s is drained, and its handler %s", t.attempt, t.run, said(notes))
			continue
		}
		from := c.notes[t][0].Start
		if !slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
			return f.Target == a.Instance && strings.HasPrefix(f.Kind, "stop ") && f.From.Before(a.FinishedAt.Add(settles)) && f.To.After(from)
		}) {
			c.fail(RuleDrained, "attempt %d of the run %s is drained at %s, and %s had received no SIGTERM", t.attempt, t.run,
				clock(a.FinishedAt.UnixMilli()), a.Instance)
		}
	}
}

// zombie reports whether an attempt may have gone on where nobody saw it, after it had been ended: it was named lost, its time
// was up, or it was killed while nobody could reach its instance. Of the last its result tells nothing new, unless it had succeeded.
// An attempt that started after it was declared lost has no such excuse.
func (c *check) zombie(t try, a *Attempt, n *Note) bool {
	if a.startedLost(n) {
		return false
	}
	if a.Reason == domain.ReasonLost || a.Reason == domain.ReasonTimeout || c.late[t] != nil {
		return true
	}
	if a.Reason != domain.ReasonKilled && a.Reason != domain.ReasonCovered || !n.End.After(a.FinishedAt) {
		return false
	}
	return slices.ContainsFunc(c.h.Faults, func(f Fault) bool {
		return f.Target == a.Instance && f.stops() && f.From.Before(a.FinishedAt) && n.Start.Before(f.To)
	})
}

// retries checks how often a run was tried.
func (c *check) retries(r *Run) {
	j := c.jobs[r.Job]
	if j == nil || j.version(r.Version) == nil {
		return
	}
	most := 1 + j.version(r.Version).Spec.Retries
	if r.Attempt > most {
		c.fail(RuleRetry, "the run %s of %s was tried %d times; %d are allowed", r.ID, j.name(), r.Attempt, most)
	}
	for n := 1; n < r.Attempt; n++ {
		a := c.tries[try{r.ID, n}]
		switch {
		case a == nil:
			c.fail(RuleRetry, "the run %s is at attempt %d, and its attempt %d left no trace", r.ID, r.Attempt, n)
		case a.Outcome == string(domain.Succeeded):
			c.fail(RuleRetry, "the run %s was tried again after its attempt %d had succeeded", r.ID, n)
		}
	}
	if r.State != domain.Failed || r.Attempt >= most || j.deleted || c.h.Kills[r.ID] {
		return
	}
	switch r.Reason {
	case domain.ReasonHandlerError, domain.ReasonHandlerPanic, domain.ReasonTimeout, domain.ReasonLost, domain.ReasonDrained:
		if !slices.ContainsFunc(c.notes[try{r.ID, r.Attempt}], func(n *Note) bool { return n.Outcome == Permanent }) {
			c.fail(RuleRetry, "the run %s of %s failed by %s at attempt %d of %d, and was not tried again", r.ID, j.name(), r.Reason, r.Attempt, most)
		}
	case domain.NoReason, domain.ReasonHandlerNotFound, domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonKilled,
		domain.ReasonDiscarded, domain.ReasonCovered, domain.ReasonJobDeleted, domain.ReasonBadScript, domain.ReasonUnsupported:
	}
}

// reasons checks that an end was caused by what it names.
func (c *check) reasons(r *Run) {
	j := c.jobs[r.Job]
	if j == nil || j.version(r.Version) == nil || !r.State.Final() {
		return
	}
	spec := &j.version(r.Version).Spec
	wrong := func(why string) {
		c.fail(RuleReason, "the run %s of %s is %s/%s, and %s", r.ID, j.name(), r.State, r.Reason, why)
	}
	notes := c.notes[try{r.ID, r.Attempt}]
	switch r.Reason {
	case domain.NoReason:
		if r.State != domain.Succeeded {
			wrong("an end other than success has a reason")
		}
	case domain.ReasonKilled:
		if !c.h.Kills[r.ID] {
			wrong("nobody asked for it")
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
			return cmp.Or(o.Broadcast, o.ID) != cmp.Or(r.Broadcast, r.ID) && mayCover(o, r, spec)
		}) {
			wrong("no run of the job came after it")
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
		pinned := r.Broadcast != "" && spec.Shards == 0 // such a shard ends when its instance is gone
		if waited := r.FinishedAt.Sub(r.CreatedAt); !pinned && waited < spec.StartDeadline.Std()-time.Second {
			wrong("it waited for " + waited.String() + " only")
		}
		if len(notes) > 0 {
			wrong("the handler " + said(notes))
		}
	case domain.ReasonLost, domain.ReasonDrained: // judged by losses and drains, also if the run was tried again
	case domain.ReasonHandlerNotFound, domain.ReasonBadScript, domain.ReasonUnsupported:
		wrong("every instance has the handler")
	}
}

// mayCover reports whether a run may have come due after another one, and so cover it. When a run came due is not kept where it
// was held or tried again, so that its fire time, or when it was made, has to do; a child or a misfire may have been due at any
// time since.
func mayCover(o, r *Run, spec *domain.JobSpec) bool {
	came := func(r *Run) time.Time {
		if r.Cause == domain.CauseSchedule && !r.FireTime.IsZero() {
			return r.FireTime
		}
		return r.CreatedAt
	}
	const clocks = 500 * time.Millisecond // how far the clocks of two processes may be apart
	switch o.Cause {
	case domain.CauseMisfire, domain.CauseChild:
		return true
	case domain.CauseSchedule, domain.CauseManual, domain.CauseAPI, domain.CauseEvent, domain.CauseBackfill:
	}
	return !came(o).Add(spec.Schedule.Jitter.Std() + clocks).Before(came(r))
}

// call is when a handler ran.
type call struct {
	note     *Note
	from, to time.Time
	owner    string // the run, or the broadcast that it belongs to
}

// overlaps checks that runs of a job whose policy blocks did not run beside each other, by what the handlers wrote.
// Zombies do not count.
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
					continue // without an end it was killed, or it is told by another rule
				}
				calls = append(calls, call{note, note.Start, note.End, cmp.Or(r.Broadcast, r.ID)})
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
