package firecheck

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// Finding is the result of the check of one fire time.
type Finding struct {
	Fate     Fate
	Cause    string // consecutive findings of a job with the same fate and cause become one Item
	Text     string // an English phrase
	Lateness time.Duration
	RunID    domain.RunID // zero: the fire time has no run
}

// Explain returns the finding for a fire time.
func (f *Facts) Explain(fire Fire) Finding {
	runs := f.Runs[fire.ID(f.Job.ID)]
	switch len(runs) {
	case 0:
		return f.explainNone(&fire)
	case 1:
		return f.explainRun(&fire, &runs[0])
	}
	return Finding{
		Fate: FateDoubled, RunID: runs[0].ID,
		Text: fmt.Sprintf("it has %d runs, one is %s and one is %s", len(runs), runs[0].State, runs[1].State),
	}
}

// explainNone explains a fire time without a run.
func (f *Facts) explainNone(fire *Fire) Finding {
	v := &f.Job.Versions[fire.Version]
	switch fire.Claim {
	case Disabled:
		return Finding{Fate: FateDisabled, Cause: v.cause(), Text: "the job was disabled: " + f.held(fire.Version)}
	case Cut:
		return Finding{Fate: FateEdited, Cause: v.cause(), Text: f.ended(fire)}
	case Owned:
	}
	if m := f.entry(fire.Time); m != nil {
		return f.missed(fire, m)
	}
	if by, ok := f.overtaken(fire); ok {
		return Finding{Fate: FateEdited, Cause: v.cause(), Text: by}
	}
	switch next := f.Job.NextFire; {
	case fire.Due.After(f.Now):
		return Finding{Fate: FateNotDue, Text: "it is due at " + f.say(fire.Due)}
	case !next.IsZero() && !next.After(fire.Time):
		if p := f.heldUp(fire); p != nil {
			return Finding{
				Fate: FatePaused, Cause: p.From.String(),
				Text: p.Describe(f.Now, f.say) + "; after the pause, the misfire policy " + string(v.Misfire) + " decides about it",
			}
		}
		if gap, away := f.away(f.Now); away {
			return Finding{
				Fate: FateSchedulerAway, Cause: gap.From.String(),
				Text: f.sayAway(gap) + "; when one is back, the misfire policy " + string(v.Misfire) + " decides about it",
			}
		}
		return Finding{Fate: FateUndecided, Text: "planning has not decided it yet"}
	case f.Now.Sub(fire.Due) < Settled:
		return Finding{Fate: FateUndecided, Text: "it was due a moment ago, and its run is not recorded yet"}
	case !f.Kept(fire.Time):
		return Finding{Fate: FateRetention, Cause: fire.Time.Format(time.DateOnly), Text: "the runs of its day are no longer kept"}
	case v.Retention > 0 && f.Now.Sub(fire.Due) > v.Retention:
		return Finding{Fate: FateRetention, Cause: v.cause(), Text: "the job keeps its runs for " + v.Retention.String()}
	}
	return Finding{Fate: FateUnexplained, Cause: v.cause(), Text: fmt.Sprintf(
		"it has neither a run nor an entry in the missed ledger, although version %d of the job was in force and enabled", v.Number)}
}

// heldUp returns the pause that keeps planning from deciding a fire time: the pause in which it is due or, if it was missed
// before that, the current pause.
func (f *Facts) heldUp(fire *Fire) *domain.Pause {
	if p := f.paused(fire); p != nil {
		return p
	}
	now := Fire{Due: f.Now, Version: fire.Version}
	return f.paused(&now)
}

// entry returns the ledger entry that covers a fire time.
func (f *Facts) entry(t time.Time) *Missed {
	for i := range f.Missed {
		if m := &f.Missed[i]; !t.Before(m.First.Time) && !t.After(m.Last.Time) {
			return m
		}
	}
	return nil
}

func (f *Facts) missed(fire *Fire, m *Missed) Finding {
	text := "it is in the missed ledger: " + m.Why.String()
	if p := f.paused(fire); p != nil && !m.Why.TellsPause() {
		text += "; " + p.Describe(f.Now, f.say)
	}
	if gap, away := f.away(fire.Due); away {
		text += "; " + f.sayAway(gap)
	}
	return Finding{Fate: FateMissed, Cause: fmt.Sprint(m.ID), Text: text}
}

// overtaken reports whether an edit skipped the fire time: it was due after the edit, but planning had already decided a later
// fire time, and planning decides in order. This can happen with jitter, or after a run was admitted ahead of its due instant.
func (f *Facts) overtaken(fire *Fire) (string, bool) {
	v := &f.Job.Versions[fire.Version]
	if !f.MayBeOvertaken(fire) {
		return "", false
	}
	said := func(later time.Time) (string, bool) {
		return fmt.Sprintf("the job was edited at %s, before it was due, and by then a later fire time, %s, had been decided",
			f.say(v.From), f.say(later)), true
	}
	if later, ok := f.Later[fire.Time.UnixMilli()]; ok {
		return said(later)
	}
	for i := range f.Missed {
		if m := &f.Missed[i]; m.Last.After(fire.Time) && !m.At.After(v.From) {
			return said(m.Last.Time)
		}
	}
	return "", false
}

// MayBeOvertaken reports whether Explain needs the entry of Later for a fire time without a run, because an edit may have
// skipped it.
func (f *Facts) MayBeOvertaken(fire *Fire) bool {
	return fire.Claim == Owned && !fire.Time.After(f.Job.Versions[fire.Version].From.Add(Ahead))
}

