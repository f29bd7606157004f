package firecheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Lookup finds the fire time that an instant is of a job, by the version with the best claim. Where it is none, the
// Fire's Version is the one that held then, -1 where none did.
func Lookup(job *Job, at time.Time) (fire Fire, found bool) {
	fire = Fire{Time: at, Due: at, Version: -1}
	for i := range job.Versions {
		v := &job.Versions[i]
		if v.holds(at) && !v.Deleted {
			fire.Version = i
		}
		if v.Deleted || v.Schedule == nil || v.Chained() || !isFire(v.Schedule, at) {
			continue
		}
		candidate := Fire{Time: at, Due: v.Schedule.Due(job.ID, at), Version: i}
		ok := v.holds(at) || v.holds(candidate.Due)
		if ok {
			candidate.Claim, ok = job.claim(&candidate)
		}
		if ok && (!found || candidate.Claim == Owned) {
			fire, found = candidate, true
		}
	}
	return fire, found
}

// Neighbours returns the nearest fire times before and after t; zero where there is none within ten years.
func Neighbours(s *schedule.Schedule, t time.Time) (before, after time.Time) {
	after, _ = s.Next(t)
	const furthest = 10 * 366 * 24 * time.Hour
	for back := 2 * time.Second; before.IsZero() && back < furthest; back *= 2 {
		// The halves looked at before had none, so that few are met here, however dense the schedule is.
		for f, ok := s.Next(t.Add(-back)); ok && f.Before(t); f, ok = s.Next(f) {
			before = f
		}
	}
	return before, after
}

// Chain is what is on record of a fixed_delay job around an instant.
type Chain struct{ Before, After *Run }

// ChainDue returns the fire time that follows a run of a fixed_delay version which ended at end, and whether the
// version's window is still open then.
func ChainDue(v *Version, end time.Time) (due time.Time, open bool) {
	start, last := v.Schedule.Window()
	due = end.Add(v.Schedule.Delay())
	if start.After(due) {
		due = start
	}
	return due, last.IsZero() || !due.After(last)
}

// Why answers what became of an instant of a job. heard is a note on how the instant was understood, and may be
// empty. chain counts for versions of kind fixed_delay alone.
func (f *Facts) Why(at time.Time, heard string, chain Chain) Why {
	out := Why{
		JobID: f.Job.ID, JobName: f.Job.Name, Group: f.Job.Group, At: domain.At(at), TimeZone: f.Job.zone().String(),
	}
	var say []string
	if heard != "" {
		say = append(say, heard)
	}
	fire, found := Lookup(f.Job, at)
	if fire.Version >= 0 {
		v := &f.Job.Versions[fire.Version]
		out.Version = v.Number
		if v.Schedule != nil {
			before, after := Neighbours(v.Schedule, at)
			out.Before, out.After = domain.AtPtr(before), domain.AtPtr(after)
		}
	}
	runs := f.Runs[fire.ID(f.Job.ID)]
	switch {
	case found:
		say = append(say, f.answerFire(&out, &fire)...)
	case fire.Version >= 0 && f.Job.Versions[fire.Version].Chained():
		say = append(say, f.answerChain(&out, &fire, chain)...)
	case fire.Version < 0:
		say = append(say, f.answerNoVersion(at))
	default:
		say = append(say, f.answerNoFire(&out, &fire)...)
	}
	if len(runs) > 0 && !found && out.RunID == nil {
		out.RunID = &runs[0].ID
		say = append(say, fmt.Sprintf("All the same there is run %s of it, by version %d.", runs[0].ID, runs[0].Version))
	}
	out.Answer = strings.Join(say, " ")
	return out
}

// answerFire speaks of a fire time.
func (f *Facts) answerFire(out *Why, fire *Fire) []string {
	v := &f.Job.Versions[fire.Version]
	finding := f.Explain(*fire)
	out.IsFireTime, out.Fate, out.DueAt = true, finding.Fate, domain.AtPtr(fire.Due)
	if !finding.RunID.IsZero() {
		out.RunID = &finding.RunID
	}
	say := []string{fmt.Sprintf("%s is a fire time of %s: %s.", f.say(fire.Time), f.made(v), v.Schedule.Describe())}
	if moved := f.clocks(v.Schedule, fire.Time, true); moved != "" {
		say = append(say, moved)
	}
	if !fire.Due.Equal(fire.Time) {
		say = append(say, fmt.Sprintf("Its jitter makes it due at %s.", f.say(fire.Due)))
	}
	return append(say, sentence(finding.Text))
}

