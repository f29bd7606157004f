package firecheck

import (
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/schedule"
)

// Lookup returns the fire time of a job at an instant, with the version that has the best claim. If the instant is no fire time,
// Fire.Version is the version that was in force then, or -1 if there was none.
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

// Neighbours returns the nearest fire times before and after t. They are zero if there is none within ten years before t or none
// after t.
func Neighbours(s *schedule.Schedule, t time.Time) (before, after time.Time) {
	after, _ = s.Next(t)
	const furthest = 10 * 366 * 24 * time.Hour
	for back := 2 * time.Second; before.IsZero() && back < furthest; back *= 2 {
		// The previous, shorter periods contained no fire time, so the loop finds only a few, even for a dense schedule.
		for f, ok := s.Next(t.Add(-back)); ok && f.Before(t); f, ok = s.Next(f) {
			before = f
		}
	}
	return before, after
}

// Chain contains the runs of a fixed_delay job before and after an instant; nil if there is none.
type Chain struct{ Before, After *Run }

// ChainDue returns the fire time that follows a run of a fixed_delay version that ended at end. open reports whether it lies
// within the schedule's window.
func ChainDue(v *Version, end time.Time) (due time.Time, open bool) {
	start, last := v.Schedule.Window()
	due = end.Add(v.Schedule.Delay())
	if start.After(due) {
		due = start
	}
	return due, last.IsZero() || !due.After(last)
}

// Why explains what happened to a job at an instant. heard is a sentence about the interpretation of the user's input and may be
// empty. chain is used for versions of kind fixed_delay only.
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
		say = append(say, fmt.Sprintf("However, there is run %s of version %d with this fire time.", runs[0].ID, runs[0].Version))
	}
	out.Answer = strings.Join(say, " ")
	return out
}

// answerFire explains a fire time.
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

// answerNoFire explains why an instant is no fire time of the version that was in force.
func (f *Facts) answerNoFire(out *Why, fire *Fire) []string {
	v := &f.Job.Versions[fire.Version]
	if v.Schedule == nil {
		return []string{fmt.Sprintf("It is unknown whether this is a fire time, because the schedule of version %d no longer compiles: %s.", v.Number, v.Fault)}
	}
	if v.Schedule.Kind() == domain.ScheduleNone {
		return []string{fmt.Sprintf("The job has no schedule: %s. It runs only by manual trigger, API, event or parent.", f.held(fire.Version))}
	}
	say := []string{fmt.Sprintf("%s is no fire time: %s, with this schedule: %s.", f.say(fire.Time), f.held(fire.Version), v.Schedule.Describe())}
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
			off += "; without the calendar, this would be a fire time"
		}
		say = append(say, off+".")
	}
	if moved := f.clocks(v.Schedule, fire.Time, false); moved != "" {
		say = append(say, moved)
	}
	if !v.Enabled {
		say = append(say, "The job was also disabled at that time.")
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

// answerNoVersion explains an instant before the job was created or after it was deleted.
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

// answerChain explains an instant of a fixed_delay job, whose fire times follow from the ends of its runs.
func (f *Facts) answerChain(out *Why, fire *Fire, chain Chain) []string {
	v := &f.Job.Versions[fire.Version]
	say := []string{fmt.Sprintf("Fire times of fixed_delay follow from the ends of runs: %s, with this schedule: %s.", f.held(fire.Version), v.Schedule.Describe())}
	if runs := f.Runs[fire.ID(f.Job.ID)]; len(runs) > 0 {
		fire.Claim, fire.Due = Owned, v.Schedule.Due(f.Job.ID, fire.Time)
		finding := f.Explain(*fire)
		out.IsFireTime, out.Fate, out.DueAt, out.RunID = true, finding.Fate, domain.AtPtr(fire.Due), &runs[0].ID
		return append(say, fmt.Sprintf("%s was a fire time.", f.say(fire.Time)), sentence(finding.Text))
	}
	if m := f.entry(fire.Time); m != nil {
		fire.Claim = Owned
		finding := f.missed(fire, m)
		out.IsFireTime, out.Fate = true, finding.Fate
		return append(say, sentence(finding.Text))
	}
	if !v.Enabled {
		out.Fate = FateDisabled
		return append(say, "The job was disabled at that time.")
	}
	if r := chain.Before; r != nil {
		out.Before, out.RunID = domain.AtPtr(r.FireTime), &r.ID
		text := fmt.Sprintf("The previous fire time was %s, and its run %s", f.say(r.FireTime), r.ID)
		switch end := r.FinishedAt; {
		case !r.State.Final():
			text += fmt.Sprintf(" is still %s: the next fire time follows from its end.", r.State)
		case end.After(fire.Time):
			text += fmt.Sprintf(" lasted until %s.", f.say(end))
		default:
			text += fmt.Sprintf(" had ended at %s, so the next one was due %s later.", f.say(end), v.Schedule.Delay())
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

// clocks returns a sentence if a clock change is the reason why an instant is a fire time, or why it is none.
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
		return fmt.Sprintf("At that instant the clocks went forward by %s: local times of the expression that lie in the gap fire here, once.", turn)
	case !fires && turn < 0 && t.Sub(from) < -turn && isFire(s, t.Add(turn)):
		return fmt.Sprintf("The clocks had gone back by %s: they showed this local time for the second time, and a fixed local time fires only the first time.", -turn)
	}
	return ""
}

// ParseAt parses an instant: RFC 3339, or a local time in the job's time zone such as 2026-03-29 02:30. If the clocks showed the
// local time twice or never, heard is a sentence that says so.
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

// Local returns the instant at which the clocks of a zone show the given local time; the zone of reading is ignored. If they show
// it twice, it returns the first instant. If they skip it, it returns the first instant after the gap. heard says so in both cases.
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
		return gapEnd.UTC(), fmt.Sprintf("The clocks of %s skipped %s; this answer is about the first instant after the gap.", zone, name)
	case len(hits) == 0:
		return shown, ""
	case len(hits) == 2 && !hits[0].Equal(hits[1]):
		if hits[1].Before(hits[0]) {
			hits[0], hits[1] = hits[1], hits[0]
		}
		return hits[0].UTC(), fmt.Sprintf("The clocks of %s showed %s twice; this answer is about the first time.", zone, name)
	}
	return hits[0].UTC(), ""
}

// sentence returns a phrase as a sentence.
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