// explainRun explains a fire time with a run.
func (f *Facts) explainRun(fire *Fire, r *Run) Finding {
	out := Finding{Fate: FateRan, RunID: r.ID}
	started := !r.StartedAt.IsZero() || r.LatenessMS != nil
	switch {
	case r.Missing > 0:
		out.Fate = FateUnexplained
		out.Text = fmt.Sprintf("%d of the %d shards of its run are missing", r.Missing, r.Shards)
	case r.State.Final() && !started:
		out.Fate, out.Cause = FateNotStarted, string(r.State)+"/"+string(r.Reason)
		out.Text = fmt.Sprintf("its run ended %s without a start: %s", outcome(r), because(r))
	case started:
		f.punctual(&out, fire, r)
	case r.HeldBy != nil:
		out.Fate, out.Text = FateHeld, fmt.Sprintf("its run is held: run %s of the job is unfinished", r.HeldBy)
	case r.State == domain.Pending && r.DueAt.After(f.Now):
		out.Fate, out.Text = FateNotDue, "its run is planned and due at "+f.say(r.DueAt)
	case r.State == domain.Pending:
		f.unfired(&out, fire)
	case r.State == domain.Queued && r.Instance != "":
		out.Fate, out.Text = FateWaiting, "its run was given to instance "+r.Instance+", which has not reported a start"
	default:
		out.Fate, out.Text = FateWaiting, "its run waits for an executor"
		if r.Waiting != nil {
			out.Text += ": " + r.Waiting.Text
		}
	}
	return out
}

// unfired explains a run that is past due and has not been fired.
func (f *Facts) unfired(out *Finding, fire *Fire) {
	out.Lateness = f.Now.Sub(fire.Due)
	gap, away := f.away(f.Now)
	switch {
	case away:
		out.Fate, out.Cause, out.Text = FateSchedulerAway, gap.From.String(), "its run is planned, and "+f.sayAway(gap)
	case out.Lateness > f.Tolerance:
		out.Fate, out.Cause, out.Text = FateLate, "unfired", "its run is planned, but no scheduler has fired it yet"
	default:
		out.Fate, out.Text = FateUndecided, "its run is planned and about to be fired"
	}
}

// punctual explains a run that started: its lateness and what took the most time.
func (f *Facts) punctual(out *Finding, fire *Fire, r *Run) {
	first := r.Attempt <= 1 && !r.StartedAt.IsZero()
	switch {
	case first:
		out.Lateness = r.StartedAt.Sub(fire.Due)
	case r.LatenessMS != nil:
		out.Lateness = time.Duration(*r.LatenessMS) * time.Millisecond
	}
	out.Text = "its run " + fared(r)
	if out.Lateness <= f.Tolerance {
		return
	}
	out.Fate = FateLate
	why := "the cause is not recorded"
	gap, away := f.away(fire.Due)
	held, waited, slow := r.DueAt.Sub(fire.Due), r.DispatchedAt.Sub(r.DueAt), r.StartedAt.Sub(r.DispatchedAt)
	switch {
	case r.Cause == domain.CauseMisfire && f.paused(fire) != nil:
		out.Cause, why = "paused", f.paused(fire).Describe(f.Now, f.say)+", and the misfire policy made up for it"
	case r.Cause == domain.CauseMisfire && away:
		out.Cause, why = "misfire", f.sayAway(gap)+", and the misfire policy made up for it"
	case r.Cause == domain.CauseMisfire:
		out.Cause, why = "misfire", "no scheduler fired it in time, and the misfire policy made up for it"
	case !first || r.DispatchedAt.IsZero():
		out.Cause = "unknown"
	case held >= waited && held >= slow:
		out.Cause, why = "held", "the job's block policy held it back until "+f.say(r.DueAt)
	case waited >= slow && away:
		out.Cause, why = "away", f.sayAway(gap)
	case waited >= slow:
		out.Cause, why = "waited", "no executor could take it before "+f.say(r.DispatchedAt)
	default:
		out.Cause, why = "slow", "instance "+r.Instance+" started it only at "+f.say(r.StartedAt)
	}
	out.Text += fmt.Sprintf(", %s late: %s", out.Lateness.Round(time.Millisecond), why)
}

// outcome returns a run's state and reason.
func outcome(r *Run) string {
	if r.Reason == domain.NoReason {
		return string(r.State)
	}
	return fmt.Sprintf("%s (%s)", r.State, r.Reason)
}

// fared returns a phrase about the state of a run that started.
func fared(r *Run) string {
	switch r.State {
	case domain.Pending, domain.Queued, domain.Retrying:
		return fmt.Sprintf("has been tried, and waits for attempt %d", r.Attempt+1)
	case domain.Running:
		return "is running on instance " + r.Instance
	case domain.Succeeded, domain.Failed, domain.Cancelled, domain.Skipped:
	}
	return "ended " + outcome(r)
}

// because returns a phrase that says why a run ended without a start.
func because(r *Run) string {
	switch r.Reason {
	case domain.ReasonDiscarded:
		return "the job's block policy is discard_later, and " + r.Message
	case domain.ReasonCovered:
		return "the job's block policy is cover_early, and a later run came due"
	case domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonKilled, domain.ReasonJobDeleted, domain.ReasonLost, domain.ReasonDrained,
		domain.ReasonHandlerError, domain.ReasonHandlerPanic, domain.ReasonHandlerNotFound, domain.ReasonTimeout,
		domain.ReasonBadScript, domain.ReasonUnsupported, domain.NoReason:
	}
	if r.Message == "" {
		return "no details are recorded"
	}
	return r.Message
}
