package checker

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

func TestAcceptsFires(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"every fire time served": func(p *planted) { p.job(1, nil); p.served(1) },
		"cron": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) {
				s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Dialect: domain.DialectQuartz, Expr: "2/3 * * * * ?"}
			})
			p.run(1, at(2))
			p.run(1, at(5))
			p.run(1, at(8))
		},
		"once, and a window": func(p *planted) {
			p.job(1, func(s *domain.JobSpec) {
				once := domain.At(at(3.5))
				s.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &once}
			})
			p.run(1, at(3.5))
			p.job(2, func(s *domain.JobSpec) {
				from, to := domain.At(at(3)), domain.At(at(5))
				s.Schedule.StartAt, s.Schedule.EndAt = &from, &to
			})
			p.run(2, at(3))
			p.run(2, at(4))
			p.run(2, at(5))
		},
		"fire times dropped by skip": func(p *planted) {
			p.outage()
			p.job(1, nil)
			p.served(1)
			p.remove(1, 2)
			p.remove(1, 4)
			p.drop(1, 2, 4, 2, domain.MisfireSkip)
		},
		"a misfire fired by fire_once": func(p *planted) {
			p.outage()
			p.job(1, func(s *domain.JobSpec) { s.Misfire = domain.MisfireFireOnce })
			p.served(1)
			p.remove(1, 1)
			p.drop(1, 1, 1, 1, domain.MisfireFireOnce)
			r := p.at(1, 2)
			r.Cause, r.DueAt, r.StartedAt = domain.CauseMisfire, at(7.5), at(7.5)
			n := p.noteOf(r.ID)
			n.Start, n.End = at(7.5), at(7.6)
		},
		"an edit shortly before a fire time": func(p *planted) {
			p.job(1, nil)
			p.served(1)
			p.remove(1, 9)
			p.Versions[0].To, p.Versions[1].From = at(8.9), at(8.9) // the edit may be too late for 9 s
		},
	})
}

func TestRejectsFires(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"a run that never ends", RuleFinal, func(p *planted) { p.at(1, 3).State = domain.Queued }},
		{"a run that is live and in the history", RuleFinal, func(p *planted) { p.Runs = append(p.Runs, *p.at(1, 3)) }},
		{"a fire time without a run or a ledger entry", RuleFire, func(p *planted) { p.remove(1, 3) }},
		{"a fire time with two runs", RuleFire, func(p *planted) { p.run(1, at(3)).ID = "another" }},
		{"a run between the fire times", RuleFire, func(p *planted) { p.run(1, at(3.5)) }},
		{"a run while the job was disabled", RuleFire, func(p *planted) { p.run(1, at(10)) }},
		{"a run of another version", RuleFire, func(p *planted) { p.at(1, 3).Version = 2 }},
		{"a run that was due before its fire time", RuleFire, func(p *planted) { p.at(1, 3).DueAt = at(2.9) }},
		{"a run that was due later than its jitter allows", RuleFire, func(p *planted) { p.at(1, 3).DueAt = at(3.4) }},
		{"a planned run that survives an edit", RuleFire, func(p *planted) {
			p.Versions[0].To, p.Versions[1].From = at(6.5), at(6.5)
		}},
		{"a ledger entry that counts too few", RuleFire, func(p *planted) {
			p.remove(1, 3)
			p.remove(1, 4)
			p.drop(1, 3, 4, 1, domain.MisfireSkip)
		}},
		{"a fire time that only the fire check entered", RuleFire, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireSkip)
			p.Ledger[0].Why = explain.Of(explain.Unexplained, 1)
		}},
		{"a ledger entry that counts too many", RuleLedger, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 2, domain.MisfireSkip)
		}},
		{"a fire time with a run and a ledger entry", RuleLedger, func(p *planted) { p.drop(1, 3, 3, 1, domain.MisfireSkip) }},
		{"a ledger entry for another fire time", RuleFire, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 4, 4, 1, domain.MisfireSkip)
		}},
		{"a ledger entry of an unknown job", RuleLedger, func(p *planted) { p.drop(9, 3, 3, 1, domain.MisfireSkip) }},
		{"a misfire that skip forbids", RuleMisfire, func(p *planted) {
			r := p.at(1, 3)
			r.Cause, r.DueAt = domain.CauseMisfire, at(9)
		}},
		{"a misfire within the tolerance", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireAll
			r := p.at(1, 3)
			r.Cause, r.DueAt = domain.CauseMisfire, at(6)
		}},
		{"fire_once fires no misfire", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireOnce
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireFireOnce)
		}},
		{"fire_once fires two misfires", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireOnce
			for _, second := range []float64{3, 4} {
				r := p.at(1, second)
				r.Cause, r.DueAt, r.CreatedAt = domain.CauseMisfire, at(12), at(12)
			}
		}},
		{"fire_all drops a fire time", RuleMisfire, func(p *planted) {
			p.Versions[0].Spec.Misfire = domain.MisfireFireAll
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireFireAll)
		}},
		{"a ledger entry by a policy that no version has", RuleMisfire, func(p *planted) {
			p.remove(1, 3)
			p.drop(1, 3, 3, 1, domain.MisfireFireOnce)
		}},
		{"a killed run of an unknown job", RuleFire, func(p *planted) {
			p.killed(p.at(1, 3))
			p.at(1, 3).Job = 99
		}},
	})
}

// The matching gives as many fire times as possible a place in a ledger entry.
func TestMatching(t *testing.T) {
	t.Parallel()
	drops := []*Drop{
		{First: at(1), Last: at(9), Count: 1},
		{First: at(2), Last: at(4), Count: 2},
	}
	var points []int64
	for _, s := range []float64{2, 3, 4} {
		points = append(points, at(s).UnixMilli())
	}
	if got := left(points, drops); len(got) != 0 {
		t.Errorf("%d fire times have no place, want 0", len(got))
	}
	if got := left(append(points, at(5).UnixMilli()), drops); len(got) != 1 {
		t.Errorf("%d of four fire times have no place among three, want 1", len(got))
	}
}
