package schedule

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func (s *Schedule) compileJitter(in domain.Schedule, o Options, f *domain.Faults) {
	s.jitter = in.Jitter.Std()
	switch {
	case s.jitter == 0:
		return
	case s.jitter < 0:
		f.Add("schedule.jitter", "must not be negative")
		return
	case s.jitter%time.Millisecond != 0:
		f.Add("schedule.jitter", fmt.Sprintf("is %s; use whole milliseconds", s.jitter))
		return
	}
}