// answerNoFire speaks of an instant at which nothing was to fire, by the version that held.
func (f *Facts) answerNoFire(out *Why, fire *Fire) []string {
	v := &f.Job.Versions[fire.Version]
	if v.Schedule == nil {
		return []string{fmt.Sprintf("Whether it is a fire time cannot be said: the schedule of version %d no longer compiles: %s.", v.Number, v.Fault)}
	}
	if v.Schedule.Kind() == domain.ScheduleNone {
		return []string{fmt.Sprintf("The job has no schedule: %s; it runs only by hand, API, event or parent.", f.held(fire.Version))}
	}
	say := []string{fmt.Sprintf("%s is no fire time: %s; it says: %s.", f.say(fire.Time), f.held(fire.Version), v.Schedule.Describe())}
	start, end := v.Schedule.Window()
	switch {
	case !start.IsZero() && fire.Time.Before(start):
		say = append(say, fmt.Sprintf("Its start_at is %s.", f.say(start)))
	case !end.IsZero() && fire.Time.After(end):
		say = append(say, fmt.Sprintf("Its end_at is %s.", f.say(end)))
	case v.Schedule.DayOff(fire.Time):
		local := fire.Time.In(v.Schedule.Zone())
		off := fmt.Sprintf("%s, a %s, is a day off of calendar %s", domain.DateOf(local), local.Weekday(), v.Schedule.Calendar())
		if v.Schedule.TakenOff(fire.Time) {
			off += "; on another day it would be one"
		}
		say = append(say, off+".")
	}
	if moved := f.clocks(v.Schedule, fire.Time, false); moved != "" {
		say = append(say, moved)
	}
	if !v.Enabled {
		say = append(say, "The job was disabled then, besides.")
	}
	return append(say, f.neighbours(out))
}

func (f *Facts) neighbours(out *Why) string {
	switch {
	case out.Before != nil && out.After != nil:
		return fmt.Sprintf("The nearest fire times are %s and %s.", f.say(out.Before.Time), f.say(out.After.Time))
	case out.After != nil:
		return fmt.Sprintf("The first fire time is %s.", f.say(out.After.Time))
	case out.Before != nil:
		return fmt.Sprintf("The last fire time was %s.", f.say(out.Before.Time))
	}
	return "It has no fire times."
}

// answerNoVersion speaks of an instant before the job was, or after it was deleted.
func (f *Facts) answerNoVersion(at time.Time) string {
	for i := range f.Job.Versions {
		if v := &f.Job.Versions[i]; v.Deleted && at.After(v.From) {
			return fmt.Sprintf("The job did not exist any more: %s.", f.made(v))
		}
	}
	if len(f.Job.Versions) > 0 {
		return fmt.Sprintf("The job did not exist yet: %s.", f.made(&f.Job.Versions[0]))
	}
	return "The job did not exist."
}

// answerChain speaks of a fixed_delay job: its fire times follow from the ends of its runs.
func (f *Facts) answerChain(out *Why, fire *Fire, chain Chain) []string {
	v := &f.Job.Versions[fire.Version]
	say := []string{fmt.Sprintf("Fire times of fixed_delay follow from the ends of runs: %s; it says: %s.", f.held(fire.Version), v.Schedule.Describe())}
	if runs := f.Runs[fire.ID(f.Job.ID)]; len(runs) > 0 {
		fire.Claim, fire.Due = Owned, v.Schedule.Due(f.Job.ID, fire.Time)
		finding := f.Explain(*fire)
		out.IsFireTime, out.Fate, out.DueAt, out.RunID = true, finding.Fate, domain.AtPtr(fire.Due), &runs[0].ID
		return append(say, fmt.Sprintf("%s was one.", f.say(fire.Time)), sentence(finding.Text))
	}
	if m := f.entry(fire.Time); m != nil {
		fire.Claim = Owned
		finding := f.missed(fire, m)
		out.IsFireTime, out.Fate = true, finding.Fate
		return append(say, sentence(finding.Text))
	}
	if !v.Enabled {
		out.Fate = FateDisabled
		return append(say, "The job was disabled then.")
	}
	if r := chain.Before; r != nil {
		out.Before, out.RunID = domain.AtPtr(r.FireTime), &r.ID
		text := fmt.Sprintf("The fire time before was %s, and its run %s", f.say(r.FireTime), r.ID)
		switch end := r.FinishedAt; {
		case !r.State.Final():
			text += fmt.Sprintf(" is %s still: the chain goes on when it ends.", r.State)
		case end.After(fire.Time):
			text += fmt.Sprintf(" lasted until %s.", f.say(end))
		default:
			text += fmt.Sprintf(" had ended at %s, so that the next one was due %s later.", f.say(end), v.Schedule.Delay())
		}
		say = append(say, text)
	}
	if r := chain.After; r != nil {
		out.After = domain.AtPtr(r.FireTime)
		say = append(say, fmt.Sprintf("The next fire time was %s.", f.say(r.FireTime)))
	} else if next := f.Job.NextFire; !next.IsZero() {
		out.After = domain.AtPtr(next)
		say = append(say, fmt.Sprintf("The next fire time is %s.", f.say(next)))
	}
	if gap, away := f.away(fire.Time); away {
		say = append(say, sentence(f.sayAway(gap)))
	}
	return say
}

