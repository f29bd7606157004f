package checker

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestRejectsReasons(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"a kill without a request", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Cancelled, domain.ReasonKilled
		}},
		{"job_deleted although the job was not deleted", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Cancelled, domain.ReasonJobDeleted
		}},
		{"covered under another policy", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Cancelled, domain.ReasonCovered
		}},
		{"covered without a newer run", RuleReason, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockCoverEarly
			last := p.at(1, 3)
			for i := range p.Runs {
				if r := &p.Runs[i]; r.Job == 1 && r.FireTime.After(last.FireTime) {
					last = r
				}
			}
			last.State, last.Reason = domain.Cancelled, domain.ReasonCovered
		}},
		{"skipped as covered, and started", RuleReason, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockCoverEarly
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Skipped, domain.ReasonCovered
		}},
		{"discarded under another policy", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Skipped, domain.ReasonDiscarded
		}},
		{"a timeout of a job without a timeout", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Failed, domain.ReasonTimeout
		}},
		{"handler_error although the handler succeeded", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Failed, domain.ReasonHandlerError
		}},
		{"no_executor before the start deadline", RuleReason, func(p *planted) {
			p.at(1, 3).State, p.at(1, 3).Reason = domain.Failed, domain.ReasonNoExecutor
		}},
	})
}
