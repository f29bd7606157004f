package checker

import (
	"testing"
	"time"
)

// ahead sets the database's clock ahead of the machine's from an instant of the machine's clock.
func (p *planted) ahead(from, seconds float64) {
	p.Clocks = append(p.Clocks, Clock{From: at(from), Ahead: time.Duration(seconds * float64(time.Second))})
}

// byMachine shifts the handlers' notes to the machine's clock.
func (p *planted) byMachine(seconds float64) {
	for i := range p.Notes {
		p.Notes[i].Start = p.Notes[i].Start.Add(-time.Duration(seconds * float64(time.Second)))
		p.Notes[i].End = p.Notes[i].End.Add(-time.Duration(seconds * float64(time.Second)))
	}
}

func TestAcceptsClocks(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"a database whose clock is ahead": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.ahead(-3600, 20)
			p.byMachine(20)
		},
		"a start that seems early because the clock stepped back after it": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.ahead(-3600, 0)
			p.ahead(4, -3)
			p.outage()
		},
	})
}

func TestRejectsClocks(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"an early start by the database's clock", RuleEarly, func(p *planted) {
			p.ahead(-3600, 20)
			p.byMachine(20.6)
		}},
		{"a start that is earlier than a step explains", RuleEarly, func(p *planted) {
			p.ahead(-3600, 0)
			p.ahead(0, 1)
			p.byMachine(4)
		}},
		{"an early start long after a step", RuleEarly, func(p *planted) {
			p.ahead(-3600, 0)
			p.ahead(-600, 20)
			p.byMachine(20.6)
		}},
		{"a late run long after a step", RuleLate, func(p *planted) {
			p.ahead(-3600, 0)
			p.ahead(-600, 20)
			p.byMachine(14)
		}},
	})
}
