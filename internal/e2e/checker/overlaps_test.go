package checker

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// outlived kills the run at 3 s, but its handler continues until after the start of the run at 4 s on another instance. The handler
// fails, so its result is not stored as a late one.
func (p *planted) outlived() {
	r := p.at(1, 3)
	p.killed(r)
	r.FinishedAt = at(3.5)
	n := p.noteOf(r.ID)
	n.End, n.Outcome = at(4.1), Error
	next := p.at(1, 4)
	next.Instance = "i2"
	p.noteOf(next.ID).Instance = "i2"
}

func TestAcceptsOverlaps(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"killed while its instance was frozen": func(p *planted) {
			p.job(1, serial)
			p.served(1)
			p.outlived()
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(3.1), To: at(4.1)})
		},
	})
}

func TestRejectsOverlaps(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"an overlap with an attempt that started after its verdict", RuleOverlap, func(p *planted) {
			serial(&p.Versions[0].Spec)
			serial(&p.Versions[1].Spec)
			p.Versions[0].Spec.Retries = 1
			r := p.at(1, 3)
			p.freeze(r)
			r.FinishedAt = at(3.2)
			n := p.noteOf(r.ID)
			n.Start, n.End = at(4.1), at(4.3)
			p.Late = append(p.Late, Late{Run: r.ID, Attempt: 1, Outcome: "succeeded"})
		}},
		{"serial runs that overlap", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockSerial
			p.noteOf(p.at(1, 3).ID).End = at(4.1)
		}},
		{"an overlap with a killed run of an instance without a fault", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockSerial
			p.outlived()
		}},
		{"an overlap with a killed run of an instance whose fault has ended", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block = domain.BlockSerial
			p.outlived()
			p.Faults = append(p.Faults, Fault{Kind: "freeze executor", Target: "i1", From: at(1), To: at(2.5)})
		}},
		{"runs that overlap on an instance", RuleOverlap, func(p *planted) {
			p.Versions[0].Spec.Block, p.Versions[0].Spec.BlockScope = domain.BlockDiscardLater, domain.ScopeInstance
			p.noteOf(p.at(1, 3).ID).End = at(4.1)
		}},
	})
}
