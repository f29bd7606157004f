package checker

import (
	"slices"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestAcceptsAttempts(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"lost and retried": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Retries = 1; serial(s) })
			p.served(1)
			p.remove(1, 4)
			p.remove(1, 5)
			r := p.at(1, 3)
			p.Attempts = append(p.Attempts, Attempt{
				Run: r.ID, Attempt: 1, Instance: "i2", DispatchedAt: at(3), FinishedAt: at(4), Outcome: "failed", Reason: domain.ReasonLost,
			})
			r.Attempt, r.DueAt, r.StartedAt, r.FinishedAt = 2, at(5), at(5), at(5.2)
			n := p.noteOf(r.ID)
			n.Attempt, n.Start, n.End = 2, at(5), at(5.2)
			p.note(r.ID, 1, "i2", at(3), at(5.1), OK) // the zombie overlaps, and its result is late
			p.Late = append(p.Late, Late{Run: r.ID, Attempt: 1, Outcome: "succeeded"})
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i2", From: at(2.9), To: at(4)})
			p.drop(1, 4, 5, 2, domain.MisfireSkip)
		},
		"lost while it ran, on a frozen instance": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.freeze(p.at(1, 3))
			p.noteOf(p.at(1, 3).ID).End = at(14.1)
			p.Late = append(p.Late, Late{Run: p.at(1, 3).ID, Attempt: 1, Outcome: "succeeded"})
		},
		"lost before it started": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Retries = 1 })
			p.served(1)
			r := p.at(1, 3)
			p.freeze(r)
			p.Notes = slices.DeleteFunc(p.Notes, func(n Note) bool { return n.Run == r.ID })
			p.again(r)
		},
		"drained": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.drain(p.at(1, 3))
		},
		"drained and retried": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Retries = 1 })
			p.served(1)
			p.drain(p.at(1, 3))
			p.again(p.at(1, 3))
		},
		"killed after its timeout": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Timeout = domain.Duration(time.Second) })
			p.served(1)
			r := p.at(1, 3)
			p.killed(r)
			p.noteOf(r.ID).End = r.StartedAt.Add(1200 * time.Millisecond)
		},
		"lost because its instance was killed, without an end in the file": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			r := p.at(1, 3)
			p.lose(r)
			p.noteOf(r.ID).End, p.noteOf(r.ID).Outcome = time.Time{}, ""
			p.Faults = append(p.Faults, Fault{Kind: "kill executor", Target: "i1", From: at(3.1), To: at(4)})
		},
		"killed although its handler succeeded, on an instance on which the kill wins": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.killed(p.at(1, 3))
			p.KillWins = []string{"i1"}
		},
		"lost while its instance stopped, and its result was lost with it": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.interrupted(p.at(1, 3))
			p.Volatile = []string{"i1"}
		},
	})
}

