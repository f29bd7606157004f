package domain

import (
	"time"

	"github.com/belfryhq/belfry/internal/explain"
)

// DisturbanceKind is the kind of a disturbance.
type DisturbanceKind string

// The kinds of disturbances.
const (
	ClockStep    DisturbanceKind = "clock_step"    // the database's clock was set, or another server with another clock took over
	PostgresAway DisturbanceKind = "postgres_away" // Postgres did not answer a scheduler, or did not complete its planning
	Restored     DisturbanceKind = "restored"      // the database was restored to its state of From; until To, runs may have started that it does not know
)

// Disturbance is a fault of the database or its clock because of which schedulers fired late, although they were running, or a restore
// because of which the database does not know what ran. From and To are the readings of the database's clock around it: the last one
// before it and the first one after it. If the clock stepped back, To is usually earlier than From.
type Disturbance struct {
	Kind     DisturbanceKind
	From, To time.Time
	Step     time.Duration // of ClockStep; negative: back
}

// Back reports whether the clock stepped back. Then no fire time is late, and the period repeats.
func (d *Disturbance) Back() bool { return d.Step < 0 }

// Covers reports whether t lies in the disturbance.
func (d *Disturbance) Covers(t time.Time) bool {
	if d.To.Before(d.From) {
		return !t.Before(d.To) && !t.After(d.From)
	}
	return !t.Before(d.From) && !t.After(d.To)
}

// Delays reports whether the disturbance is why a fire time that was due at t was not served in time. If it was due less than the
// tolerance before the disturbance, it was not late yet.
func (d *Disturbance) Delays(t time.Time, tolerance time.Duration) bool {
	return !d.Back() && !t.Before(d.From.Add(-tolerance)) && !t.After(d.To)
}

// Same reports whether two processes have noticed the same disturbance. Two observations of one step have about the same
// size, and overlap on the clock as it was before the step.
func (d *Disturbance) Same(other *Disturbance) bool {
	return d.Kind == other.Kind && (d.Step-other.Step).Abs() < time.Second &&
		!d.From.After(other.To.Add(-other.Step)) && !other.From.After(d.To.Add(-d.Step))
}

// Combine returns what two observations of the same disturbance say together. A step lies between the readings of each
// process. A scheduler may notice only a part of an absence of Postgres.
func (d *Disturbance) Combine(other *Disturbance) Disturbance {
	out := *d
	if later := other.From.After(d.From); later == (d.Kind == ClockStep) {
		out.From = other.From
	}
	if later := other.To.After(d.To); later != (d.Kind == ClockStep) {
		out.To = other.To
	}
	return out
}

// DescribeIn returns a phrase about the disturbance. say formats an instant.
func (d *Disturbance) DescribeIn(language explain.Language, say func(time.Time) string) string {
	return explain.Disturbed(language, string(d.Kind), d.Step, say(d.From), say(d.To))
}
