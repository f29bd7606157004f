package checker

import (
	"slices"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestAcceptsChildren(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"a shard that a user ran again, as a broadcast of one shard": func(p *planted) {
			p.broadcast()
			r := p.run(1, at(20))
			r.Cause, r.Broadcast, r.ShardIndex, r.ShardTotal = domain.CauseManual, r.ID, 1, 2
		},
		"children": func(p *planted) {
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.job(1, func(s *domain.JobSpec) { s.Children = []domain.Child{{JobID: 2, On: domain.OnSuccess}} })
			p.served(1)
			p.born(2)
		},
		"a broadcast": func(p *planted) {
			p.broadcast()
		},
	})
}

func TestRejectsChildren(t *testing.T) {
	t.Parallel()
	rejectsAll(t, []breach{
		{"a missing child", RuleChild, func(p *planted) {
			p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnSuccess}}
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.born(2)
			p.Runs = p.Runs[:len(p.Runs)-1]
		}},
		{"a child that runs twice", RuleChild, func(p *planted) {
			p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnAlways}}
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.born(2)
			twin := p.Runs[len(p.Runs)-1]
			twin.ID = "twin"
			p.Runs = append(p.Runs, twin)
		}},
		{"a child of a parent that ended otherwise", RuleChild, func(p *planted) {
			p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnFailure}}
			p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
			p.born(2)
		}},
	})
}

func TestRejectsBroadcasts(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(p *planted){
		"a shard that is missing":     func(p *planted) { p.Runs = p.Runs[:len(p.Runs)-1] },
		"a shard that is there twice": func(p *planted) { p.Runs[len(p.Runs)-1].ShardIndex = 0 },
		"shards of two totals":        func(p *planted) { p.Runs[len(p.Runs)-1].ShardTotal = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p planted
			p.broadcast()
			plant(&p)
			rejects(t, &p, RuleBroadcast)
			rejects(t, &p, RuleFire)
		})
	}
	t.Run("joined twice", func(t *testing.T) {
		t.Parallel()
		var p planted
		p.broadcast()
		p.Versions[0].Spec.Children = []domain.Child{{JobID: 2, On: domain.OnSuccess}}
		p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
		for i, parent := range slices.Clone(p.Runs) { // a child for each shard, as if each were the last
			r := p.run(2, at(20+float64(i)))
			r.Cause, r.Parent = domain.CauseChild, parent.Broadcast
		}
		rejects(t, &p, RuleChild)
	})
}