func TestRejectsAttempts(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"an attempt that starts twice", RuleStart, func(p *planted) { p.note(p.at(1, 3).ID, 1, "i1", at(3), at(3.1), OK) }},
		{"an attempt that starts on two instances", RuleStart, func(p *planted) { p.note(p.at(1, 3).ID, 1, "i2", at(3), at(3.1), OK) }},
		{"an attempt that starts on another instance", RuleStart, func(p *planted) { p.noteOf(p.at(1, 3).ID).Instance = "i2" }},
		{"an attempt that is not in the database", RuleStart, func(p *planted) { p.note(p.at(1, 3).ID, 2, "i1", at(3), at(3.1), OK) }},
		{"a run that is not in the database", RuleStart, func(p *planted) { p.note("ghost", 1, "i1", at(3), at(3.1), OK) }},
		{"a start after the verdict, on a frozen instance", RuleVerdict, func(p *planted) {
			p.freeze(p.at(1, 3))
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(14), at(14.1)
			p.Late = append(p.Late, Late{Run: p.at(1, 3).ID, Attempt: 1, Outcome: "succeeded"})
		}},
		{"a start after the verdict, of a run with a retry", RuleVerdict, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			p.freeze(r)
			n := p.noteOf(r.ID)
			n.Start, n.End = at(14), at(14.1)
			p.Late = append(p.Late, Late{Run: r.ID, Attempt: 1, Outcome: "succeeded"})
			p.again(r)
		}},
		{"drained although its instance received no SIGTERM", RuleDrained, func(p *planted) {
			p.drain(p.at(1, 3))
			p.Faults[0].Target = "i2"
		}},
		{"drained by a kill", RuleDrained, func(p *planted) {
			p.drain(p.at(1, 3))
			p.Faults[0].Kind = "kill executor"
		}},
		{"drained and never started", RuleDrained, func(p *planted) {
			r := p.at(1, 3)
			p.drain(r)
			p.Notes = slices.DeleteFunc(p.Notes, func(n Note) bool { return n.Run == r.ID })
		}},
		{"drained although its handler succeeded", RuleDrained, func(p *planted) {
			p.drain(p.at(1, 3))
			p.noteOf(p.at(1, 3).ID).Outcome = OK
		}},
		{"drained and not retried", RuleRetry, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			p.drain(p.at(1, 3))
		}},
		{"a start before the due instant", RuleEarly, func(p *planted) { p.noteOf(p.at(1, 3).ID).Start = at(2.7) }},
		{"a success without a start", RuleEffect, func(p *planted) { p.noteOf(p.at(1, 3).ID).Run = p.at(1, 4).ID }},
		{"a success whose handler never ended", RuleEffect, func(p *planted) {
			n := p.noteOf(p.at(1, 3).ID)
			n.End, n.Outcome = time.Time{}, ""
		}},
		{"a success whose handler failed", RuleEffect, func(p *planted) { p.noteOf(p.at(1, 3).ID).Outcome = Error }},
		{"a success that is not stored", RuleResult, func(p *planted) {
			r := p.at(1, 3)
			p.lose(r)
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(3.1), To: at(4)})
		}},
		{"a success that a kill overwrites", RuleResult, func(p *planted) {
			p.Versions[0].Spec.Timeout = domain.Duration(time.Second)
			p.killed(p.at(1, 3))
		}},
		{"a failure that is lost while its instance stops, although the instance keeps results", RuleResult, func(p *planted) { p.interrupted(p.at(1, 3)) }},
		{"a failure that is lost after its instance was stopped", RuleResult, func(p *planted) {
			p.interrupted(p.at(1, 3))
			p.Volatile = []string{"i1"}
			p.Faults[0].To = at(3.1)
		}},
		{"a success that a kill overwrites, on another instance than those on which the kill wins", RuleResult, func(p *planted) {
			p.killed(p.at(1, 3))
			p.KillWins = []string{"i2"}
		}},
		{"a failure that is not stored", RuleResult, func(p *planted) { p.noteOf(p.at(1, 3).ID).Outcome = Panic }},
		{"lost without a fault", RuleLost, func(p *planted) { p.lose(p.at(1, 3)) }},
		{"lost although only another instance had a fault", RuleLost, func(p *planted) {
			p.lose(p.at(1, 3))
			p.Faults = append(p.Faults, Fault{Kind: "kill executor", Target: "i2", From: at(3.1), To: at(4)})
		}},
		{"lost although only Postgres had a fault", RuleLost, func(p *planted) {
			p.lose(p.at(1, 3))
			p.Faults = append(p.Faults, Fault{Kind: "kill postgres", Target: "postgres", From: at(3.1), To: at(4)})
		}},
		{"one attempt too many", RuleRetry, func(p *planted) { p.at(1, 3).Attempt = 2 }},
		{"one attempt too few", RuleRetry, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			r.State, r.Reason = domain.Failed, domain.ReasonHandlerError
			p.noteOf(r.ID).Outcome = Error
		}},
		{"an attempt after a success", RuleRetry, func(p *planted) {
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			r.Attempt = 2
			p.Attempts = append(p.Attempts, Attempt{Run: r.ID, Attempt: 1, Instance: "i1", FinishedAt: at(3.1), Outcome: "succeeded"})
		}},
	})
}
