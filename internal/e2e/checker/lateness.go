package checker

import (
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

const (
	// calm is the time after a fault during which RuleLate does not apply, because Belfry is still catching up.
	calm = 30 * time.Second
	// resumes is the time after a fault of a scheduler until this scheduler fires again. A killed scheduler is ready by the end of its fault.
	resumes = 5 * time.Second
)

// lateness checks RuleLate. A run had no reason to be late if no fault happened near its due instant, and if no other run of its job
// could delay it. A fault of a scheduler is no reason while another scheduler works.
func (c *check) lateness() {
	troubled, schedulers := c.troubles()
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		first := c.notes[try{r.ID, 1}]
		if len(first) == 0 || !r.scheduled() || r.Attempt > 1 || !c.tries[try{r.ID, 1}].last {
			continue // DueAt belongs to another attempt
		}
		due := r.DueAt
		if r.Cause == domain.CauseMisfire {
			due = r.FireTime
		}
		late := first[0].Start.Sub(due).Truncate(time.Millisecond)
		if r.Cause == domain.CauseSchedule {
			c.report.Worst = max(c.report.Worst, late)
		}
		j := c.jobs[r.Job]
		if j == nil || inside(troubled, due) || !j.punctual(r) {
			continue
		}
		one := inside(schedulers, due)
		if r.Cause == domain.CauseSchedule {
			c.judged(one, late)
		}
		if late > tolerance+c.stalled(due, first[0].Start) && !c.h.Crowded {
			c.fail(RuleLate, "the run %s of %s was due at %s and started %v later, %s", r.ID, j.name(), clock(due.UnixMilli()), late, whatWas(one))
		}
	}
	for i := range c.h.Ledger {
		c.droppedLate(&c.h.Ledger[i], troubled, schedulers)
	}
}

// droppedLate checks an entry of the ledger: a fire time is dropped only because it was late.
func (c *check) droppedLate(d *Drop, troubled, schedulers []span) {
	j := c.jobs[d.Job]
	if j == nil || c.h.Crowded || d.Why.Code() == explain.Unexplained || inside(troubled, d.First) || inside(troubled, d.Last) {
		return
	}
	if v := j.versionAt(d.Last); v == nil || v.Spec.Block != domain.BlockParallel || v.Spec.Schedule.Jitter > 0 {
		return
	}
	if late := d.At.Sub(d.Last); late > tolerance+c.stalled(d.Last, d.At) {
		c.fail(RuleLate, "%s: the fire time %s was dropped %v later, %s", j.name(), clock(d.Last.UnixMilli()), late, whatWas(inside(schedulers, d.Last)))
	}
}

func whatWas(oneLeft bool) string {
	if oneLeft {
		return "while a scheduler worked and only other schedulers had faults"
	}
	return "without a fault near"
}

// judged counts a run whose lateness was checked.
func (c *check) judged(oneLeft bool, late time.Duration) {
	if oneLeft {
		c.report.OneLeft++
		c.report.WorstLeft = max(c.report.WorstLeft, late)
		return
	}
	c.report.Certain++
	c.report.WorstCalm = max(c.report.WorstCalm, late)
}

// punctual reports whether nothing but a fault may delay a run: it does not wait for an earlier run, or for an instance that is idle.
func (j *job) punctual(r *Run) bool {
	v := j.version(r.Version)
	if v == nil || v.Spec.Block != domain.BlockParallel || v.Spec.Route == domain.RouteBusyover {
		return false
	}
	// A misfire is due at its fire time, plus its jitter, which the database does not keep.
	return r.Cause == domain.CauseSchedule || v.Spec.Schedule.Jitter == 0 && v.Spec.Schedule.Kind != domain.ScheduleOnce
}

// versionAt returns the version in force at an instant, or nil.
func (j *job) versionAt(at time.Time) *Version {
	i := slices.IndexFunc(j.versions, func(v *Version) bool { return !v.From.After(at) && (v.To.IsZero() || v.To.After(at)) })
	if i < 0 {
		return nil
	}
	return j.versions[i]
}

// troubles returns the periods in which a run may be late, and the periods in which schedulers had faults. A run may be late
// near a fault of another part, and near the time at which all schedulers had faults.
func (c *check) troubles() (troubled, schedulers []span) {
	by := make(map[string][]span)
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		switch {
		case f.attacks(): // an attack by another group must delay no run
		case slices.Contains(c.h.Schedulers, f.Target):
			by[f.Target] = append(by[f.Target], span{f.From, f.To.Add(resumes)})
		default:
			troubled = append(troubled, span{f.From.Add(-tolerance), f.To.Add(calm)})
		}
	}
	for i, name := range c.h.Schedulers {
		by[name] = merge(by[name])
		schedulers = append(schedulers, by[name]...)
		if i == 0 {
			continue
		}
		by[name] = common(by[name], by[c.h.Schedulers[i-1]]) // of this scheduler and all before it
	}
	if n := len(c.h.Schedulers); n > 0 {
		for _, s := range by[c.h.Schedulers[n-1]] {
			troubled = append(troubled, span{s.from.Add(-tolerance), s.to.Add(calm)})
		}
	}
	return merge(troubled), merge(schedulers)
}

// common returns the periods that are in both lists of merged spans.
func common(a, b []span) (out []span) {
	for _, x := range a {
		for _, y := range b {
			from, to := x.from, x.to
			if y.from.After(from) {
				from = y.from
			}
			if y.to.Before(to) {
				to = y.to
			}
			if !to.Before(from) {
				out = append(out, span{from, to})
			}
		}
	}
	return out
}

// stalled returns how late a run may be because the machine stalled between two instants.
func (c *check) stalled(from, to time.Time) time.Duration {
	const steps = 10
	worst := time.Duration(0)
	for _, s := range c.h.Stalls {
		if s.From.Before(to) && s.From.Add(s.Took).After(from) {
			worst = max(worst, s.Took)
		}
	}
	return steps * worst
}