// clocks tells where a change of the clocks is why an instant is a fire time, or is none.
func (f *Facts) clocks(s *schedule.Schedule, t time.Time, fires bool) string {
	zone := s.Zone()
	from, _ := t.In(zone).ZoneBounds()
	if from.IsZero() || s.Kind() != domain.ScheduleCron {
		return ""
	}
	_, offset := t.In(zone).Zone()
	_, earlier := from.Add(-time.Second).In(zone).Zone()
	turn := time.Duration(offset-earlier) * time.Second
	switch {
	case fires && turn > 0 && t.Equal(from):
		return fmt.Sprintf("At that instant the clocks went forward by %s: local times in the gap that the expression names fire here, once.", turn)
	case !fires && turn < 0 && t.Sub(from) < -turn && isFire(s, t.Add(turn)):
		return fmt.Sprintf("The clocks had gone back by %s: they showed this local time for the second time, and a fixed local time fires at its first.", -turn)
	}
	return ""
}

// ParseAt reads an instant: RFC 3339, or a local time of the job such as 2026-03-29 02:30, with what is to be said
// about that where the clocks showed it twice or never.
func ParseAt(text string, job *Job) (at time.Time, heard string, err error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC().Truncate(time.Millisecond), "", nil
	}
	zone := job.zone()
	for _, form := range []string{"2006-01-02T15:04:05.999", "2006-01-02T15:04"} {
		local, err := time.Parse(form, strings.Replace(text, " ", "T", 1))
		if err != nil {
			continue
		}
		at, heard = Local(local, zone)
		return at, heard, nil
	}
	return at, "", fmt.Errorf("%q is not an instant; write it like 2026-03-29T01:30:00Z, or like 2026-03-29T02:30 in the job's time zone, which is %s", clip(text), zone)
}

func clip(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}

// Local returns the instant at which the clocks of a zone show the given reading (whose own zone does not count):
// the first of two, and where they skip it the first instant after the gap. heard says so in these cases.
func Local(reading time.Time, zone *time.Location) (at time.Time, heard string) {
	shown := time.Date(reading.Year(), reading.Month(), reading.Day(), reading.Hour(), reading.Minute(), reading.Second(), reading.Nanosecond(), time.UTC)
	var hits []time.Time
	var gapEnd time.Time
	for _, probe := range []time.Duration{-26 * time.Hour, 26 * time.Hour} { // offsets lie within 26 hours
		_, offset := shown.Add(probe).In(zone).Zone()
		t := shown.Add(-time.Duration(offset) * time.Second)
		if _, there := t.In(zone).Zone(); there == offset {
			hits = append(hits, t)
		} else if from, _ := t.In(zone).ZoneBounds(); gapEnd.IsZero() {
			gapEnd = from
		}
	}
	name := shown.Format("2006-01-02 15:04:05.999")
	switch {
	case len(hits) == 0 && !gapEnd.IsZero():
		return gapEnd.UTC(), fmt.Sprintf("The clocks of %s skipped %s; the first instant after the gap is meant.", zone, name)
	case len(hits) == 0:
		return shown, ""
	case len(hits) == 2 && !hits[0].Equal(hits[1]):
		if hits[1].Before(hits[0]) {
			hits[0], hits[1] = hits[1], hits[0]
		}
		return hits[0].UTC(), fmt.Sprintf("The clocks of %s showed %s twice; the first time is meant.", zone, name)
	}
	return hits[0].UTC(), ""
}

// sentence makes a sentence of a phrase.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
