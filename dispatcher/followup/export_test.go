package followup

import "time"

// RestAfter sets how long there must be no follow-up before the workers rest.
func (w *Workers) RestAfter(d time.Duration) { w.restAfter = d }

// Resting reports whether the workers rest.
func (w *Workers) Resting() bool { return w.resting.Load() }

// Sessions returns how often the workers have begun to work, after a rest or for the first time.
func (w *Workers) Sessions() int { return int(w.sessions.Load()) }
