package schedule

import "time"

// Describe says in English when the schedule fires.
func (s *Schedule) Describe() string { return string(s.kind) }

// Note says why the schedule has no fire time after now, "" where it has one or needs none.
func (s *Schedule) Note(now time.Time) string { return "" }
