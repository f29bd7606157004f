package checker

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// chain adds job 1, which fires one second after the end of each run, with runs at the given seconds.
func (p *planted) chain(fires ...float64) {
	p.job(1, func(s *domain.JobSpec) {
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(time.Second)}
	})
	for _, f := range fires {
		p.run(1, at(f))
	}
}

func TestAcceptsChains(t *testing.T) {
	t.Parallel()
	acceptsAll(t, map[string]func(p *planted){
		"fixed_delay": func(p *planted) { p.chain(1, 2.3, 3.6) },
	})
}

func TestRejectsChains(t *testing.T) {
	t.Parallel()
	t.Run("too soon", func(t *testing.T) {
		t.Parallel()
		var p planted
		p.chain(1, 1.9)
		rejects(t, &p, RuleChain)
	})
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		var p planted
		p.chain(1, 2.3)
		p.Versions = p.Versions[:1]
		p.Versions[0].To = time.Time{}
		p.job(2, func(s *domain.JobSpec) { s.Schedule = domain.Schedule{Kind: domain.ScheduleNone} })
		r := p.run(2, at(300)) // the history continues for minutes
		r.Cause = domain.CauseAPI
		rejects(t, &p, RuleChain)
	})
}
