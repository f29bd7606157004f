package checker

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestAcceptsLateness(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"late, while other tests use the machine": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.Crowded = true
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(33.1), at(33.2)
		},
		"late because the machine stalled": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.Stalls = []Stall{{at(4), time.Second}}
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(9.2), at(9.3)
		},
		"late while all schedulers have faults": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.schedulers(Fault{"freeze scheduler", "s1", at(1), at(7)}, Fault{"kill scheduler", "s2", at(4), at(5)})
			p.late(3, 8.1)
		},
		"a misfire after a fault": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) { s.Misfire = domain.MisfireFireAll })
			p.served(1)
			p.outage()
			r := p.late(3, 9)
			r.Cause, r.DueAt = domain.CauseMisfire, at(9)
		},
	})
}

func TestRejectsLateness(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"late without a fault", RuleLate, func(p *planted) {
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(8.1), at(8.2)
		}},
		{"later than a stall of the machine explains", RuleLate, func(p *planted) {
			p.Stalls = []Stall{{at(4), 100 * time.Millisecond}}
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(9.2), at(9.3)
		}},
		{"late after a stall of the machine", RuleLate, func(p *planted) {
			p.Stalls = []Stall{{at(1), time.Second}}
			n := p.noteOf(p.at(1, 3).ID)
			n.Start, n.End = at(8.1), at(8.2)
		}},
		{"late while one scheduler works", RuleLate, func(p *planted) {
			p.schedulers(Fault{"freeze scheduler", "s1", at(1), at(7)})
			p.late(3, 8.1)
		}},
		{"late after one scheduler resumed before the other had a fault", RuleLate, func(p *planted) {
			p.schedulers(Fault{"freeze scheduler", "s1", at(1), at(2)}, Fault{"kill scheduler", "s2", at(7.1), at(9)})
			p.late(1, 6.1)
		}},
		{"a misfire without a fault", RuleLate, func(p *planted) {
			r := p.late(3, 9)
			r.Cause, r.DueAt = domain.CauseMisfire, at(9)
		}},
		{"a dropped fire time without a fault", RuleLate, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireSkip)
		}},
	})
}

// schedulers adds faults to a history with the schedulers s1 and s2.
func (p *planted) schedulers(faults ...Fault) {
	p.Schedulers, p.Faults = []string{"s1", "s2"}, append(p.Faults, faults...)
}

// outage adds a fault that excuses late runs.
func (p *planted) outage() {
	p.Faults = append(p.Faults, Fault{"kill postgres", "postgres", at(1), at(7)})
}

// late delays the start of the first job's run of a fire time.
func (p *planted) late(second, start float64) *Run {
	r := p.at(1, second)
	n := p.noteOf(r.ID)
	n.Start, n.End = at(start), at(start+.1)
	r.StartedAt, r.FinishedAt = n.Start, n.End
	return r
}
